"""Times a training step of each method of a sweep, and counts its operations.

  python -m largevocab.tools.step_times experiments/all_methods/sweep.py \\
    --set ptb:data.path=DIR --set enwiki8:data.train=FILE --set xmlc:data.path=DIR

Run this on an idle machine, since the runs of a sweep may have shared theirs. In one
process, each method takes turns with the reference, which is the first method on the
same data. Data are the same if names begin with the same text and ": ". Writes
times.jsonl beside the sweep file, with one record per method, device and kind of pages,
for all seeds:

  ms_per_step          time of a step, including its share of the rebuilds
  operations_per_step  additions and multiplications in matrix products
  ratio                time of a step, without rebuilds, over the reference's
  full_ms              time of a step of the reference
  refresh_ms           time of a rebuild of the head's statistics
  refresh_steps        number of steps of the run after which there is a rebuild
  num_classes          V
  page_faults          whether large arrays were outside huge pages

The seconds and operations of a run are those of a step times the number of steps. Large
arrays are in huge pages, as in the runs of a sweep, unless GLIBC_TUNABLES is set.
"""

import functools
import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from largevocab import config
from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.reports.measure import about_this_run, compare, milliseconds
from largevocab.tools.reports.training_steps import TrainingSteps
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.launch import (
  HUGE_PAGES,
  PathSetting,
  check_settings,
  settings_of,
)
from largevocab.tools.sweeps.sweep_run import Run, data_of
from largevocab.training.settings import Experiment

SECONDS = 3.0  # seconds per method
MOST_BATCHES = 100


def shapes_of(exp: Experiment, data: Any) -> dict[int, float]:
  """{number of a batch: share of batches of its shape}, with one batch for each shape.

  Only the first batches are looked at. Batches of multi-label data differ in shape.
  """
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  number = min(batches.steps_per_epoch, MOST_BATCHES)
  shape = lambda step: str(jax.tree.map(np.shape, batches.batch(step)))
  shapes = [shape(step) for step in range(number)]
  return {shapes.index(one): shapes.count(one) / number for one in set(shapes)}


def by_data(runs: Iterable[Run]) -> dict[str, list[Run]]:
  """One run per method, regardless of seeds, for each data set; see `data_of`."""
  groups: dict[str, dict[str, Run]] = {}
  for run in (run.without_seed() for run in runs):
    groups.setdefault(data_of(run.name), {})[run.id] = run
  return {data: list(methods.values()) for data, methods in groups.items()}


def times_of(
  run: Run, exp: Experiment, data: Any, yardstick: TrainingSteps, seconds: float
) -> records.Record:
  """The record of a method, from one of its runs."""
  own = TrainingSteps(exp, data)
  ms = {"above_ms": 0.0, "below_ms": 0.0}
  operations = 0.0
  shapes = shapes_of(exp, data)
  for number, share in shapes.items():
    figures = compare(
      own.on(number), yardstick.on(number), seconds=seconds / len(shapes), min_turns=3
    )
    ms = {key: total + share * figures[key] for key, total in ms.items()}
    operations += share * own.operations(number)
  own.check_finite(run.name)
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  epoch = exp.train.steps_per_epoch(batches.steps_per_epoch)
  num_steps = exp.train.num_steps(epoch)
  rebuilds = [n for n in range(1, num_steps + 1) if exp.head.refreshes(n)]
  refresh_ms = milliseconds(own.refresh) if rebuilds else 0.0
  return {
    **{"run": run.id, "name": run.name, "config": run.config},
    "overrides": run.overrides,
    "ms_per_step": ms["above_ms"] + refresh_ms * len(rebuilds) / num_steps,
    "operations_per_step": operations,
    "ratio": ms["above_ms"] / ms["below_ms"],
    "full_ms": ms["below_ms"],
    "refresh_ms": refresh_ms,
    "refresh_steps": rebuilds,
    "num_classes": data.counts.num_classes,
    **about_this_run(),
  }


def _keep(path: pathlib.Path, record: records.Record) -> None:
  """Writes a record, which replaces one of the same run, device and kind of pages."""
  id, where = record["run"], ("device", "page_faults")
  of = lambda line: (line["run"].partition(", ")[0], *map(line.get, where))
  with records.changed(path) as by_run:
    same = [run for run, line in by_run.items() if of(line) == of(record)]
    other = f"{id}, {record['device']}, page_faults={record['page_faults']}"
    run = same[0] if same else other if id in by_run else id
    by_run[run] = record | {"run": run}


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("sweep", type=pathlib.Path, help="experiments/NAME/sweep.py")
  parser.add_argument("--set", action="append", default=[], metavar="CONFIG:KEY=PATH")
  parser.add_argument("--data", help="only methods on this data")
  parser.add_argument("--names", nargs="+", default=[], help="only these methods")
  parser.add_argument("--seconds", type=float, default=SECONDS, help="per method")
  args = parser.parse_args(argv)
  settings = [PathSetting.parse(text) for text in args.set]
  sweep_runs = sweepfile.load(args.sweep).runs
  check_settings(settings, sweep_runs)
  groups = by_data(sweep_runs)
  if args.data is not None and args.data not in groups:
    raise UserError(f"--data={args.data}: use one of {', '.join(groups)}")
  known = {run.name for group in groups.values() for run in group}
  if unknown := sorted(set(args.names) - known):
    raise UserError(
      f"--names: {args.sweep} has no {unknown[0]!r}; use some of "
      f"{', '.join(sorted(known))}"
    )
  for name, group in groups.items():
    wanted = [run for run in group if not args.names or run.name in args.names]
    if args.data not in (None, name) or not wanted:
      continue
    loaded = functools.cache(lambda data: data.load())
    exp = config.build(settings_of(group[0], settings))
    yardstick = TrainingSteps(exp, loaded(exp.data))
    for run in wanted:
      exp = config.build(settings_of(run, settings))
      record = times_of(run, exp, loaded(exp.data), yardstick, args.seconds)
      yardstick.check_finite(group[0].name)
      shown = f"{record['ms_per_step']:.4g} ms, {record['ratio']:.3g} of the first"
      print(f"{record['name']}: {shown}", flush=True)
      _keep(args.sweep.with_name("times.jsonl"), record)
  return 0


def cli() -> int:
  if not os.environ.keys() & HUGE_PAGES:  # it is too late to set them for this process
    os.execve(
      sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | HUGE_PAGES
    )
  return entry.run("step_times", main)


if __name__ == "__main__":
  sys.exit(cli())
