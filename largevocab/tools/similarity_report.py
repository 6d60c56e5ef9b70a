"""Compares the word similarity of finished runs by a paired bootstrap.

  python -m largevocab.tools.similarity_report full=runs/full-{0,1,2} \\
    taylor=runs/taylor-{0,1,2} --pairs SimLex-999.txt wordsim353_combined.csv

Each argument is METHOD=WORKDIR. Runs of the same method differ only in the seed. All
methods are compared with the first. For each file of pairs, for the rows of inputs and
for the rows of classes, reports:

  rho         Spearman's correlation of cosines with human scores, mean over the runs
  difference  rho minus that of the first method

Both have a 95 % interval, `_low` to `_high`. Word pairs are resampled for all methods
together, and runs are resampled for each method separately (`tables/bootstrap.py`).
Only pairs with both words in the vocabulary count. The vocabulary must be the same for
all runs. Rows that some run does not have are left out; with tied embeddings, these are
the rows of inputs.
"""

import argparse
import pathlib
import sys

import numpy as np

from largevocab import config
from largevocab.errors import UserError
from largevocab.evaluation.similarity import PairCosines, make_pair_cosines
from largevocab.tools import entry
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import bootstrap, results_table
from largevocab.training.averages import for_evaluation
from largevocab.training.state import restore

COLUMNS = [
  *("pairs", "runs", "rho", "rho_low", "rho_high"),
  *("difference", "difference_low", "difference_high"),
]


def by_method(arguments: list[str]) -> dict[str, list[str]]:
  """The workdirs of each method.

  >>> by_method(["full=runs/0", "full=runs/1", "nce=runs/seed=2"])
  {'full': ['runs/0', 'runs/1'], 'nce': ['runs/seed=2']}

  Raises:
    UserError: an argument has another form, or a workdir is given twice.
  """
  methods: dict[str, list[str]] = {}
  seen = set()
  for text in arguments:
    method, _, workdir = text.partition("=")
    if not method or not workdir:
      raise UserError(f"{text!r}: give METHOD=WORKDIR")
    path = pathlib.Path(workdir).absolute()
    if path in seen:
      raise UserError(f"{text}: this workdir is given twice; give each run once")
    seen.add(path)
    methods.setdefault(method, []).append(workdir)
  return methods


def in_run(
  workdir: str, patterns: list[str], checkpoint: str
) -> tuple[list[str], dict[str, PairCosines]]:
  """Words of a run, and cosines of pairs in its checkpoint, by file and table.

  Raises:
    UserError: the run has no checkpoint or no words, or its words include none of a
      file's pairs.
  """
  exp = config.build(config.of_workdir(workdir))
  data, state = restore(exp, workdir, checkpoint)
  cosines_of = make_pair_cosines(exp, data, patterns, "--pairs")
  cosines = cosines_of(for_evaluation(exp.optimizer, state))
  return list(data.vocabulary.words), cosines


def by_run(args: argparse.Namespace) -> dict[str, list[dict[str, PairCosines]]]:
  """Cosines in the runs of each method.

  Raises:
    UserError: the vocabularies of the runs differ; or as in `in_run`.
  """
  found: dict[str, list[dict[str, PairCosines]]] = {}
  first: tuple[str, list[str]] | None = None
  for method, workdirs in by_method(args.runs).items():
    for workdir in workdirs:
      words, cosines = in_run(workdir, args.pairs, args.checkpoint)
      first = first or (workdir, words)
      if words != first[1]:
        raise UserError(
          f"{workdir} and {first[0]} have different vocabularies: compare runs on the "
          "same data"
        )
      found.setdefault(method, []).append(cosines)
  return found


def report(args: argparse.Namespace) -> list[Record]:
  """A record for each file, table and method."""
  found = by_run(args)
  every = [run for runs in found.values() for run in runs]
  about = {"checkpoint": args.checkpoint, "resamples": args.resamples}
  machine = records.measured_here()
  rows = []
  for name, (_, score_R) in every[0].items():
    if not all(name in run for run in every):
      continue
    cosines = [
      np.stack([run[name].cosine_R for run in runs]) for runs in found.values()
    ]
    resampled = bootstrap.paired(cosines, score_R, args.resamples)
    for m, (method, runs) in enumerate(found.items()):
      title = f"{name}: {method}"
      sizes = {"pairs": len(score_R), "runs": len(runs)}
      row = records.report_row(title, sizes, about)
      row |= _columns("rho", resampled.of(m))
      row |= _columns("difference", resampled.difference(m, 0)) if m else {}
      rows.append(row | machine)
  return rows


def _columns(name: str, found: bootstrap.Interval) -> dict[str, float]:
  """
  >>> _columns("rho", bootstrap.Interval(0.2, 0.1, 0.3))
  {'rho': 0.2, 'rho_low': 0.1, 'rho_high': 0.3}
  """
  return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("runs", nargs="+", metavar="METHOD=WORKDIR")
  add("--pairs", nargs="+", required=True, help="files of word pairs, or patterns")
  add("--checkpoint", choices=["latest", "best"], default="latest")
  add("--resamples", type=int, default=10_000, help="number of bootstrap resamples")
  add("--output", type=pathlib.Path, help="records replace those of the same names")
  args = parser.parse_args(argv)
  entry.check_counts(args, "resamples")
  entry.check_output(args.output)
  rows = report(args)
  print(results_table.table(rows, COLUMNS))
  if args.output:
    records.merge(args.output, rows)
  return 0


def cli() -> int:
  return entry.run("similarity_report", main)


if __name__ == "__main__":
  sys.exit(cli())
