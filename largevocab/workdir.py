"""The files that say what a run is: config.json, meta.json, result.json."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import jax

from largevocab.errors import UserError, remedy


@contextmanager
def writing(path: str) -> Iterator[None]:
  """Names the file, and what to do, where something cannot be written."""
  try:
    yield
  except OSError as error:
    raise UserError(
      f"{path} cannot be written ({error.strerror or error}); "
      f"{remedy(error.errno, 'make room or choose another --workdir')}; the same command "
      "goes on from the last checkpoint"
    ) from error


def write_json(path: str, content: dict[str, Any]) -> None:
  """Writes a file that is whole or not there."""
  temporary = f"{path}.tmp"
  with writing(path):
    with open(temporary, "w", encoding="utf-8") as file:
      json.dump(content, file, indent=1, sort_keys=True)
      file.write("\n")
    os.replace(temporary, path)


def claim_workdir(workdir: str, config: dict[str, Any]) -> None:
  """Makes the workdir this config's own, and notes how it was started.

  Until something is saved in it, a workdir may be claimed anew by another config. When
  a run goes on, meta.json tells of this start, and under `earlier` of those before, the
  first one first; that of a finished run stays as it is.

  Raises:
    UserError: the workdir holds a run of another config.
  """
  with writing(workdir):
    os.makedirs(workdir, exist_ok=True)
  path = os.path.join(workdir, "config.json")
  wanted = json.loads(json.dumps(config))
  holds_results = _holds_results(workdir)
  if os.path.exists(path) and holds_results:
    there = read_json(path)
    if there != wanted:
      key, old, new = _first_difference(there, wanted)
      raise UserError(
        f"{workdir} holds a run with {key} = {old!r}, not {new!r}; choose another "
        "--workdir"
      )
  else:
    write_json(path, wanted)
  if not has_finished(workdir):
    _note_start(os.path.join(workdir, "meta.json"), goes_on=holds_results)


def has_finished(workdir: str) -> bool:
  return os.path.exists(result_path(workdir))


def result_path(workdir: str) -> str:
  return os.path.join(workdir, "result.json")


def _note_start(path: str, goes_on: bool) -> None:
  meta = describe_machine()
  if goes_on and os.path.exists(path):
    before = read_json(path)
    meta["earlier"] = [*before.pop("earlier", []), before]
  write_json(path, meta)


def _holds_results(workdir: str) -> bool:
  checkpoints = os.path.join(workdir, "checkpoints")
  has_checkpoints = os.path.isdir(checkpoints) and bool(os.listdir(checkpoints))
  return has_checkpoints or has_finished(workdir)


def read_json(path: str) -> dict[str, Any]:
  """The object in a file.

  Raises:
    UserError: it cannot be read or holds something else.
  """
  try:
    with open(path, encoding="utf-8") as file:
      content = json.load(file)
  except OSError as error:
    raise UserError(f"{path} cannot be read: {error.strerror}") from error
  except ValueError as error:  # not JSON, or not even text
    raise UserError(f"{path} is damaged ({error}); delete it") from error
  if not isinstance(content, dict):
    raise UserError(f"{path} is damaged (it holds no object); delete it")
  return content


def describe_machine() -> dict[str, Any]:
  """Versions, device, source revision and command line."""
  packages = ("jax", "jaxlib", "flax", "optax", "numpy")
  return {
    "argv": sys.argv,
    "device": device_name(),
    "num_devices": jax.device_count(),
    "git": _git("rev-parse", "HEAD"),
    "git_dirty": bool(_git("status", "--porcelain")),
    "python": platform.python_version(),
    "versions": {name: metadata.version(name) for name in packages},
  }


def device_name() -> str:
  """What computes: for a CPU also how many of its cores are ours."""
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


def _first_difference(old: Any, new: Any, path: str = "config") -> tuple[str, Any, Any]:
  if isinstance(old, dict) and isinstance(new, dict):
    for key in sorted(old.keys() | new.keys()):
      if old.get(key) != new.get(key):
        return _first_difference(old.get(key), new.get(key), f"{path}.{key}")
  return path, old, new
