"""Formats Markdown tables and the numbers in their cells, and renews parts of pages."""

import math
import pathlib
import re
import statistics

from largevocab.errors import UserError
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record

SIGNIFICANT_DIGITS = 4
NOTHING = "-"


def number(row: Record, metric: str) -> float:
  """A metric of a record; raises a UserError if it is not a number."""
  if not records.is_number(row[metric]):
    raise UserError(
      f"run {row.get('run')!r}: {metric} is {row[metric]!r:.80}, not a number; choose "
      "other metrics, or correct its line"
    )
  return row[metric]


def numbers(rows: list[Record], metric: str) -> list[float]:
  """The values of a metric in the rows that have it."""
  return [number(row, metric) for row in rows if metric in row]


def markdown(header: list[str], rows: list[list[str]]) -> str:
  """A Markdown table; bars and line ends within cells are escaped.

  >>> print(markdown(["a", "b"], [["1|2", "3\\n4"]]))
  | a | b |
  | --- | --- |
  | 1\\|2 | 3 4 |
  """
  cell = lambda text: " ".join(text.splitlines()).replace("|", r"\|")
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(map(cell, cells))} |" for cells in lines)


def with_section(path: pathlib.Path, name: str, content: str) -> str:
  """The text of a page, with new content between <!-- name --> and <!-- /name -->.

  Raises:
    UserError: the page cannot be read, or lacks these lines.
  """
  page = records.read_text(path)
  first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
  section = re.compile(rf"(?<=^{first}\n).*?(?=^{last}$)", re.M | re.S)
  if not section.search(page):
    raise UserError(
      f"{path} has no lines {first} and {last}: add them where the table should be"
    )
  return section.sub(lambda _: f"\n{content}\n\n", page)


def of_columns(columns: dict[str, list[str]]) -> str:
  """A Markdown table from columns by header, without empty columns.

  >>> print(of_columns({"a": ["1", "2"], "b": ["-", "-"], "c": ["-", "3"]}))
  | a | c |
  | --- | --- |
  | 1 | - |
  | 2 | 3 |
  """
  kept = {header: cells for header, cells in columns.items() if set(cells) - {NOTHING}}
  body = [list(cells) for cells in zip(*kept.values(), strict=True)]
  return markdown(list(kept), body)


def summary(values: list[float]) -> str:
  """Mean ± standard deviation, to four significant digits of the mean.

  >>> summary([0.012341]), summary([20000, 20000]), summary([99.0, 101.0]), summary([])
  ('0.01234', '20000', '100.0 ± 1.4', '-')
  >>> summary([1.23456e-9]), summary([1.01e304])
  ('1.235e-09', '1.010e+304')
  """
  if not values:
    return NOTHING
  mean = statistics.fmean(values)
  if len(set(values)) == 1 and isinstance(values[0], int):
    return str(values[0])
  if not math.isfinite(mean):
    return str(mean)
  exponent = math.floor(math.log10(abs(mean))) if mean else 0
  decimals = max(0, SIGNIFICANT_DIGITS - 1 - exponent)
  form = f".{decimals}f" if -4 <= exponent < 9 else f".{SIGNIFICANT_DIGITS - 1}e"
  if len(values) == 1:
    return f"{mean:{form}}"
  return f"{mean:{form}} ± {statistics.stdev(values):{form}}"


def short(values: list[float]) -> str:
  """The mean, as an integer from 100 to a million, or else to two significant digits.

  >>> short([0.0312, 0.0314]), short([1.26]), short([126.1]), short([1.26e12])
  ('0.031', '1.3', '126', '1.3e+12')
  >>> short([99.4]), short([99.7])
  ('99', '100')
  """
  if not values:
    return NOTHING
  mean = statistics.fmean(values)
  return f"{mean:.0f}" if 99.5 <= abs(mean) < 1e6 else f"{mean:.2g}"
