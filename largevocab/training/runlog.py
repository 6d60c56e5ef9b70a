"""Logs of a run: metrics.jsonl, TensorBoard events, and lines on the terminal."""

import json
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
from flax.traverse_util import flatten_dict

from largevocab.atomic import replacing
from largevocab.training.json_files import writing

_LOG = logging.getLogger("largevocab")
_LONGEST = 2**20  # bytes per line


class RunLog:
  """Metrics of one run, as JSON lines and for TensorBoard.

  A run that resumes at step s drops the lines of earlier processes for later steps, so
  that the files look as if a single process had written them. When `write` returns, the
  line has been passed to the operating system. It survives the end of the process, but
  not a crash of the machine. Lines that cannot be read are moved to
  metrics.jsonl.damaged.

  Args:
    workdir: directory of the files.
    start_step: s.
    config: the config, for TensorBoard's page of hyper-parameters.
    measure_anew: whether to drop metrics of held-out data at step s, too.
  """

  def __init__(
    self,
    workdir: str,
    start_step: int,
    config: dict[str, Any],
    measure_anew: bool = False,
  ):
    # Imported here, since the import takes a second.
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import summary_v2
    from tensorboard.summary.writer.record_writer import RecordWriter

    self._event_pb2, self._summary_pb2 = event_pb2, summary_pb2
    self._path = os.path.join(workdir, "metrics.jsonl")
    name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"
    self._events_path = os.path.join(workdir, name)
    old = {(start_step, split) for split in ("valid", "test") if measure_anew}
    with writing(self._path):
      self._written = _keep(
        self._path, lambda step, split: step <= start_step and (step, split) not in old
      )
      # Opening something other than a file, such as a pipe without a reader, must not
      # block.
      flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
      descriptor = os.open(self._path, flags, 0o666)
      self._file = open(descriptor, "a", encoding="utf-8")  # noqa: SIM115
    with writing(self._events_path):
      self._events_file = open(self._events_path, "xb")  # noqa: SIM115
    self._events = RecordWriter(self._events_file)
    self._add_event(0, file_version="brain.Event:2")
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._add_event(start_step + 1, session_log=start)
    self._add_event(0, summary=summary_v2.hparams_pb(flat(config), trial_id=workdir))

  def _add_event(self, step: int, **content: Any) -> None:
    event = self._event_pb2.Event(wall_time=time.time(), step=step, **content)
    with writing(self._events_path):
      self._events.write(event.SerializeToString())
      self._events.flush()

  def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
    """Writes one line, and one TensorBoard scalar per metric; ignores repetitions.

    Steps must not decrease, since lines of earlier steps are not remembered.
    """
    if (step, split) in self._written:
      return
    self._written = {at for at in self._written if at[0] >= step} | {(step, split)}
    with writing(self._path):
      self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
      self._file.flush()
    scalar = self._summary_pb2.Summary.Value
    values = [scalar(tag=f"{split}/{k}", simple_value=v) for k, v in metrics.items()]
    self._add_event(step, summary=self._summary_pb2.Summary(value=values))

  def has(self, step: int, split: str) -> bool:
    """Whether there is a line of this step and split, from this or an earlier process.

    The step must not be before the last one that was written.
    """
    return (step, split) in self._written

  def close(self) -> None:
    with writing(self._path):
      self._file.close()
    with writing(self._events_path):
      self._events_file.close()


class NoLog:
  """A `RunLog` that writes nothing, for processes other than the first."""

  def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
    del step, split, metrics

  def has(self, step: int, split: str) -> bool:
    del step, split
    return False

  def close(self) -> None:
    pass


def _keep(path: str, wanted: Callable[[int, str], bool]) -> set[tuple[int, str]]:
  """Keeps the lines whose step and split are wanted, and the last of duplicate lines.

  Lines that cannot be read are moved to a file next to it.

  Returns:
    Step and split of the lines kept.
  """
  if os.path.exists(path) and not os.path.isfile(path):
    return set()
  kept: dict[tuple[int, str], bytes] = {}
  damaged: dict[int, bytes] = {}
  if os.path.exists(path):
    with open(path, "rb") as file:
      # An endless line is not one of this log, and is read in parts.
      lines = iter(lambda: file.readline(_LONGEST), b"")
      for number, line in enumerate(lines, 1):
        try:
          content = json.loads(line.decode())
          step, split = content["step"], content["split"]
          if type(step) is not int or type(split) is not str:
            raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
          damaged[number] = line
          continue
        if wanted(step, split):
          kept[step, split] = line.rstrip(b"\n") + b"\n"
  if damaged:
    aside = f"{path}.damaged"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(aside, flags, 0o666), "ab") as file:
      file.writelines(line.rstrip(b"\n") + b"\n" for line in damaged.values())
    numbers = ", ".join(str(number) for number in list(damaged)[:5])
    more = ", ..." if len(damaged) > 5 else ""
    _LOG.info(
      "%s: moved lines that are not metrics to %s: line %s%s",
      path,
      aside,
      numbers,
      more,
    )
  with replacing(path) as file:
    file.writelines(kept.values())
  return set(kept)


def flat(config: dict[str, Any]) -> dict[str, Any]:
  """A config with dotted keys, whose values other than numbers become strings.

  >>> flat({"train": {"lr": 1.0, "all": [1]}})
  {'train.lr': 1.0, 'train.all': '[1]'}
  """
  return {
    key: value if isinstance(value, int | float) else str(value)
    for key, value in flatten_dict(config, sep=".").items()
  }


class Progress:
  """Periodic progress lines: steps, speed, remaining time."""

  def __init__(self, start_step: int, num_steps: int, tokens_per_step: int):
    self._num_steps = num_steps
    self._tokens = tokens_per_step
    self._last = (start_step, time.perf_counter())

  def line(self, step: int, metrics: dict[str, float]) -> dict[str, float]:
    """Logs a line; returns `tokens_per_second` since the last line, if it is known."""
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
      *(text, rate / 1e3, peak_mib(), left // 3600, left // 60 % 60, left % 60),
    )
    return {"tokens_per_second": rate}

  def rest(self, step: int) -> None:
    """Excludes the time until now, as of an evaluation, from the rate."""
    self._last = (step, time.perf_counter())


def peak_mib() -> float:
  """The peak memory so far, of the device or else of the process."""
  stats = jax.local_devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in stats:
    return stats["peak_bytes_in_use"] / 2**20
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak / (2**20 if sys.platform == "darwin" else 2**10)
