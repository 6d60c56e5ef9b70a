"""Runs of a sweep as processes, with their commands, directories and locks."""

import contextlib
import glob
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from largevocab import command_line, config
from largevocab.atomic import try_lock
from largevocab.errors import UserError, listed
from largevocab.paths import user_path
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training.config_changes import PLACES
from largevocab.training.lock import is_held
from largevocab.training.workdir import has_ended

# On a CPU, large arrays are in huge pages, so that a step takes fewer page faults.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
LOWEST = 19  # priority (niceness)


@dataclass(frozen=True)
class PathSetting:
  """The path of data on this machine, for a key of a config.

  Only paths may be set outside the sweep file, since the location of the data does not
  change a result and is not part of a run's name.

  Attributes:
    key: dotted key of the config.
    path: a file, a directory or a glob pattern.
    config: file name of the config without suffix; "": any config with the key.
  """

  key: str
  path: pathlib.Path
  config: str = ""

  @classmethod
  def parse(cls, text: str) -> "PathSetting":
    """Parses [CONFIG:]KEY=PATH.

    >>> PathSetting.parse("ptb:data.path=/")
    PathSetting(key='data.path', path=PosixPath('/'), config='ptb')

    Raises:
      UserError: the text has another form, the key is not for data, or the path does
        not exist.
    """
    left, _, path = text.partition("=")
    config, _, key = left.rpartition(":")
    if key not in PLACES:
      raise UserError(
        f"--set {text}: {key!r} is not a location of data, as {listed(PLACES)} are; "
        "other settings belong in the sweep file"
      )
    path = path and str(user_path(path, f"--set {key}"))
    if not path or not (pathlib.Path(path).exists() or glob.glob(path)):
      raise UserError(
        f"--set {text}: must be KEY=PATH or CONFIG:KEY=PATH of an existing file or "
        "directory, or a pattern; other settings belong in the sweep file"
      )
    return cls(key, pathlib.Path(path).resolve(), config)

  def __str__(self) -> str:
    config = f"{self.config}:" if self.config else ""
    return f"{config}{self.key}={self.path}"

  @property
  def flag(self) -> str:
    """The flag of largevocab.main."""
    return f"--config.{self.key}={self.path}"

  def is_for(self, run: Run) -> bool:
    """Whether the run's config matches and has the key."""
    file = run.config.partition(":")[0]
    if self.config and self.config != pathlib.Path(file).stem:
      return False
    block: Any = command_line.load(run.source)
    *blocks, key = self.key.split(".")
    for name in blocks:
      block = block[name] if isinstance(block, ConfigDict) and name in block else {}
    return isinstance(block, ConfigDict) and key in block


@dataclass(frozen=True)
class Launcher:
  """Starts runs in subdirectories of `root`, with the settings that apply to them."""

  root: pathlib.Path
  settings: list[PathSetting]

  def workdir(self, run: Run) -> pathlib.Path:
    """Directory of a run."""
    return self.root / run.id

  def ended(self, run: Run) -> bool:
    """Whether a run has a result, or has diverged."""
    return has_ended(str(self.workdir(run)))

  def command(self, run: Run) -> list[str]:
    """The words of the command that executes a run."""
    program = [sys.executable, "-m", "largevocab.main"]
    flags = flags_of(run, self.settings)
    return [*program, *flags, f"--workdir={self.workdir(run)}"]

  def in_hand(self, run: Run) -> bool:
    """Whether a process executes the run, started by a launcher or by hand."""
    if is_held(self.workdir(run)):
      return True
    path = log_path(self.workdir(run))
    if not path.exists():
      return False
    with path.open("ab") as log:
      return not try_lock(log)

  def start(self, run: Run) -> subprocess.Popen | None:
    """Starts a run; None if it is running already."""
    if is_held(self.workdir(run)):
      return None
    self.workdir(run).mkdir(parents=True, exist_ok=True)
    with log_path(self.workdir(run)).open("ab") as log:
      # The run inherits the lock, and keeps it if this process is killed.
      if not try_lock(log):
        return None
      defaults = {
        # Runs of one sweep differ little, and share compiled programs.
        "JAX_COMPILATION_CACHE_DIR": str(self.root / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **HUGE_PAGES,
      }
      # This package comes first, even if the current directory has another one.
      places = [str(REPOSITORY), os.getcwd(), os.environ.get("PYTHONPATH", "")]
      path = os.pathsep.join(filter(None, places))
      package = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
      return subprocess.Popen(
        self.command(run),
        env={**defaults, **os.environ, **package},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that Ctrl-C reaches only this process
      )


def flags_of(run: Run, settings: Iterable[PathSetting]) -> list[str]:
  """The run and the paths that apply to it as flags of largevocab.main."""
  general_first = sorted(settings, key=lambda each: bool(each.config))
  return [*run.flags(), *(each.flag for each in general_first if each.is_for(run))]


def settings_of(run: Run, settings: Iterable[PathSetting]) -> ConfigDict:
  """The run's config with all overrides, for `largevocab.config.build`."""
  _, *flags = flags_of(run, settings)
  block = command_line.load(run.source)
  command_line.override(block, ["settings_of", *flags], known=[])
  return block


def log_path(workdir: pathlib.Path) -> pathlib.Path:
  """The file with the output of a run."""
  return workdir / "log.txt"


def give_core(process: subprocess.Popen, slot: int) -> None:
  """Gives a run the lowest priority and, if the system supports that, one core.

  On one core, a run gets the same results at the same speed regardless of what else is
  running. Other processes on this core take precedence.
  """
  os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
  # Linux schedules sessions before their processes, and each run has a session.
  with contextlib.suppress(OSError):
    pathlib.Path(f"/proc/{process.pid}/autogroup").write_text(str(LOWEST))
  if own := cores():
    os.sched_setaffinity(process.pid, {own[slot % len(own)]})


def cores() -> list[int]:
  """The cores that this process may use; empty if the system does not let it choose."""
  if not hasattr(os, "sched_getaffinity"):
    return []
  return sorted(os.sched_getaffinity(0))


def last_line(log: pathlib.Path) -> str:
  """The last non-blank line of a log; '' if there is none.

  >>> last_line(pathlib.Path("no/such/log.txt"))
  ''
  """
  if not log.exists():
    return ""
  with log.open("rb") as file:
    file.seek(max(0, log.stat().st_size - 4096))
    lines = file.read().decode(errors="replace").split("\n")
  return next((line.strip() for line in reversed(lines) if line.strip()), "")


def stop(processes: list[subprocess.Popen]) -> None:
  """Terminates runs after a checkpoint, and waits; a second interrupt kills them."""
  if not processes:
    return
  print(f"stopping {len(processes)} runs; they save first", flush=True)
  try:
    for process in processes:
      process.terminate()
    for process in processes:
      process.wait()
  except KeyboardInterrupt:
    for process in processes:
      process.kill()
    raise


def check_configs(path: pathlib.Path, runs: Iterable[Run]) -> None:
  """Checks the configs of a sweep file's runs, before any is started.

  Raises:
    UserError: a key does not exist, or a value is out of bounds; the message names the
      run.
  """
  for run in runs:
    try:
      config.build(settings_of(run, []))
    except UserError as error:
      raise UserError(f"{path}: run {run.name or run.id!r}: {error}") from None


def check_settings(settings: list[PathSetting], runs: list[Run]) -> None:
  """Raises a UserError if a setting applies to none of the runs."""
  for setting in settings:
    if not any(setting.is_for(run) for run in runs):
      raise UserError(f"--set {setting}: the sweep has no such config with this key")
