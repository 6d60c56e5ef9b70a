"""Adds count-based baselines to the results of a sweep.

  python -m largevocab.tools.baselines experiments/ptb_sampled/sweep.py \\
    --set data.path=DIR

Fits the models of `largevocab.baselines` to the training data of the runs, evaluates
them with the runs' metrics on the same held-out batches, and writes a record for each
model and data set to results.jsonl beside the sweep file. If the distribution of the
data is known, the Bayes classifier is evaluated, too. All this takes seconds or
minutes, since nothing is trained.
"""

import json
import math
import pathlib
import re
import sys
from collections.abc import Sequence

from largevocab import baselines, config
from largevocab.errors import UserError
from largevocab.evaluation.evaluate import held_out
from largevocab.tools import entry
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.launch import PathSetting, check_settings, settings_of
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import Run, data_of


def rows(runs: Sequence[Run], settings: Sequence[PathSetting]) -> list[Record]:
  """Records of the baselines for each data set of the runs, and each of its seeds.

  The seed of synthetic data determines all of these data.

  A record has `baseline`: true, the data settings that the runs override, and a name
  such as "unigram, counted", or "ptb: unigram, counted" if a run is named "ptb: full
  softmax". The record of the Bayes classifier also has `bound`: true. Metrics are those
  of the first run on a data set.

  Args:
    runs: runs of a sweep.
    settings: paths of data on this machine.

  Raises:
    UserError: the data cannot be read.
  """
  first: dict[str, Run] = {}
  for run in runs:
    block = settings_of(run, settings).data.to_dict()
    content = {key: value for key, value in block.items() if key != "cache_dir"}
    first.setdefault(json.dumps([_prefix(run), content], sort_keys=True), run)
  return [row for run in first.values() for row in _of_data(run, settings)]


def _of_data(run: Run, settings: Sequence[PathSetting]) -> list[Record]:
  exp = config.build(settings_of(run, settings))
  data = exp.data.load()
  overrides = {k: v for k, v in run.overrides.items() if k.startswith("data.")}
  machine = records.measured_here()
  counted = baselines.counted(exp, data)
  metrics: dict[str, dict[str, float]] = {}
  for split, batches in held_out(exp, data).items():
    for method, model in (counted | baselines.known(data, split)).items():
      measured = baselines.measure(model, exp, data.counts, batches)
      own = {f"{split}_{key}": value for key, value in measured.items()}
      metrics[method] = metrics.get(method, {}) | own
  found = []
  for method, own in metrics.items():
    is_counted = method in counted
    name = f"{_prefix(run)}{method}{', counted' * is_counted}"
    words = ["baseline", name, *(f"{k}={v}" for k, v in sorted(overrides.items()))]
    found.append(
      {
        "run": re.sub(r"[^\w.=-]+", "-", "-".join(words)),
        **{"name": name, "config": run.config, "overrides": overrides},
        **{"baseline": True, **({} if is_counted else {"bound": True}), **own},
        **machine,
      }
    )
  return found


def check_same(path: pathlib.Path, found: Sequence[Record]) -> None:
  """Checks that baselines which a file already has are the same, up to rounding.

  Raises:
    UserError: a baseline has another metric, since the data differ from those of the
      rows, or the model is a different one.
  """
  old = (
    {row["run"]: row for row in records.load(path, ["run"])} if path.exists() else {}
  )
  for row in found:
    was = old.get(row["run"], {})
    for key in sorted(row.keys() & was.keys() - {"num_devices"}):
      pair = row[key], was[key]
      if pair[0] != pair[0] and pair[1] != pair[1]:  # both are NaN
        continue
      if all(map(records.is_number, pair)) and not math.isclose(*pair, rel_tol=1e-5):
        raise UserError(
          f"{path}: {row['name']!r} has {key} = {was[key]:.6g}, but on these data "
          f"{row[key]:.6g}; give the data of the other rows, or remove this row"
        )


def _prefix(run: Run) -> str:
  """The part of a run's name that names its data.

  >>> _prefix(Run("configs/ptb.py", name="ptb: unigram, m=80"))
  'ptb: '
  """
  data = data_of(run.name)
  return f"{data}: " if data else ""


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("sweep", type=pathlib.Path, help="experiments/NAME/sweep.py")
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="[CONFIG:]KEY=PATH",
    help="path of data on this machine, as for scripts/run_sweep.py",
  )
  parser.add_argument("--data", help="only this data set of the sweep")
  args = parser.parse_args(argv)
  sweep = sweepfile.load(args.sweep)
  settings = [PathSetting.parse(text) for text in args.set]
  check_settings(settings, sweep.runs)
  chosen = [run for run in sweep.runs if args.data in (None, data_of(run.name))]
  if not chosen:
    what = "adds no runs" if args.data is None else f"has no data {args.data!r}"
    raise UserError(f"{args.sweep} {what}; choose another")
  found = rows(chosen, settings)
  path = args.sweep.with_name("results.jsonl")
  check_same(path, found)
  records.merge(path, found)
  for row in found:
    print(row["name"])
  return 0


def cli() -> int:
  return entry.run("baselines", main)


if __name__ == "__main__":
  sys.exit(cli())
