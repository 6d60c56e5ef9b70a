"""Makes Markdown tables of results.

  python scripts/tabulate.py experiments/ptb_sampled/results.jsonl   # print a table
  python scripts/tabulate.py runs/one runs/another     # of finished runs anywhere
  python scripts/tabulate.py experiments/ptb_sampled/results.jsonl --to "pps, 512"
  python scripts/tabulate.py --update README.md        # rewrite the tables in a file
  python scripts/tabulate.py --check README.md         # exit 1 if a table is stale

With --to, each row is compared, paired by seed, with that row instead of the sweep's
reference. With --metrics, the first of the metrics is compared.

In a file, a table stands between the lines <!-- results:NAME --> and
<!-- /results:NAME -->. It shows experiments/NAME/results.jsonl, with the metrics and
published numbers of experiments/NAME/sweep.py, or "Not run yet."; docs/protocol.md
explains the columns. <!-- results:NAME rows=pps|full to="full softmax" metrics=a,b -->
has three options, all of which may be left out, but which must be in this order. `rows`
shows only the rows in whose names this regular expression, which has no spaces, is
found. `to` compares them with this row instead of the sweep's reference. `metrics`
shows the metrics a and b, of which the first is compared.
"""

import pathlib
import re
import sys
from collections.abc import Sequence

from largevocab import atomic
from largevocab.errors import UserError, nearest
from largevocab.tools import entry
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import axes, results_table
from largevocab.tools.tables.markdown import number

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "experiments"
MARKER = re.compile(r"^<!-- /?results:.*$", re.MULTILINE)
SECTION = re.compile(
  r"^(<!-- results:([\w-]+)(?: rows=(\S+))?(?: to=\"([^\"\n]+)\")?"
  r"(?: metrics=(\S+))? -->\n)(?:(?!<!-- results:).)*?"
  r"^(<!-- /results:\2 -->)$",
  re.DOTALL | re.MULTILINE,
)
# Fields of a record that are not metrics.
NOT_METRICS = {*records.FIELDS, *records.SOME_HAVE, "num_devices", "every_epochs"}
OF_RESULT = re.compile("(train|valid|test)_|steps$|peak_mib$")  # keys of result.json
OF_EVALUATION = re.compile("(valid|test)_.*(?<!_se)")  # without standard errors
NOT_RUN = "Not run yet."


def rewrite(text: str, experiments: pathlib.Path) -> str:
  """Regenerates the tables in all marked sections of a text.

  An experiment without results.jsonl is shown as not run.

  Raises:
    UserError: a marker has no partner, an experiment is unknown, or a results.jsonl is
      empty.
  """

  def section(match: re.Match[str]) -> str:
    begin, name, shown, to, asked, end = match.groups()
    sweep = sweepfile.load(experiments / name / "sweep.py")
    path = experiments / name / "results.jsonl"
    if not path.exists():
      return f"{begin}\n{NOT_RUN}\n\n{end}"
    rows = complete(sweep, path)
    if not rows:
      raise UserError(f"{path}: no finished run here")
    for metric in sweep.metrics:
      if not any(metric in row for row in rows):
        hint = nearest(metric, scalars(rows))
        print(f"{path}: no run has {metric!r} of metrics(){hint}", file=sys.stderr)
    with records.naming(path):
      names = (
        {row["name"] for row in records.only(rows, shown, "rows")} if shown else None
      )
      metrics = _asked(asked.split(","), rows, path) if asked else sweep.metrics
      compared = _comparison(rows, sweep.comparison, to, metrics, bool(asked))
      table = results_table.report(rows, metrics, sweep.paper, compared, names)
      return f"{begin}\n{table}\n{end}"

  if stray := MARKER.search(SECTION.sub("", text)):
    raise UserError(
      f"{stray[0]} has no partner; write <!-- results:NAME --> on a line "
      "of its own and <!-- /results:NAME --> below it"
    )
  return SECTION.sub(section, text)


def _asked(metrics: list[str], rows: list[Record], path: pathlib.Path) -> list[str]:
  """The metrics, after a check that some row has each of them."""
  for metric in metrics:
    if not any(metric in row for row in rows):
      hint = nearest(metric, scalars(rows))
      raise UserError(f"{path}: no run has the metric {metric!r}{hint}")
  return metrics


def _comparison(
  rows: list[Record],
  of_sweep: sweepfile.Comparison | None,
  to: str | None,
  metrics: list[str],
  are_asked: bool,
) -> sweepfile.Comparison | None:
  """The sweep's comparison, or one with the row `to` by the first metric asked for."""
  names = {row["name"].rpartition(": ")[2] for row in rows}
  if to and to not in names:
    raise UserError(f"to={to}: no row has this name{nearest(to, sorted(names))}")
  to = to or (of_sweep.to if of_sweep else None)
  if not to:
    return None
  own = of_sweep.metrics if of_sweep and not are_asked else metrics[:1]
  return sweepfile.Comparison(to, tuple(own))


def complete(sweep: sweepfile.Sweep, path: pathlib.Path) -> list[Record]:
  """The records of a results.jsonl, with costs and derived metrics."""
  return sweep.complete(axes.joined(records.load(path), path.with_name("times.jsonl")))


def scalars(rows: list[Record]) -> list[str]:
  """The metrics that occur in the rows, in order of appearance.

  Raises:
    UserError: a metric of result.json is not a number.
  """
  keys: dict[str, None] = {}
  for row in rows:
    for key, value in row.items():
      if key in NOT_METRICS:
        continue
      if OF_RESULT.match(key) or type(value) is int:
        number(row, key)
      if records.is_number(value):
        keys[key] = None
  return list(keys)


def print_table(
  paths: Sequence[pathlib.Path], asked: list[str] | None, to: str
) -> None:
  """Prints the table of results.jsonl or of the finished runs in or below directories.

  Args:
    paths: the path of one file, or paths of directories.
    asked: metrics to show; None: the metrics of the sweep file, or all metrics.
    to: name of the row to compare with, see `Comparison.to`; "": that of the sweep.
  """
  metrics, paper, comparison, path = asked, {}, None, paths[0]
  if path.is_dir():
    rows = records.of_directories(paths)
  elif path.with_name("sweep.py").exists():
    sweep = sweepfile.load(path.with_name("sweep.py"))
    rows, paper, comparison = complete(sweep, path), sweep.paper, sweep.comparison
    metrics = asked or sweep.metrics
  else:
    rows = records.load(path)
  if not rows:
    raise UserError(f"{path}: no finished run here")
  _asked(asked or [], rows, path)
  with records.naming(path):
    found = metrics or scalars(rows)
    by = metrics or [*filter(OF_EVALUATION.fullmatch, found)] or found
    comparison = _comparison(rows, comparison, to, by, bool(asked))
    print(results_table.report(rows, found, paper, comparison), end="")


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("paths", nargs="+", type=pathlib.Path)
  parser.add_argument("--metrics", type=lambda names: names.split(","))
  parser.add_argument(
    "--to",
    default="",
    metavar="NAME",
    help="row to compare with, by the first metric, or without --metrics by that of "
    "the sweep, or the first of an evaluation; with several data sets, the row of the "
    "same set, without the name of the set",
  )
  mode = parser.add_mutually_exclusive_group()
  mode.add_argument(
    "--update", action="store_true", help="rewrite tables in these files"
  )
  mode.add_argument("--check", action="store_true", help="exit 1 if a table is stale")
  parser.add_argument(
    "--experiments",
    type=pathlib.Path,
    metavar="DIR",
    help="with --update or --check: where the experiments NAME are; default: "
    "experiments of this checkout",
  )
  args = parser.parse_args(argv)
  if args.to and (args.update or args.check):
    raise UserError('--to is for printed tables; in a page, its marker has to="ROW"')
  if args.metrics is not None and (args.update or args.check):
    raise UserError(
      "--metrics is for printed tables; in a page, its marker has metrics=a,b"
    )
  if args.experiments is not None and not (args.update or args.check):
    raise UserError("--experiments is for pages: give --update or --check too")
  if not (args.update or args.check):
    folders = [path for path in args.paths if path.is_dir()]
    files = [[path] for path in args.paths if not path.is_dir()]
    for paths in [*files, *([folders] if folders else [])]:
      print_table(paths, args.metrics, args.to)
    return 0
  stale = []
  for path in args.paths:
    old = records.read_text(path)
    new = rewrite(old, args.experiments or EXPERIMENTS)
    if args.update and new != old:
      atomic.write_text(path, new)
    if args.check and new != old:
      stale.append(path)
  for path in stale:
    print(f"{path}: stale table; run scripts/tabulate.py --update {path}")
  return 1 if stale else 0


def cli() -> int:
  return entry.run("tabulate", main)


if __name__ == "__main__":
  sys.exit(cli())
