"""Tables of results, in Markdown.

  python scripts/tabulate.py experiments/ptb/results.jsonl   # print one
  python scripts/tabulate.py runs/quickstart                 # of finished runs anywhere
  python scripts/tabulate.py --update README.md              # rewrite those in a file
  python scripts/tabulate.py --check README.md               # exit 1 if one is stale

A file holds a table between lines <!-- results:ptb --> and <!-- /results:ptb -->. It
shows experiments/ptb/results.jsonl, with the metrics and the paper's numbers that
experiments/ptb/sweep.py gives. Runs that differ in nothing but the seed make one row:
mean ± standard deviation.
"""

import argparse
import contextlib
import json
import math
import pathlib
import re
import statistics
import sys
from collections.abc import Iterable, Iterator

import entry
import records
import sweepfile
from records import Record

from largevocab.config import nearest
from largevocab.errors import UserError

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[1] / "experiments"
MARKER = re.compile(r"^<!-- /?results:.*$", re.MULTILINE)
SECTION = re.compile(
  r"^(<!-- results:([\w-]+) -->\n)(?:(?!<!-- results:).)*?^(<!-- /results:\2 -->)$",
  re.DOTALL | re.MULTILINE,
)
# What a record holds besides metrics.
NOT_METRICS = {"run", "name", "config", "overrides", "num_devices", "git_dirty"}
SIGNIFICANT_DIGITS = 4
NOTHING = "-"
Paper = dict[str, dict[str, float]]


def table(rows: list[Record], metrics: list[str], paper: Paper | None = None) -> str:
  """A Markdown table: a row for each group of runs, a column for each metric.

  >>> rows = [
  ...   {"name": "full", "config": "", "overrides": {"seed": seed}, "ppl": 100.0 + seed}
  ...   for seed in (0, 2)
  ... ]
  >>> print(table(rows, ["ppl"], {"full": {"ppl": 99.2}}))
  | method | runs | ppl | ppl (paper) |
  | --- | --- | --- | --- |
  | full | 2 | 101.0 ± 1.4 | 99.2 |
  """
  paper = paper or {}
  published = {metric for numbers in paper.values() for metric in numbers}
  header = ["method", "runs"]
  for metric in metrics:
    header += [metric, f"{metric} (paper)"] if metric in published else [metric]
  lines = [header, ["---"] * len(header)]
  for label, members in groups(rows).items():
    cells = [label, str(len(members))]
    for metric in metrics:
      cells.append(summary([number(row, metric) for row in members if metric in row]))
      if metric in published:
        cells.append(str(paper.get(members[0]["name"], {}).get(metric, NOTHING)))
    lines.append(cells)
  return markdown(lines)


def number(row: Record, metric: str) -> float:
  """A metric of a record; a UserError if it is no number."""
  if not records.is_number(row[metric]):
    raise UserError(
      f"run {row.get('run')!r}: {metric} is {row[metric]!r:.80}, not a number; choose "
      "other metrics, or mend its line"
    )
  return row[metric]


def markdown(lines: list[list[str]]) -> str:
  """Lines of cells as Markdown.

  >>> print(markdown([["a", "b"], ["1", "2"]]))
  | a | b |
  | 1 | 2 |
  """
  return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def groups(rows: Iterable[Record]) -> dict[str, list[Record]]:
  """Runs that differ in nothing but the seed, by a label that tells them apart."""
  by_identity: dict[str, list[Record]] = {}
  for row in rows:
    same = {k: v for k, v in row["overrides"].items() if k.split(".")[-1] != "seed"}
    identity = json.dumps([row["name"], row["config"], same], sort_keys=True)
    by_identity.setdefault(identity, []).append(row)
  names = [members[0]["name"] for members in by_identity.values()]
  labelled = {}
  for identity, members in by_identity.items():
    name, config, same = json.loads(identity)
    full = [name, config, *(f"{key}={value}" for key, value in same.items())]
    unique = name and names.count(name) == 1
    labelled[name if unique else " ".join(filter(None, full))] = members
  return labelled


def summary(values: list[float]) -> str:
  """Mean ± standard deviation, to four significant digits of the mean.

  >>> summary([0.012341]), summary([20000, 20000]), summary([99.0, 101.0]), summary([])
  ('0.01234', '20000', '100.0 ± 1.4', '-')
  >>> summary([1.23456e-9])
  '1.235e-09'
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
  form = f".{decimals}f" if exponent >= -4 else f".{SIGNIFICANT_DIGITS - 1}e"
  if len(values) == 1:
    return f"{mean:{form}}"
  return f"{mean:{form}} ± {statistics.stdev(values):{form}}"


def measured_on(rows: list[Record]) -> str:
  """A line on device, versions and source revision."""

  def distinct(key: str) -> str:
    return ", ".join(sorted({str(row[key])[:80] for row in rows}))

  revisions = {row["git"][:7] + "+" * row["git_dirty"] for row in rows}
  return (
    f"Measured on {distinct('device')}; jax {distinct('jax')}, Python "
    f"{distinct('python')}; revision {', '.join(sorted(revisions))}."
  )


def report(rows: list[Record], metrics: list[str], paper: Paper | None = None) -> str:
  """Table, and what it was measured on."""
  return f"{table(rows, metrics, paper)}\n\n{measured_on(rows)}\n"


def rewrite(text: str, experiments: pathlib.Path) -> str:
  """Text with the table in each of its marked sections made anew.

  Raises:
    UserError: a marker without its partner, or an experiment without results.
  """

  def section(match: re.Match[str]) -> str:
    begin, name, end = match.groups()
    sweep = sweepfile.load(experiments / name / "sweep.py")
    path = experiments / name / "results.jsonl"
    rows = sweep.complete(records.load(path))
    if not rows:
      raise UserError(f"{path}: no finished run here")
    with naming(path):
      return f"{begin}\n{report(rows, sweep.metrics, sweep.paper)}\n{end}"

  if stray := MARKER.search(SECTION.sub("", text)):
    raise UserError(
      f"{stray[0]} has no partner; write <!-- results:NAME --> on a line "
      "of its own and <!-- /results:NAME --> below it"
    )
  return SECTION.sub(section, text)


def scalars(rows: list[Record]) -> list[str]:
  """The metrics that occur in the rows, in order of appearance."""
  keys = {
    key: None
    for row in rows
    for key, value in row.items()
    if key not in NOT_METRICS and records.is_number(value)
  }
  return list(keys)


def print_table(path: pathlib.Path, asked: list[str] | None) -> None:
  """Prints the table of results.jsonl or of the finished runs below a directory."""
  metrics, paper = asked, {}
  if path.is_dir():
    rows = records.of_directory(path)
  else:
    rows = records.load(path)
    if path.with_name("sweep.py").exists():
      sweep = sweepfile.load(path.with_name("sweep.py"))
      paper, rows = sweep.paper, sweep.complete(rows)
      metrics = asked or sweep.metrics
  if not rows:
    raise UserError(f"{path}: no finished run here")
  for metric in asked or []:
    if not any(metric in row for row in rows):
      raise UserError(
        f"{path}: no run has the metric {metric!r}{nearest(metric, scalars(rows))}"
      )
  with naming(path):
    print(report(rows, metrics or scalars(rows), paper), end="")


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
  """Puts the file before what a line of it is wrong in."""
  try:
    yield
  except UserError as error:
    raise UserError(f"{path}: {error}") from None


def main(argv: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("paths", nargs="+", type=pathlib.Path)
  parser.add_argument("--metrics", type=lambda names: names.split(","))
  mode = parser.add_mutually_exclusive_group()
  mode.add_argument(
    "--update", action="store_true", help="rewrite tables in these files"
  )
  mode.add_argument("--check", action="store_true", help="exit 1 if a table is stale")
  parser.add_argument("--experiments", type=pathlib.Path, default=EXPERIMENTS)
  args = parser.parse_args(argv)
  stale = []
  for path in args.paths:
    if not (args.update or args.check):
      print_table(path, args.metrics)
      continue
    old = records.read_text(path)
    new = rewrite(old, args.experiments)
    if args.update and new != old:
      path.write_text(new)
    if args.check and new != old:
      stale.append(path)
  for path in stale:
    print(f"{path}: stale table; run scripts/tabulate.py --update {path}")
  return 1 if stale else 0


if __name__ == "__main__":
  sys.exit(entry.run("tabulate", main))
