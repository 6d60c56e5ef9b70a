"""Reports how many negatives each proposal distribution needs.

It needs enough to train to nearly the loss of the exact softmax. The report also says
how many times fewer these are than for another distribution.

  python -m largevocab.tools.samples_report experiments/bias_tags/results.jsonl \\
    --reference "full softmax" quadratic="full absolute softmax" \\
    quartic="full absolute softmax" --to uniform

Reads finished runs of `sampled/NAME` that differ only in `head.num_samples`, the seed
and the rate, and the runs of the reference. NAME=METHOD gives a sampler its own
reference. If a file has other runs of a sampler, `--rows` chooses runs by name. For
each seed that all runs have, the gap is the loss minus that of the reference, by
`--metric` and in its unit. Between two numbers of negatives, the gap is linear in log
m. The number of a seed is the m from which on no gap is above `--gap`.

  negatives     geometric mean of these numbers over the seeds
  times_fewer   negatives of --to divided by these negatives, seed by seed

Both have a 95 % interval, `_low` to `_high`, by Student's t over the logarithms. If the
gap of a seed is small for every m, or is still large for the largest m, there is a
bound in place of the mean: `at_most` or `more_than`, and `times_fewer_at_least` for the
quotient.
"""

import argparse
import math
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import is_seed
from largevocab.tools.tables import results_table
from largevocab.tools.tables.markdown import number
from largevocab.tools.tables.seeds import seed_of
from largevocab.tools.tables.significance import of_pairs

COLUMNS = [
  *("seeds", "negatives", "negatives_low", "negatives_high", "at_most", "more_than"),
  *("times_fewer", "times_fewer_low", "times_fewer_high", "times_fewer_at_least"),
]
_SAMPLED = re.compile(r"[:,=]sampled/(\w+)")
_OF_ONE = re.compile(r"(\w+)=(.+)")


class Needed(NamedTuple):
  """A number of negatives, or bounds on it.

  Attributes:
    low, high: bounds on the number: equal if the number is known, and 0 or inf if there
      is no bound.
  """

  low: float
  high: float

  @property
  def is_known(self) -> bool:
    return self.low == self.high


def needed(gaps: Mapping[int, float], most: float) -> Needed:
  """The m from which on no gap is above `most`.

  Args:
    gaps: gaps by m.
    most: largest gap that is allowed.

  >>> round(needed({10: 0.3, 1000: 0.1, 9000: 0.0}, 0.2).low, 1)
  100.0
  >>> needed({10: 0.1, 100: 0.0}, 0.2), needed({10: 0.1, 100: 0.3}, 0.2)
  (Needed(low=0.0, high=10.0), Needed(low=100.0, high=inf))
  """
  numbers = sorted(gaps)
  above = [i for i, m in enumerate(numbers) if not gaps[m] <= most]
  if not above:
    return Needed(0.0, float(numbers[0]))
  if above[-1] == len(numbers) - 1:
    return Needed(float(numbers[-1]), math.inf)
  left, right = numbers[above[-1]], numbers[above[-1] + 1]
  if not math.isfinite(gaps[left]):
    return Needed(float(left), float(right))
  share = (gaps[left] - most) / (gaps[left] - gaps[right])
  found = left * (right / left) ** share
  return Needed(found, found)


def mean(values: list[float]) -> tuple[float, float, float]:
  """Geometric mean, and its 95 % interval; NaN with one value.

  >>> [round(end, 1) for end in mean([2.0, 2.0, 16.0])]
  [4.0, 0.2, 78.9]
  """
  difference = of_pairs([math.log(value) for value in values])
  half = math.nan if difference.half is None else difference.half
  ends = (difference.mean, difference.mean - half, difference.mean + half)
  return (math.exp(ends[0]), math.exp(ends[1]), math.exp(ends[2]))


def samplers(rows: list[Record], metric: str) -> dict[str, dict[int, dict[str, float]]]:
  """The metric of runs with a sampler, by the sampler's name, m and seed.

  Raises:
    UserError: two runs of a sampler differ in more than m, the seed and the rate.
  """
  found: dict[str, dict[int, dict[str, float]]] = {}
  first: dict[str, Record] = {}
  for row in rows:
    name, m = _SAMPLED.search(row["config"]), row["overrides"].get("head.num_samples")
    if not (name and m):
      continue
    other = first.setdefault(name[1], row)
    if _settings(row) != _settings(other):
      raise UserError(
        f"{other['name']!r} and {row['name']!r} both have {name[1]}, but differ in "
        "more than head.num_samples, train.lr and the seed: choose by --rows"
      )
    of_seeds = found.setdefault(name[1], {}).setdefault(m, {})
    _add(of_seeds, row, number(row, metric) if metric in row else math.inf)
  return found


def _add(of_seeds: dict[str, float], row: Record, value: float) -> None:
  """Adds the value of a seed that has no value yet."""
  seed = seed_of(row)
  if seed in of_seeds:
    raise UserError(
      f"{row['name']!r} is not the only run with this number of negatives and seed, "
      "perhaps at another rate: choose one by --rows, or remove the others"
    )
  of_seeds[seed] = value


def _settings(row: Record) -> tuple[str, Record]:
  """The settings that runs of one sampler have in common."""
  free = lambda key: key in ("head.num_samples", "train.lr") or is_seed(key)
  return row["config"], {k: v for k, v in row["overrides"].items() if not free(k)}


def report(args: argparse.Namespace) -> list[Record]:
  """A record for each sampler.

  Raises:
    UserError: an argument is out of bounds; or a reference has no runs, or is for a
      sampler without runs; or a sampler has no seed in common with its reference; or
      there are no runs of `--to`.
  """
  if not records.is_loss(args.metric):
    raise UserError(f"--metric={args.metric}: must be a loss, such as test_nll")
  if not args.gap > 0:
    raise UserError(f"--gap={args.gap}: must be positive")
  rows = records.load(args.results)
  references = of_arguments(args.reference)
  exact: dict[str, dict[str, float]] = {}
  for method in references.values():
    exact[method] = {}
    for row in rows:
      if row["name"] == method and args.metric in row:
        _add(exact[method], row, number(row, args.metric))
  if missing := [method for method, runs in exact.items() if not runs]:
    raise UserError(f"{args.results}: no run of {missing[0]!r} has {args.metric!r}")
  by_sampler = {}
  found = samplers(records.only(rows, args.rows, "--rows"), args.metric)
  for name in (args.to, *filter(None, references)):
    if name not in found:
      has = ", ".join(found) or "none"
      raise UserError(f"{args.results}: no runs of {name!r} among the samplers: {has}")
  for sampler, of_m in found.items():
    method = references.get(sampler, references[""])
    shared = exact[method].keys() & set.intersection(*map(set, of_m.values()))
    if not shared:
      raise UserError(
        f"{args.results}: {sampler} has no seed for which all of its runs, m = "
        f"{sorted(of_m)}, and {method!r} have ended"
      )
    by_sampler[sampler] = {
      seed: needed(
        {m: of_seeds[seed] - exact[method][seed] for m, of_seeds in of_m.items()},
        args.gap,
      )
      for seed in sorted(shared)
    }
  machine = records.measured_here()
  return [
    records.report_row(
      f"{args.title}: {sampler}",
      {"metric": args.metric, "gap": args.gap},
      {"reference": references.get(sampler, references[""])},
      {"to": args.to, "seeds": len(found)},
      _number(found),
      _times_fewer(found, by_sampler[args.to], sampler != args.to),
      machine,
    )
    for sampler, found in by_sampler.items()
  ]


def _number(found: dict[str, Needed]) -> Record:
  if all(each.is_known for each in found.values()):
    return _interval("negatives", [each.low for each in found.values()])
  low = min(each.low for each in found.values())
  high = max(each.high for each in found.values())
  return ({"more_than": low} if low else {}) | (
    {"at_most": high} if math.isfinite(high) else {}
  )


def _times_fewer(
  own: dict[str, Needed], to: dict[str, Needed], is_other: bool
) -> Record:
  seeds = own.keys() & to.keys()
  if not (is_other and seeds):
    return {}
  if all(own[seed].is_known and to[seed].is_known for seed in seeds):
    ratios = [to[seed].low / own[seed].low for seed in sorted(seeds)]
    return _interval("times_fewer", ratios)
  least = min(to[seed].low / own[seed].high for seed in seeds)
  return {"times_fewer_at_least": least} if least else {}


def _interval(name: str, values: list[float]) -> Record:
  middle, low, high = mean(values)
  ends = {} if math.isnan(low) else {f"{name}_low": low, f"{name}_high": high}
  return {name: middle, **ends}


def of_arguments(texts: list[str]) -> dict[str, str]:
  """The reference of each sampler, and under "" that of all other samplers.

  >>> of_arguments(["full softmax, lr=20", "quadratic=absolute, lr=20"])
  {'': 'full softmax, lr=20', 'quadratic': 'absolute, lr=20'}

  Raises:
    UserError: no reference, or more than one, is for all other samplers.
  """
  matches = {text: _OF_ONE.fullmatch(text) for text in texts}
  found = {
    match[1] if match else "": match[2] if match else text
    for text, match in matches.items()
  }
  if "" not in found or len(found) < len(texts):
    raise UserError(
      "--reference: give METHOD once, and NAME=METHOD for samplers with their own"
    )
  return found


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("results", type=pathlib.Path, help="results.jsonl")
  add("--reference", nargs="+", required=True, metavar="METHOD")
  add("--rows", default="", help="regular expression of the names of sampled rows")
  add("--to", default="uniform", help="sampler to compare with; default: uniform")
  add("--metric", default="test_nll", help="a loss; default: test_nll")
  add("--gap", type=float, default=0.02, help="largest gap; default: 0.02")
  add("--title", default="", help="title of the rows; default: the results' directory")
  add("--output", type=pathlib.Path, help="records replace those of the same names")
  args = parser.parse_args(argv)
  entry.check_output(args.output)
  args.title = args.title or args.results.resolve().parent.name
  rows = report(args)
  print(results_table.table(rows, COLUMNS))
  if args.output:
    records.merge(args.output, rows)
  return 0


def cli() -> int:
  return entry.run("samples_report", main)


if __name__ == "__main__":
  sys.exit(cli())
