"""Runs a sweep: one process for each run; finished ones are skipped.

  python scripts/run_sweep.py experiments/ptb/sweep.py --jobs 2 --set data.path=/my/ptb

Each run has a directory of its own in --root, named after its config and overrides,
with its output in log.txt. Interrupt it (Ctrl-C) and start it again at will: a run that
left result.json is skipped, any other is resumed from its last checkpoint. Runs that
another launcher has in hand, or one that was killed has left behind, are waited for. At
the end the results of all finished runs are written to results.jsonl beside the sweep
file, and to --root what TensorBoard's HPARAMS page is to show first.

As a job array: --index=$ID does one run only and writes no results.jsonl; a last call
without --index, on the same --root, collects the results.
"""

import argparse
import fcntl
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import IO, Any

import entry
import hparams_page
import records
from ml_collections import ConfigDict
from status_line import StatusLine
from sweepfile import Run, load

from largevocab import command_line
from largevocab.errors import UserError
from largevocab.workdir import is_held

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class PathSetting:
  """Where a config finds something on this machine.

  Only paths may be set from outside: where data lie does not change a result, and is
  no part of a run's name. All else belongs in the sweep file.

  Attributes:
    key: of the config.
    path: of a file or directory.
    config: its file's name without suffix; "": any that has the key.
  """

  key: str
  path: pathlib.Path
  config: str = ""

  @classmethod
  def parse(cls, text: str) -> "PathSetting":
    """
    >>> PathSetting.parse("ptb:data.path=/")
    PathSetting(key='data.path', path=PosixPath('/'), config='ptb')

    Raises:
      UserError: it is not of this form, or there is no such path.
    """
    left, _, path = text.partition("=")
    config, _, key = left.rpartition(":")
    if not path or not pathlib.Path(path).exists():
      raise UserError(
        f"--set {text}: want KEY=PATH or CONFIG:KEY=PATH of a file or directory that "
        "exists; other settings belong in the sweep file"
      )
    return cls(key, pathlib.Path(path).resolve(), config)

  @property
  def flag(self) -> str:
    """Of largevocab.main."""
    return f"--config.{self.key}={self.path}"

  def is_for(self, run: Run) -> bool:
    """Whether the run's config is the one, and has the key."""
    file = run.config.partition(":")[0]
    if self.config and self.config != pathlib.Path(file).stem:
      return False
    block: Any = command_line.load(str(REPOSITORY / run.config))
    *blocks, key = self.key.split(".")
    for name in blocks:
      block = block[name] if isinstance(block, ConfigDict) and name in block else {}
    return isinstance(block, ConfigDict) and key in block


@dataclass(frozen=True)
class Launcher:
  """Where runs go, and the settings that they are given if they take them."""

  root: pathlib.Path
  settings: list[PathSetting]

  def workdir(self, run: Run) -> pathlib.Path:
    return self.root / run.id

  def finished(self, run: Run) -> bool:
    return (self.workdir(run) / "result.json").exists()

  def command(self, run: Run) -> list[str]:
    program = [sys.executable, "-m", "largevocab.main"]
    general_first = sorted(self.settings, key=lambda each: bool(each.config))
    flags = [each.flag for each in general_first if each.is_for(run)]
    return [*program, *run.flags(), *flags, f"--workdir={self.workdir(run)}"]

  def in_hand(self, run: Run) -> bool:
    """Whether a process works on it: a launcher's, or one that was started by hand."""
    if is_held(self.workdir(run)):
      return True
    path = log_path(self.workdir(run))
    if not path.exists():
      return False
    with path.open("ab") as log:
      return not locked(log)

  def start(self, run: Run) -> subprocess.Popen | None:
    """Starts a run; None if it is running already."""
    if is_held(self.workdir(run)):
      return None
    self.workdir(run).mkdir(parents=True, exist_ok=True)
    with log_path(self.workdir(run)).open("ab") as log:
      # The run inherits the lock with its output and keeps it should we be killed.
      if not locked(log):
        return None
      # Runs of one sweep differ little and can share what they compile.
      cache = {
        "JAX_COMPILATION_CACHE_DIR": str(self.root / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
      }
      return subprocess.Popen(
        self.command(run),
        cwd=REPOSITORY,
        env={**cache, **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches us alone.
      )


def locked(log: IO[bytes]) -> bool:
  """Whether we have the lock of a log now: nobody else had."""
  try:
    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def log_path(workdir: pathlib.Path) -> pathlib.Path:
  return workdir / "log.txt"


def last_line(log: pathlib.Path) -> str:
  """The last line of a log that is not blank; '' if there is none.

  >>> last_line(pathlib.Path("no/such/log.txt"))
  ''
  """
  if not log.exists():
    return ""
  with log.open("rb") as file:
    file.seek(max(0, log.stat().st_size - 4096))
    lines = file.read().decode(errors="replace").split("\n")
  return next((line.strip() for line in reversed(lines) if line.strip()), "")


def run_all(launcher: Launcher, runs: list[Run], jobs: int) -> dict[str, str]:
  """Does what is not finished.

  Returns:
    {id: why} of the runs that are not finished now.
  """
  waiting = [run for run in runs if not launcher.finished(run)]
  running: dict[str, tuple[Run, subprocess.Popen]] = {}
  elsewhere: list[Run] = []
  failed: dict[str, str] = {}
  status = StatusLine()
  status.print(f"{len(runs)} runs, {len(runs) - len(waiting)} finished before")
  try:
    while waiting or running or elsewhere:
      while waiting and len(running) < jobs:
        run = waiting.pop(0)
        if launcher.finished(run):  # by another launcher, meanwhile
          continue
        process = launcher.start(run)
        if process is None:
          elsewhere.append(run)
          status.print(f"waiting   {run.id}: it is running already")
        else:
          running[run.id] = run, process
          status.print(f"started   {run.id}")
      time.sleep(POLL_SECONDS)
      for id, (run, process) in list(running.items()):
        if process.poll() is None:
          continue
        del running[id]
        if launcher.finished(run):
          status.print(f"finished  {id}")
        else:
          line = last_line(log_path(launcher.workdir(run)))
          failed[id] = f"exit code {process.returncode}: {line}"
          status.print(f"failed    {id}")
      free = [run for run in elsewhere if not launcher.in_hand(run)]
      elsewhere = [run for run in elsewhere if run not in free]
      for run in free:
        if launcher.finished(run):
          status.print(f"finished  {run.id}, elsewhere")
        else:
          waiting.append(run)
      unfinished = len(waiting) + len(running) + len(elsewhere)
      done = len(runs) - unfinished - len(failed)
      lines = (
        f"{run.id}: {last_line(log_path(launcher.workdir(run)))}"
        for run in [*(run for run, _ in running.values()), *elsewhere]
      )
      status.show(
        f"{done}/{len(runs)} done, {len(failed)} failed | {' | '.join(lines)}"
      )
  finally:
    status.clear()
    stop([process for _, process in running.values()])
  return failed


def stop(processes: list[subprocess.Popen]) -> None:
  """Asks the runs to save and leave, and waits; a second interrupt kills them."""
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


def choose(runs: list[Run], index: int | None) -> list[Run]:
  """All runs, or the one of this index."""
  if index is None:
    return runs
  if not 0 <= index < len(runs):
    raise UserError(f"--index={index}: the sweep has runs 0 to {len(runs) - 1}")
  return [runs[index]]


def parse_settings(texts: list[str], runs: list[Run]) -> list[PathSetting]:
  """Of a sweep with these runs.

  Raises:
    UserError: see `PathSetting.parse`; or no run takes one of them.
  """
  settings = [PathSetting.parse(text) for text in texts]
  for text, setting in zip(texts, settings, strict=True):
    if not any(setting.is_for(run) for run in runs):
      raise UserError(f"--set {text}: the sweep has no such config with this key")
  return settings


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("sweep", type=pathlib.Path, help="experiments/NAME/sweep.py")
  parser.add_argument("--root", type=pathlib.Path, help="default: runs/NAME")
  parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
  parser.add_argument("--index", type=int, help="only this run, from 0")
  parser.add_argument("--dry_run", action="store_true", help="print the commands")
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="[CONFIG:]KEY=PATH",
    help="where data lie on this machine, for runs whose config has the key, or for "
    "those of one config, which goes before: data.path=/data, ptb:data.path=/data/ptb",
  )
  return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
  args = parse_args(argv)
  entry.check_counts(args, "jobs")
  sweep = load(args.sweep)
  if not sweep.runs:
    raise UserError(
      f"{args.sweep} adds no runs; its README.md tells what makes results"
    )
  chosen = choose(sweep.runs, args.index)
  root = args.root or REPOSITORY / "runs" / args.sweep.resolve().parent.name
  launcher = Launcher(root.resolve(), parse_settings(args.set, sweep.runs))
  if args.dry_run:
    for run in chosen:
      mark = "# finished: " if launcher.finished(run) else ""
      print(mark + shlex.join(launcher.command(run)))
    return 0
  try:
    failed = run_all(launcher, chosen, args.jobs)
  finally:
    if args.index is None:
      records.update(args.sweep.with_name("results.jsonl"), sweep.runs, launcher.root)
      hparams_page.write(launcher.root, sweep.runs)
  for id, why in failed.items():
    print(f"failed: {id}: {why}", file=sys.stderr)
  return 1 if failed else 0


def raise_interrupt(*_) -> None:
  raise KeyboardInterrupt


if __name__ == "__main__":
  signal.signal(signal.SIGTERM, raise_interrupt)
  sys.exit(entry.run("run_sweep", main))
