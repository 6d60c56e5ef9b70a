"""How long a training step of each run of this sweep takes, beside the full softmax's.

  python experiments/all_methods/times.py --set ptb:data.path=DIR \\
    --set enwiki8:data.train=FILE --set xmlc:data.path=DIR

Runs share a machine with others; this is for an idle one. Method and full softmax take
turns in one process. Writes times.jsonl; what sweep.py makes of it are the times of the
comparison. A record has

  ratio          the time of a step over that of one with the full softmax
  full_ms        the latter
  refresh_ms     the time of a rebuild of the head's statistics
  refresh_steps  the steps of the run after which there is one
  num_classes    V
"""

import argparse
import itertools
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from largevocab import command_line, config
from largevocab.errors import UserError
from largevocab.experiment import Experiment

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "scripts"))

import records  # noqa: E402
import sweepfile  # noqa: E402
from bench import about_this_run  # noqa: E402
from bench_adaptive import milliseconds  # noqa: E402
from launch import REPOSITORY, PathSetting, check_settings  # noqa: E402
from measure import compare  # noqa: E402
from training_steps import TrainingSteps  # noqa: E402

SECONDS = 3.0  # for each method
MOST_BATCHES = 100


def experiment(run: sweepfile.Run, settings: list[PathSetting]) -> Experiment:
  """The run's, with the data of this machine."""
  _, *flags = run.flags()
  flags += [each.flag for each in settings if each.is_for(run)]
  block = command_line.load(str(REPOSITORY / run.config))
  command_line.override(block, ["times", *flags], known=[])
  return config.build(block)


def shapes_of(exp: Experiment, data: Any) -> dict[int, float]:
  """Which of the first batches has a shape of its own, by number; and the share of
  the batches that have it. Of labels there are more and less."""
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  number = min(batches.steps_per_epoch, MOST_BATCHES)
  shape = lambda step: str(jax.tree.map(np.shape, batches.batch(step)))
  shapes = [shape(step) for step in range(number)]
  return {shapes.index(one): shapes.count(one) / number for one in set(shapes)}


def times_of(
  run: sweepfile.Run, exp: Experiment, data: Any, full: TrainingSteps
) -> records.Record:
  """The record of a run."""
  own = TrainingSteps(exp, data)
  ms = {"above_ms": 0.0, "below_ms": 0.0}
  shapes = shapes_of(exp, data)
  for number, share in shapes.items():
    seconds = SECONDS / len(shapes)
    figures = compare(own.on(number), full.on(number), seconds=seconds, min_turns=3)
    ms = {key: total + share * figures[key] for key, total in ms.items()}
  rebuilds = [n for n in range(1, exp.train.max_steps + 1) if exp.head.refreshes(n)]
  return {
    **{"run": run.id, "name": run.name, "config": run.config},
    **{"overrides": run.overrides, "ratio": ms["above_ms"] / ms["below_ms"]},
    "full_ms": ms["below_ms"],
    "refresh_ms": milliseconds(own.refresh) if rebuilds else 0.0,
    "refresh_steps": rebuilds,
    "num_classes": data.counts.num_classes,
    **about_this_run(),
  }


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--set", action="append", default=[], metavar="CONFIG:KEY=PATH")
  parser.add_argument("--data", help="one of the problems, instead of all")
  parser.add_argument("--output", type=pathlib.Path, default=HERE / "times.jsonl")
  args = parser.parse_args(argv)
  runs = sweepfile.load(HERE / "sweep.py").runs
  settings = [PathSetting.parse(text) for text in args.set]
  check_settings(settings, runs)
  data_of = lambda run: run.name.partition(": ")[0]
  names = list(dict.fromkeys(map(data_of, runs)))
  if args.data and args.data not in names:
    raise UserError(f"--data={args.data}: use one of {', '.join(names)}")
  for name, group in itertools.groupby(runs, data_of):
    if args.data not in (None, name):
      continue
    # The first is the full softmax.
    own = [(run, experiment(run, settings)) for run in group]
    data = own[0][1].data.load()
    full = TrainingSteps(own[0][1], data)
    for run, exp in own:
      record = times_of(run, exp, data, full)
      print(record["name"], record["ratio"], record["refresh_ms"], flush=True)
      records.merge(args.output, [record])


if __name__ == "__main__":
  try:
    main()
  except UserError as error:
    sys.exit(f"times: {error}")
