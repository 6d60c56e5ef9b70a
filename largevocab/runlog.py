"""What a run writes: metrics.jsonl, TensorBoard events, meta.json, result.json."""

import json
import logging
import os
import platform
import resource
import subprocess
import sys
import time
from importlib import metadata
from typing import Any

import jax

from largevocab.errors import UserError

_LOG = logging.getLogger("largevocab")


def write_json(path: str, content: dict[str, Any]) -> None:
  """Writes a file that is whole or not there."""
  temporary = f"{path}.tmp"
  with open(temporary, "w", encoding="utf-8") as file:
    json.dump(content, file, indent=1, sort_keys=True)
    file.write("\n")
  os.replace(temporary, path)


def claim_workdir(workdir: str, config: dict[str, Any]) -> None:
  """Makes the workdir this config's own, and notes how it was started.

  Raises:
    UserError: the workdir holds a run of another config.
  """
  os.makedirs(workdir, exist_ok=True)
  path = os.path.join(workdir, "config.json")
  wanted = json.loads(json.dumps(config))
  if os.path.exists(path):
    there = read_json(path)
    if there != wanted:
      key, old, new = _first_difference(there, wanted)
      raise UserError(
        f"{workdir} holds a run with {key} = {old!r}, not {new!r}; choose another "
        "--workdir"
      )
  else:
    write_json(path, wanted)
  write_json(os.path.join(workdir, "meta.json"), describe_machine())


def read_json(path: str) -> dict[str, Any]:
  try:
    with open(path, encoding="utf-8") as file:
      return json.load(file)
  except json.JSONDecodeError as error:
    raise UserError(f"{path} is damaged ({error}); delete it") from error


def describe_machine() -> dict[str, Any]:
  """Versions, device, source revision and command line."""
  packages = ("jax", "jaxlib", "flax", "optax", "numpy")
  device = jax.devices()[0]
  return {
    "argv": sys.argv,
    "device": device.device_kind if device.platform != "cpu" else _cpu_name(),
    "num_devices": jax.device_count(),
    "git": _git("rev-parse", "HEAD"),
    "git_dirty": bool(_git("status", "--porcelain")),
    "python": platform.python_version(),
    "versions": {name: metadata.version(name) for name in packages},
  }


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


class RunLog:
  """Metrics of one run, as JSON lines and for TensorBoard.

  A run that goes on from step s drops what an earlier process wrote for later steps, so
  that the files read as if there had been one process.
  """

  def __init__(self, workdir: str, start_step: int, hparams: dict[str, Any]):
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import summary_v2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    self._event_pb2, self._summary_pb2 = event_pb2, summary_pb2
    path = os.path.join(workdir, "metrics.jsonl")
    _drop_after(path, start_step)
    self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115
    self._events = EventFileWriter(workdir, flush_secs=30)
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._add_event(start_step + 1, session_log=start)
    simple = {
      k: v if isinstance(v, int | float) else str(v) for k, v in hparams.items()
    }
    self._add_event(0, summary=summary_v2.hparams_pb(simple, trial_id=workdir))

  def _add_event(self, step: int, **content: Any) -> None:
    event = self._event_pb2.Event(wall_time=time.time(), step=step, **content)
    self._events.add_event(event)

  def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
    """One line, and one TensorBoard scalar per metric."""
    self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
    self._file.flush()
    scalar = self._summary_pb2.Summary.Value
    values = [scalar(tag=f"{split}/{k}", simple_value=v) for k, v in metrics.items()]
    self._add_event(step, summary=self._summary_pb2.Summary(value=values))

  def close(self) -> None:
    self._file.close()
    self._events.close()


def _drop_after(path: str, last_step: int) -> None:
  """Keeps the lines of steps up to last_step; a torn last line goes too."""
  if not os.path.exists(path):
    return
  kept = []
  with open(path, encoding="utf-8") as file:
    for line in file:
      if not line.endswith("\n"):
        break
      if json.loads(line)["step"] <= last_step:
        kept.append(line)
  with open(f"{path}.tmp", "w", encoding="utf-8") as file:
    file.writelines(kept)
  os.replace(f"{path}.tmp", path)


class Progress:
  """A line now and then: how far, how fast, how long still."""

  def __init__(self, start_step: int, num_steps: int, tokens_per_step: int):
    self._num_steps = num_steps
    self._tokens = tokens_per_step
    self._last = (start_step, time.perf_counter())

  def line(self, step: int, metrics: dict[str, float]) -> float:
    """Logs a line and returns tokens per second since the last one."""
    now = time.perf_counter()
    rate = (step - self._last[0]) / max(now - self._last[1], 1e-9)
    self._last = (step, now)
    left = int((self._num_steps - step) / max(rate, 1e-9))
    shown = "  ".join(f"{key} {value:.4g}" for key, value in metrics.items())
    _LOG.info(
      "step %d/%d (%.1f %%)  %s  %.1fk tokens/s  %.0f MiB  %d:%02d:%02d left",
      *(step, self._num_steps, 100 * step / self._num_steps, shown),
      *(rate * self._tokens / 1e3, memory_mib()),
      *(left // 3600, left // 60 % 60, left % 60),
    )
    return rate * self._tokens

  def rest(self, step: int) -> None:
    """Leaves the time until now out of the rate (an evaluation, a compilation)."""
    self._last = (step, time.perf_counter())


def memory_mib() -> float:
  """Memory in use on the device, or by the process where the device does not say."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and "bytes_in_use" in stats:
    return stats["bytes_in_use"] / 2**20
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak / (2**20 if sys.platform == "darwin" else 2**10)
