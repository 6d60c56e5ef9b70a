"""Trivial models of a sweep's data, as rows of its results.

  python -m largevocab.tools.baselines experiments/ptb_sampled/sweep.py \\
    --set data.path=/my/ptb

Counts what the runs of the sweep read, see `largevocab.baselines`, and writes a record
for each model of each data set to results.jsonl beside the sweep file: the metrics that
the runs have, of the same held-out batches. Nothing is trained: it takes seconds.
"""

import json
import pathlib
import re
import sys
from collections.abc import Sequence

from largevocab import baselines, config
from largevocab.errors import UserError
from largevocab.evaluation.evaluate import held_out
from largevocab.tools import entry
from largevocab.tools.reports import of_run
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.launch import PathSetting, check_settings
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training.workdir import describe_machine

NOT_DATA = ("seed", "cache_dir")  # of a data set's settings


def rows(runs: Sequence[Run], settings: Sequence[PathSetting]) -> list[Record]:
  """Records of the trivial models of each data set that the runs read.

  A record has `baseline`: true, the settings of data that the runs override, and the
  name "unigram, counted"; "ptb: unigram, counted" where runs are "ptb: full softmax".
  What is measured is what the first run of a data set measures.

  Args:
    runs: of a sweep.
    settings: where data lie on this machine.

  Raises:
    UserError: data cannot be read.
  """
  first: dict[str, Run] = {}
  for run in runs:
    block = of_run.settings_of(run, settings).data.to_dict()
    content = {key: value for key, value in block.items() if key not in NOT_DATA}
    first.setdefault(json.dumps([_prefix(run), content], sort_keys=True), run)
  return [row for run in first.values() for row in _of_data(run, settings)]


def _of_data(run: Run, settings: Sequence[PathSetting]) -> list[Record]:
  exp = config.build(of_run.settings_of(run, settings))
  data = exp.data.load()
  overrides = {k: v for k, v in run.overrides.items() if k.startswith("data.")}
  found = []
  for method, model in baselines.counted(exp, data).items():
    metrics = {
      f"{split}_{key}": value
      for split, batches in held_out(exp, data).items()
      for key, value in baselines.measure(model, exp, data.counts, batches).items()
    }
    name = f"{_prefix(run)}{method}, counted"
    words = ["baseline", name, *(f"{k}={v}" for k, v in sorted(overrides.items()))]
    found.append(
      {
        "run": re.sub(r"[^\w.=-]+", "-", "-".join(words)),
        **{"name": name, "config": run.config, "overrides": overrides},
        **{"baseline": True, **metrics},
        **records.measured_with(describe_machine()),
      }
    )
  return found


def _prefix(run: Run) -> str:
  """
  >>> _prefix(Run("configs/ptb.py", name="ptb: unigram, m=80"))
  'ptb: '
  """
  data, colon, _ = run.name.rpartition(": ")
  return data + colon


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("sweep", type=pathlib.Path, help="experiments/NAME/sweep.py")
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="[CONFIG:]KEY=PATH",
    help="where data lie on this machine, as for scripts/run_sweep.py",
  )
  parser.add_argument("--data", help="of the sweep's data sets, this one only")
  args = parser.parse_args(argv)
  sweep = sweepfile.load(args.sweep)
  settings = [PathSetting.parse(text) for text in args.set]
  check_settings(settings, sweep.runs)
  chosen = [run for run in sweep.runs if args.data in (None, _prefix(run)[:-2])]
  if not chosen:
    what = "adds no runs" if args.data is None else f"has no data {args.data!r}"
    raise UserError(f"{args.sweep} {what}; choose another")
  found = rows(chosen, settings)
  records.merge(args.sweep.with_name("results.jsonl"), found)
  for row in found:
    print(row["name"])
  return 0


def cli() -> int:
  return entry.run("baselines", main)


if __name__ == "__main__":
  sys.exit(cli())
