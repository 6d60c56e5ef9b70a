"""What a run tells: metrics.jsonl, TensorBoard events, lines on the terminal."""

import json
import logging
import os
import resource
import socket
import sys
import time
from typing import Any

import jax

from largevocab.workdir import writing

_LOG = logging.getLogger("largevocab")


class RunLog:
  """Metrics of one run, as JSON lines and for TensorBoard.

  A run that goes on from step s drops what an earlier process wrote for later steps, so
  that the files read as if there had been one process. A line has been handed to the
  operating system when `write` returns: it outlives the process, also one that is
  killed, but not a crash of the machine.
  """

  def __init__(self, workdir: str, start_step: int, config: dict[str, Any]):
    # Imported here: this takes a second.
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import summary_v2
    from tensorboard.summary.writer.record_writer import RecordWriter

    self._event_pb2, self._summary_pb2 = event_pb2, summary_pb2
    self._path = os.path.join(workdir, "metrics.jsonl")
    name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"
    self._events_path = os.path.join(workdir, name)
    with writing(workdir):
      self._written = _drop_after(self._path, start_step)
      self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115
      self._events_file = open(self._events_path, "wb")  # noqa: SIM115
    self._events = RecordWriter(self._events_file)
    self._add_event(0, file_version="brain.Event:2")
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._add_event(start_step + 1, session_log=start)
    self._add_event(0, summary=summary_v2.hparams_pb(_flat(config), trial_id=workdir))

  def _add_event(self, step: int, **content: Any) -> None:
    event = self._event_pb2.Event(wall_time=time.time(), step=step, **content)
    with writing(self._events_path):
      self._events.write(event.SerializeToString())
      self._events.flush()

  def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
    """One line, and one TensorBoard scalar per metric; a second time nothing."""
    if (step, split) in self._written:
      return
    self._written.add((step, split))
    with writing(self._path):
      self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
      self._file.flush()
    scalar = self._summary_pb2.Summary.Value
    values = [scalar(tag=f"{split}/{k}", simple_value=v) for k, v in metrics.items()]
    self._add_event(step, summary=self._summary_pb2.Summary(value=values))

  def has(self, step: int, split: str) -> bool:
    """Whether there is such a line, of this process or of one before."""
    return (step, split) in self._written

  def close(self) -> None:
    with writing(self._path):
      self._file.close()
    with writing(self._events_path):
      self._events_file.close()


def _drop_after(path: str, last_step: int) -> set[tuple[int, str]]:
  """Keeps the lines of steps up to last_step; a torn last line goes too.

  Returns:
    Step and split of the lines kept.
  """
  if not os.path.isfile(path):
    return set()
  kept: dict[tuple[int, str], str] = {}
  with open(path, encoding="utf-8", errors="replace") as file:
    for line in file:
      try:
        content = json.loads(line)
        at = content["step"], content["split"]
      except (ValueError, KeyError, TypeError):
        break
      if line.endswith("\n") and at[0] <= last_step:
        kept[at] = line
  with open(f"{path}.tmp", "w", encoding="utf-8") as file:
    file.writelines(kept.values())
  os.replace(f"{path}.tmp", path)
  return set(kept)


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
  """{'train.lr': 1.0} from {'train': {'lr': 1.0}}, with texts for all but numbers."""
  flat: dict[str, Any] = {}
  for key, value in config.items():
    if isinstance(value, dict):
      flat.update(_flat(value, f"{prefix}{key}."))
    else:
      flat[prefix + key] = value if isinstance(value, int | float) else str(value)
  return flat


class Progress:
  """A line now and then: how far, how fast, how long still."""

  def __init__(self, start_step: int, num_steps: int, tokens_per_step: int):
    self._num_steps = num_steps
    self._tokens = tokens_per_step
    self._last = (start_step, time.perf_counter())

  def line(self, step: int, metrics: dict[str, float]) -> dict[str, float]:
    """Logs a line; returns tokens_per_second since the last one, if that is known."""
    now = time.perf_counter()
    steps, seconds = step - self._last[0], now - self._last[1]
    self._last = (step, now)
    shown = "  ".join(f"{key} {value:.4g}" for key, value in metrics.items())
    share = 100 * step / self._num_steps
    text = f"step {step}/{self._num_steps} ({share:.1f} %)  {shown}"
    if not steps:
      _LOG.info(text)
      return {}
    left = int((self._num_steps - step) * seconds / steps)
    rate = steps * self._tokens / max(seconds, 1e-9)
    _LOG.info(
      "%s  %.1fk tokens/s  %.0f MiB  %d:%02d:%02d left",
      *(text, rate / 1e3, memory_mib(), left // 3600, left // 60 % 60, left % 60),
    )
    return {"tokens_per_second": rate}

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
