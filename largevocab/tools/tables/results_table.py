"""The table of an experiment's results, with columns on their uncertainty.

Baselines come first. Runs that differ only in the seed form one row: mean ± standard
deviation. docs/protocol.md explains the columns.
"""

import re
import statistics
from collections.abc import Collection, Sequence
from typing import NamedTuple

from largevocab.errors import UserError
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import data_of, is_seed
from largevocab.tools.sweeps.sweepfile import Comparison
from largevocab.tools.tables import axes, convergence, significance
from largevocab.tools.tables.markdown import (
  NOTHING,
  number,
  numbers,
  of_columns,
  short,
  summary,
)
from largevocab.tools.tables.seeds import groups
from largevocab.tools.tables.significance import is_better, is_perplexity

Paper = dict[str, dict[str, float]]
NO_BETTER = " †"
AT_EDGE = " ‡"
ONE_SEED = (
  "**One seed a row**: nothing here tells a difference of a few per cent from chance."
)
_OF_RUNS = re.compile("(train|valid|test)_")  # other metrics may belong to a row


class Row(NamedTuple):
  """A row of the table: runs that differ only in the seed, or a baseline."""

  label: str
  members: list[Record]

  @property
  def is_baseline(self) -> bool:
    return bool(self.members[0].get("baseline"))

  @property
  def is_bound(self) -> bool:
    """Whether this is a Bayes classifier, which nothing can beat."""
    return bool(self.members[0].get("bound"))

  @property
  def title(self) -> str:
    """The label, with a note on baselines and diverged runs."""
    steps = [f"{row['diverged']:,}" for row in self.members if "diverged" in row]
    diverged = f" (diverged at step {', '.join(steps)})" if steps else ""
    return self.label + " (baseline)" * self.is_baseline + diverged

  @property
  def ended(self) -> list[Record]:
    """The runs that did not diverge and therefore have metrics."""
    return [member for member in self.members if "diverged" not in member]

  @property
  def has_seed(self) -> bool:
    """Whether this is a row of training runs, or of reports on several seeds of them.

    Other measurements have no seed.
    """
    if self.is_baseline:
      return False
    if "steps" in self.members[0] or "diverged" in self.members[0]:
      return True
    return any(is_seed(key) for row in self.members for key in row["overrides"])

  @property
  def seeds(self) -> str:
    if not self.has_seed:
      return NOTHING
    ended, all_of_them = len(self.ended), len(self.members)
    return f"{ended}" if ended == all_of_them else f"{ended} of {all_of_them}"


def report(
  rows: list[Record],
  metrics: list[str],
  paper: Paper | None = None,
  comparison: Comparison | None = None,
  names: Collection[str] | None = None,
) -> str:
  """The table with its explanation, the device and the versions; see `table`."""
  body = table(rows, metrics, paper, comparison, names)
  header = body.partition("\n")[0].strip("| ").split(" | ")
  shown = [row for row in rows if names is None or row["name"] in names]
  seeded = [row for row in rows_of(shown) if row.has_seed]
  is_one = seeded and all(len(row.members) == 1 for row in seeded)
  notes = " ".join(explained(header, body, shown, comparison))
  parts = [ONE_SEED if is_one else "", body, notes, measured_on(shown)]
  return "\n\n".join(filter(None, parts)) + "\n"


def table(
  rows: list[Record],
  metrics: list[str],
  paper: Paper | None = None,
  comparison: Comparison | None = None,
  names: Collection[str] | None = None,
) -> str:
  """A Markdown table with a row for each group of runs and a column for each metric.

  Further columns show the uncertainty. Empty columns are left out. With `names`, only
  these methods are shown, but they are compared with all others as usual.

  >>> rows = [
  ...   {"name": "full", "config": "", "overrides": {"seed": seed}, "ppl": 100.0 + seed}
  ...   for seed in (0, 2)
  ... ]
  >>> print(table(rows, ["ppl"], {"full": {"ppl": 99.2}}))
  | method | seeds | ppl | ppl (paper) |
  | --- | --- | --- | --- |
  | full | 2 | 101.0 ± 1.4 | 99.2 |
  """
  every, paper = rows_of(rows), paper or {}
  is_shown = lambda line: names is None or line.members[0]["name"] in names
  lines = [line for line in every if is_shown(line)]
  published = {metric for of_method in paper.values() for metric in of_method}
  compared = comparison.metrics if comparison else _first_of_baselines(every, metrics)
  columns = {
    "method": [line.title for line in lines],
    "seeds": [line.seeds for line in lines],
  }
  for metric in metrics:
    columns[metric] = [_value(line, metric, every, compared) for line in lines]
    if metric in published:
      of_paper = [paper.get(line.members[0]["name"], {}) for line in lines]
      columns[f"{metric} (paper)"] = [str(own.get(metric, NOTHING)) for own in of_paper]
  if comparison:
    columns[f"to {comparison.to}"] = [
      _difference(line, every, comparison) for line in lines
    ]
  columns["standard error"] = [_error(line, compared or metrics) for line in lines]
  columns["converged?"] = [convergence.cell(line.ended) for line in lines]
  columns["trials"] = [_trials(line) for line in lines]
  for key in axes.seconds_of(rows):
    columns[key.replace("_", " ")] = [
      summary([statistics.fmean(numbers(line.ended, key))])
      if any(key in row for row in line.ended)
      else NOTHING
      for line in lines
    ]
  columns[axes.OPERATIONS] = [
    short(numbers(line.ended, axes.OPERATIONS)) for line in lines
  ]
  return of_columns(columns)


def rows_of(rows: Sequence[Record]) -> list[Row]:
  """The rows of the table, baselines first."""
  lines = [Row(label, members) for label, members in groups(rows).items()]
  return sorted(lines, key=lambda line: not line.is_baseline)


def _value(
  line: Row, metric: str, lines: Sequence[Row], compared: Sequence[str]
) -> str:
  """Mean ± standard deviation, marked if it is no better than a counted baseline.

  If some runs lack the metric, the number of runs that have it follows.
  """
  values = numbers(line.ended, metric)
  shown = summary(values)
  if _OF_RUNS.match(metric) and 0 < len(values) < len(line.ended):
    shown += f" ({len(values)} of {len(line.ended)})"
  if metric == _metric_of(line, compared) and not line.is_baseline and values:
    counted = [
      statistics.fmean(of_other)
      for other in _of_same_data(line, lines)
      if other.is_baseline and not other.is_bound
      if (of_other := numbers(other.members, metric))
    ]
    own = statistics.fmean(values)
    shown += NO_BETTER * any(not is_better(own, value, metric) for value in counted)
  return shown


def _difference(line: Row, lines: Sequence[Row], comparison: Comparison) -> str:
  metric = _metric_of(line, comparison.metrics)
  references = [
    other
    for other in _of_same_data(line, lines)
    if other.members[0]["name"].rpartition(": ")[2] == comparison.to
  ]
  if len(references) > 1:
    first, second = (repr(other.label) for other in references[:2])
    raise UserError(
      f"rows are compared with {comparison.to!r}, which may be {first} or {second}; "
      "give these runs different names"
    )
  if not metric or not references or references[0] is line:
    return NOTHING
  difference = significance.compared(line.ended, references[0].ended, metric)
  return significance.cell(difference, metric)


def _error(line: Row, metrics: Sequence[str]) -> str:
  """The standard error over examples, for the first metric that has one."""
  for metric in metrics:
    key = f"{metric.replace('ppl', 'nll')}_se"
    errors = [
      number(row, key) * (number(row, metric) if is_perplexity(metric) else 1)
      for row in line.ended
      if key in row and metric in row
    ]
    if errors:
      return short(errors)
  return NOTHING


def _trials(line: Row) -> str:
  """The number of trials, marked if the best rate is at the edge of the grid."""
  at_edge = any("at_edge" in member for member in line.members)
  return summary(numbers(line.members, "trials")) + AT_EDGE * at_edge


def _metric_of(line: Row, metrics: Sequence[str]) -> str:
  """The first of these metrics that a row has; '' if it has none."""
  has = lambda metric: any(metric in row for row in line.ended)
  return next((metric for metric in metrics if has(metric)), "")


def _first_of_baselines(lines: Sequence[Row], metrics: Sequence[str]) -> list[str]:
  """The metric to compare with baselines, if the sweep file has no comparison."""
  counted = [line for line in lines if line.is_baseline]
  return [m for m in metrics if any(_metric_of(line, [m]) for line in counted)][:1]


def _of_same_data(line: Row, lines: Sequence[Row]) -> list[Row]:
  data = data_of(line.members[0]["name"])
  return [other for other in lines if data_of(other.members[0]["name"]) == data]


def explained(
  header: Sequence[str],
  body: str,
  rows: Sequence[Record],
  comparison: Comparison | None,
) -> list[str]:
  """Explanations of the columns and marks in the table."""
  found = []
  if NO_BETTER in body:
    found.append("†: no better than the best of the baselines, which are counted.")
  if AT_EDGE in body:
    found.append("‡: the best rate was the least or the greatest that was tried.")
  if re.search(r"\(\d+ of \d+\)", body):
    found.append("(1 of 3), and so on: as many of the runs have this metric.")
  if comparison and f"to {comparison.to}" in header:
    test = "mean difference over the seeds that both have"
    if any(is_perplexity(metric) for metric in comparison.metrics):
      test += ", of perplexities that of their logs"
    if " to +" in body or " to -" in body:
      test += (
        "; in brackets the 95 % interval of a paired t-test; "
        f"{significance.MARK}: not significant at 5 %, of one row by itself"
      )
    found.append(f"`to {comparison.to}`: {test}.")
  if "standard error" in header:
    found.append("`standard error`: of the first of these metrics, from its examples.")
  if "converged?" in header:
    found.append(
      "`converged?`: change on validation data over the last tenth, by the slope of "
      "the evaluations there, or of the last two."
    )
  if axes.SECONDS in {key for row in rows for key in row}:
    found.append(
      "`idle seconds`: steps times a step on an idle machine, timed in turns with the "
      "first method on the same data and scaled to its median time."
    )
  return found


def measured_on(rows: list[Record]) -> str:
  """A line on device, versions and source revision, of all starts of resumed runs."""
  starts = [start for row in rows for start in (row, *row.get("earlier", []))]

  def distinct(key: str) -> str:
    return ", ".join(sorted({str(start[key])[:80] for start in starts}))

  revisions = {start["git"][:7] + "+" * start["git_dirty"] for start in starts}
  return (
    f"Measured on {distinct('device')}; jax {distinct('jax')}, Python "
    f"{distinct('python')}; revision {', '.join(sorted(revisions))}."
  )
