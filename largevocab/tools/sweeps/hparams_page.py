"""Writes the layout of TensorBoard's HPARAMS page for a sweep.

The page orders hyper-parameters by `differs`, then by name. It shows the first
hyper-parameters and the first metrics. It uses the first description that it finds. To
have exactly one description, the sweep writes it into its own directory, and runs write
none.
"""

import math
import pathlib
import time
from typing import Any

from largevocab import atomic
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training.json_files import read_json
from largevocab.training.runlog import flat

FILE = "events.out.tfevents.0.hparams"
FIRST = ("head.name", "head.sampler.name")
METRICS = {
  "test/ppl": "test perplexity",
  "test/p@1": "test precision of the first",
  "test/seconds": "seconds of training",
  "valid/ppl": "validation perplexity",
  "test/nll": "test loss, nats",
}


def write(root: pathlib.Path, runs: list[Run]) -> None:
  """Describes the runs with a config.json, if there are any.

  The head, the sampler and the overrides with different values come first.
  """
  from tensorboard.compat.proto import event_pb2
  from tensorboard.plugins.hparams import plugin_data_pb2, summary_v2
  from tensorboard.summary.writer.record_writer import RecordWriter

  paths = [root / run.id / "config.json" for run in runs]
  values: dict[str, list[Any]] = {}
  for config in (read_json(str(path)) for path in paths if path.exists()):
    for key, value in flat(config).items():
      values.setdefault(key, []).append(value)
  if not values:
    return
  is_set = {key for run in runs for key in run.overrides}
  summary = summary_v2.hparams_config_pb(
    [summary_v2.HParam(key, _domain(of_key)) for key, of_key in values.items()],
    [summary_v2.Metric(tag, display_name=name) for tag, name in METRICS.items()],
  )
  plugin = summary.value[0].metadata.plugin_data
  data = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)  # pyrefly: ignore
  for info in data.experiment.hparam_infos:
    varies = len(set(map(repr, values[info.name]))) > 1
    info.differs = info.name in FIRST or (varies and info.name in is_set)
  plugin.content = data.SerializeToString()
  with atomic.replacing(root / FILE) as file:
    events, now = RecordWriter(file), time.time()
    for content in ({"file_version": "brain.Event:2"}, {"summary": summary}):
      event = event_pb2.Event(wall_time=now, **content)
      events.write(event.SerializeToString())


def _domain(values: list[Any]) -> Any:
  """The domain of values of one type, or else None, which TensorBoard accepts."""
  from tensorboard.plugins.hparams import summary_v2

  kinds = {type(value) for value in values}
  if kinds == {bool} or kinds == {str}:
    return summary_v2.Discrete(sorted(set(values)))
  if kinds <= {int, float} and all(math.isfinite(value) for value in values):
    return summary_v2.RealInterval(float(min(values)), float(max(values)))
  return None
