"""Files of a workdir: config.json, meta.json, result.json, diverged.json; and the lock
against other processes."""

import errno
import fcntl
import json
import logging
import os
import platform
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import IO, Any, NamedTuple

import jax

from largevocab.atomic import write_text
from largevocab.errors import Diverged, UserError, remedy
from largevocab.paths import user_path

_LARGEST = 2**26  # most bytes of one of these files
_LOG = logging.getLogger("largevocab")
# Errors of file systems without locks, or without one for this file.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}
_PATIENCE = 1.0  # seconds to wait for a lock: tests of it hold it only briefly
# Result rows, which change while a sweep runs, do not count as source.
RESULTS = ":(top,exclude,glob)experiments/*/*.jsonl"
_CODE = (":/largevocab", ":/configs")
# Keys that change neither what a step does nor by what the best state is chosen: inputs
# of another length (eval.unroll) have other costs. Classes of data at another path are
# compared with those of the run.
_FREE = re.compile(
  r"config\.((eval(?!\.(best|unroll)$)|log|checkpoint)\..*|mesh\.num|"
  r"data\.(cache_dir|data_dir|path)|train\.(max_steps|epochs|patience))"
)
# Where a trained model is only used, also those of training, and names of files.
_FREE_IN_USE = re.compile(
  r"config\.(eval\..*|train\.(?!tied$).*|head\.budget_mib|"
  r"data\.(train|valid|test|file|tokenizer))"
)
# And those that change by what metric the best state is chosen, if it is by one.
_OF_BEST = {"config.eval.hide_seen", "config.eval.unlabelled"}


class Change(NamedTuple):
  """A key of a config with a changed value."""

  key: str
  old: Any
  new: Any

  @property
  def is_free(self) -> bool:
    """Whether a run may continue with the change.

    >>> Change("config.eval.batch_size", 20, 10).is_free
    True
    >>> Change("config.data.path", "/scratch", "/data").is_free
    True
    >>> Change("config.train.lr", 1.0, 2.0).is_free
    False
    """
    return bool(_FREE.fullmatch(self.key))

  @property
  def moves_data(self) -> bool:
    """Whether the data are read from another place.

    >>> Change("config.data.path", "/scratch", "/data").moves_data
    True
    """
    return self.key in {"config.data.data_dir", "config.data.path"}


def workdir_path(text: str) -> str:
  """Validates the workdir that a user gives.

  Raises:
    UserError: it is no possible path.
  """
  path = str(user_path(text, "--workdir"))
  if "://" in text:
    raise UserError(f"--workdir is {text!r}: give a directory on this machine")
  if not path.isprintable():
    raise UserError(
      f"--workdir is {text!r}: its name has characters that cannot be shown; choose "
      "another"
    )
  return path


@contextmanager
def writing(path: str) -> Iterator[None]:
  """Adds file name and advice to errors of writing."""
  try:
    yield
  except OSError as error:
    room = "make room or choose another --workdir; the same command goes on from the "
    what_to_do = remedy(error.errno, room + "last checkpoint")
    raise UserError(
      f"{path} cannot be written ({error.strerror or error}); {what_to_do}"
    ) from error


def write_json(path: str, content: dict[str, Any]) -> None:
  """Writes a file atomically."""
  with writing(path):
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


@contextmanager
def held(workdir: str) -> Iterator[None]:
  """Creates the workdir if needed, and locks it against other training processes.

  The lock, on the file `lock`, is the operating system's and ends with the process,
  however that ends. The file stays: it names the last process with the lock.

  Raises:
    UserError: another process has the lock.
  """
  path = _lock_path(workdir)
  with writing(workdir):
    os.makedirs(workdir, exist_ok=True)
  with writing(path):
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    file = open(os.open(path, flags, 0o666), "r+b")  # noqa: SIM115
  with file:
    deadline = time.monotonic() + _PATIENCE
    while not _lock(file, fcntl.LOCK_EX):
      if time.monotonic() > deadline:
        raise UserError(
          f"{workdir} is in use: {_holder(file)} trains in it; wait until it has "
          "ended, or choose another --workdir"
        )
      time.sleep(0.05)
    with writing(path):
      file.truncate()
      content = {"host": socket.gethostname(), "pid": os.getpid()}
      content["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
      file.write(json.dumps(content).encode())
      file.flush()
    yield


def is_held(workdir: str | os.PathLike[str]) -> bool:
  """Whether some process is training in a workdir.

  >>> is_held("no/such/workdir")
  False
  """
  try:
    with open(_lock_path(os.fspath(workdir)), "rb") as file:
      return not _lock(file, fcntl.LOCK_SH)
  except OSError:
    return False


def _lock(file: IO[bytes], kind: int) -> bool:
  """Locks an open file until it is closed; False if another process has the lock."""
  try:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    _LOG.warning("%s cannot be locked: start no other process there", file.name)
  return True


def _lock_path(workdir: str) -> str:
  return os.path.join(workdir, "lock")


def _holder(file: IO[bytes]) -> str:
  """'process 7 on HOST, since ...', from the content of a lock file."""
  try:
    content = json.loads(file.read(1000))
    return "process {pid} on {host}, since {since},".format(**content)
  except (OSError, ValueError, KeyError, TypeError, RecursionError):
    return "another process"


def changes_of(workdir: str, config: dict[str, Any]) -> list[Change]:
  """The keys in which a config differs from that of the run in a workdir.

  A workdir without a checkpoint has no run.

  Raises:
    UserError: the run has another config: a key changed that is not free.
  """
  if not _holds_results(workdir):
    return []
  changes = list(_differences("config", _config_of(workdir), _as_json(config)))
  fixed = _OF_BEST if config.get("eval", {}).get("best") else set()
  bound = [each for each in changes if not each.is_free or each.key in fixed]
  _refuse(workdir, bound, "choose another --workdir")
  return changes


def check_model(
  workdir: str, was: dict[str, Any], config: dict[str, Any], other_data: bool = False
) -> None:
  """Checks that a config is of the model that a config was trained with, and changes
  only how that is used.

  Args:
    workdir: of the run, for messages.
    was, config: the run's config, and the other one.
    other_data: whether the data may be others.

  Raises:
    UserError: the model is another one.
  """
  changes = _differences("config", _as_json(was), _as_json(config))
  bound = [
    each
    for each in changes
    if not (
      each.is_free
      or _FREE_IN_USE.fullmatch(each.key)
      or (other_data and each.key.startswith("config.data."))
    )
  ]
  _refuse(workdir, bound, "leave it as it was trained")


def _refuse(workdir: str, bound: list[Change], what_to_do: str) -> None:
  """Raises a UserError about the first of changes that a run may not have, if any."""
  # Of other parts first the name: the rest of their keys follows from it.
  for change in sorted(bound, key=lambda change: not change.key.endswith(".name")):
    raise UserError(
      f"{workdir} holds a run with {change.key} = {change.old!r:.99}, not "
      f"{change.new!r:.99}; {what_to_do}"
    )


def has_result_of(workdir: str, config: dict[str, Any]) -> bool:
  """Whether a workdir has the result of this config, so that nothing is left to do."""
  return has_finished(workdir) and _config_of(workdir) == _as_json(config)


def claim_workdir(workdir: str, config: dict[str, Any], step: int = 0) -> None:
  """Writes config.json and meta.json for this config.

  When a run resumes, meta.json describes this start, under `changed` the keys with new
  values and the step at which they changed, and under `earlier` the previous starts,
  oldest first.

  Raises:
    UserError: see `changes_of`.
  """
  meta = describe_machine()
  changes = changes_of(workdir, config)
  if changes:
    meta["changed"] = [{**change._asdict(), "step": step} for change in changes]
  path = os.path.join(workdir, "meta.json")
  if _holds_results(workdir) and os.path.exists(path):
    before = read_json(path)
    earlier = before.pop("earlier", [])
    if not isinstance(earlier, list):
      raise UserError(f"{path} is damaged (`earlier` is no list); delete it")
    meta["earlier"] = [*earlier, before]
  write_json(path, meta)
  write_json(config_path(workdir), _as_json(config))


def has_finished(workdir: str) -> bool:
  return os.path.exists(result_path(workdir))


def has_ended(workdir: str) -> bool:
  """Whether a run has a result, or has diverged."""
  return has_finished(workdir) or os.path.exists(diverged_path(workdir))


@contextmanager
def noting_divergence(workdir: str) -> Iterator[None]:
  """Records in diverged.json the step at which a run diverged."""
  try:
    yield
  except Diverged as error:
    write_json(diverged_path(workdir), {"step": error.step})
    raise


def forget_divergence(workdir: str) -> None:
  """At the beginning of a new attempt."""
  if os.path.exists(diverged_path(workdir)):
    with writing(diverged_path(workdir)):
      os.remove(diverged_path(workdir))


def diverged_path(workdir: str) -> str:
  return os.path.join(workdir, "diverged.json")


def result_path(workdir: str) -> str:
  return os.path.join(workdir, "result.json")


def set_result_aside(workdir: str) -> None:
  """Renames result.json, if there is one, to result.1.json, or the next free number."""
  number = 1
  while os.path.lexists(aside := os.path.join(workdir, f"result.{number}.json")):
    number += 1
  if has_finished(workdir):
    with writing(aside):
      os.rename(result_path(workdir), aside)


def config_path(workdir: str) -> str:
  return os.path.join(workdir, "config.json")


def _config_of(workdir: str) -> dict[str, Any]:
  """The config of the run in a workdir."""
  path = config_path(workdir)
  if not os.path.exists(path):
    raise UserError(
      f"{path} is missing, and {workdir} holds a run: restore it, or choose another "
      "--workdir"
    )
  return read_json(path)


def _holds_results(workdir: str) -> bool:
  checkpoints = os.path.join(workdir, "checkpoints")
  has_checkpoints = os.path.isdir(checkpoints) and bool(os.listdir(checkpoints))
  return has_checkpoints or has_finished(workdir)


def read_json(path: str) -> dict[str, Any]:
  """The object in a file.

  Raises:
    UserError: it cannot be read or has other content.
  """
  advice = _restored(path)
  try:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
      raise UserError(f"{path} is damaged (no file of ours is like it); {advice}")
    with open(path, encoding="utf-8") as file:
      content = json.load(file)
  except OSError as error:
    what_to_do = remedy(error.errno, advice)
    raise UserError(
      f"{path} cannot be read ({error.strerror}); {what_to_do}"
    ) from error
  except UserError:
    raise
  except (ValueError, RecursionError) as error:  # not JSON, or not even text
    raise UserError(f"{path} is damaged ({error}); {advice}") from error
  if not isinstance(content, dict):
    raise UserError(f"{path} is damaged (it holds no object); {advice}")
  return content


def _restored(path: str) -> str:
  """What to do with a damaged file: all but the config can be made anew."""
  is_config = os.path.basename(path) == os.path.basename(config_path(""))
  return "restore it, or choose another --workdir" if is_config else "delete it"


def read_numbers(path: str) -> dict[str, float]:
  """The object in a file, whose values must all be numbers.

  Raises:
    UserError: see `read_json`; or a value is not a number.
  """
  content = read_json(path)
  for key, value in content.items():
    is_int = type(value) is int and abs(value) <= sys.float_info.max
    if not (is_int or type(value) is float):
      raise UserError(
        f"{path} is damaged ({key!r:.99} is {value!r:.99}, no number); delete it"
      )
  return content


def describe_machine() -> dict[str, Any]:
  """Versions, device, source revision and command line."""
  packages = ("jax", "jaxlib", "flax", "optax", "numpy")
  return {
    "argv": sys.argv,
    "device": device_name(),
    "num_devices": jax.device_count(),
    "git": _git("rev-parse", "HEAD"),
    "git_dirty": bool(_git("status", "--porcelain", "--", ":/", RESULTS)),
    "python": platform.python_version(),
    "versions": {name: metadata.version(name) for name in packages},
  }


def has_changes() -> bool:
  """Whether a tracked file of the code or of a config is not as committed."""
  return bool(_git("status", "--porcelain", "-uno", "--", *_CODE))


def device_name() -> str:
  """Name of the device; for a CPU also the number of available cores."""
  device = jax.devices()[0]
  return device.device_kind if device.platform != "cpu" else _cpu_name()


def _cpu_name() -> str:
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
  name = platform.processor() or platform.machine()
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      models = [line.split(":", 1)[1] for line in file if line.startswith("model name")]
    name = models[0].strip() if models else name
  except OSError:
    pass
  return f"{name}, {cores or os.cpu_count()} cores"


def _git(*args: str) -> str:
  here = os.path.dirname(os.path.abspath(__file__))
  try:
    return subprocess.run(
      ["git", "-C", here, *args], capture_output=True, text=True, timeout=10
    ).stdout.strip()
  except (OSError, subprocess.TimeoutExpired):
    return ""


def _differences(key: str, old: Any, new: Any) -> Iterator[Change]:
  if isinstance(old, dict) and isinstance(new, dict):
    for name in sorted(old.keys() | new.keys()):
      yield from _differences(f"{key}.{name}", old.get(name), new.get(name))
  elif old != new:
    yield Change(key, old, new)


def _as_json(config: dict[str, Any]) -> dict[str, Any]:
  """The config after a round trip through JSON: with lists for tuples."""
  return json.loads(json.dumps(config))
