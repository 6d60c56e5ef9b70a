"""The benchmark: tasks that are the same for all, and a table that others can enter.

  largevocab-bench data ptb --data DIR           # whether these are the task's data
  largevocab-bench run ptb --data DIR --method sampled/pps --set head.num_samples=512 \\
    --seed 0 --trials 1 --out mine.jsonl
  largevocab-bench run ptb --data DIR --adapter my_code:my_method --seed 0 --trials 1 \\
    --out mine.jsonl
  largevocab-bench run ptb --data DIR --baselines --out mine.jsonl
  largevocab-bench submit mine.jsonl
  largevocab-bench table                         # --update PAGE puts it into a page

A run is one seed, and one line of the file of --out. docs/bench.md has the rules.
"""

import argparse
import contextlib
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from largevocab import atomic, config
from largevocab.bench import adapter, lines, ours
from largevocab.bench.table import tables
from largevocab.bench.tasks import TASKS, Task, find
from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.training.workdir import workdir_path

RESULTS = pathlib.Path("bench/results.jsonl")
# Where a page has the tables.
SECTION = re.compile(r"(?<=^<!-- bench -->\n).*?(?=^<!-- /bench -->$)", re.M | re.S)
Tasks = Mapping[str, Task]


def parser(tasks: Tasks) -> argparse.ArgumentParser:
  whole = entry.Parser(__doc__)
  whole.prog = "largevocab-bench"
  commands = whole.add_subparsers(
    dest="command", required=True, parser_class=_Subparser, metavar="COMMAND"
  )
  path: dict[str, Any] = {"type": pathlib.Path, "metavar": "FILE"}

  def of_task(name: str, does: str) -> argparse.ArgumentParser:
    own = commands.add_parser(name, help=does)
    own.add_argument("task", metavar="TASK", help=f"one of {', '.join(tasks)}")
    own.add_argument("--data", default="", metavar="PLACE", help="of the task's data")
    return own

  of_task("data", "read the data of a task, and print their digest")
  run = of_task("run", "train a method with one seed, and add a line to a file")
  how = run.add_mutually_exclusive_group(required=True)
  how.add_argument("--method", metavar="HEAD[/SAMPLER]", help="a head of largevocab")
  how.add_argument("--adapter", metavar="MODULE:FUNCTION", help="other code")
  how.add_argument("--baselines", action="store_true", help="models that only count")
  run.add_argument(
    "--set", action="append", default=[], metavar="KEY=VALUE",
    help="of head, optimizer and the rates of train; without a dot: an argument of the "
    "adapter's function",
  )  # fmt: skip
  run.add_argument("--name", help="in the table; default: the method and what was set")
  run.add_argument("--seed", type=int, default=0)
  run.add_argument("--trials", type=int, help="runs that chose the settings, with this")
  run.add_argument(
    "--workdir", help="of --method, to go on from if stopped; default: a temporary one"
  )
  run.add_argument(
    "--shared", action="store_true",
    help="other programs use the machine too: the table is to show no times",
  )  # fmt: skip
  run.add_argument("--out", required=True, **path, help="gets the line")
  submit = commands.add_parser(
    "submit", help="check lines, and add them to the results"
  )
  submit.add_argument("file", **path)
  show = commands.add_parser("table", help="print the results as Markdown")
  show.add_argument("--update", **path, help="rewrite the tables in a page")
  for each in (submit, show):
    each.add_argument("--results", default=RESULTS, **path, help=f"default: {RESULTS}")
  return whole


class _Subparser(argparse.ArgumentParser):
  def __init__(self, **more: Any):
    super().__init__(allow_abbrev=False, **more)


def main(argv: list[str] | None = None, tasks: Tasks = TASKS) -> int:
  args = parser(tasks).parse_args(argv)
  if args.command == "data":
    task = find(args.task, tasks)
    data, found = ours.loaded(config.build(task.settings(place=args.data)), task)
    print(data.summary)
    known = "the task's" if task.digest else "the task has none yet"
    print(f"{found} ({known})")
  elif args.command == "run":
    return run(args, find(args.task, tasks))
  elif args.command == "submit":
    return submit(args.file, args.results, tasks)
  else:
    shown = tables(lines.published(args.results, tasks), tasks) or "No entries yet."
    if args.update:
      page = with_tables(records.read_text(args.update), shown)
      atomic.write_text(args.update, page)
    else:
      print(shown)
  return 0


def with_tables(page: str, shown: str) -> str:
  """A page with these tables between its lines <!-- bench --> and <!-- /bench -->."""
  if not SECTION.search(page):
    raise UserError("the page has no lines <!-- bench --> and <!-- /bench -->")
  return SECTION.sub(lambda _: f"\n{shown}\n\n", page)


def run(args: argparse.Namespace, task: Task) -> int:
  """Makes one line, or one for each baseline, and adds it to the file of --out."""
  _check(args)
  if args.baselines:
    found = list(ours.count_baselines(task, args.data))
  else:
    what = args.method or args.adapter
    words = sorted(word.removeprefix("head.") for word in args.set)
    name = args.name or ", ".join([what.rpartition(":")[2], *words])
    with _workdir(args.workdir) as workdir:
      if args.method:
        line = ours.run(task, args.method, args.seed, args.data, args.set, workdir)
      else:
        line = adapter.run(task, args.adapter, args.seed, args.data, args.set)
    about: Record = {"name": name, "seed": args.seed, "trials": args.trials}
    shared: Record = {"shared": True} if args.shared else {}
    found = [about | shared | line]
  rows = [lines.line(args.task, task.metric, row.pop("digest"), **row) for row in found]
  records.merge(args.out, rows)
  for row in rows:
    shown = f"diverged at step {row['diverged']}" if "diverged" in row else row["test"]
    print(f"{row['run']}: test {task.metric} {shown}")
  return 0


def _check(args: argparse.Namespace) -> None:
  """Refuses what would have no effect, or be found wrong only after the training."""
  if args.out.exists():
    records.load(args.out, lines.KEYS)
  idle = {"--adapter": ["workdir"] if args.adapter else []}
  idle["--baselines"] = (
    ["workdir", "set", "name", "trials", "shared"] if args.baselines else []
  )
  for how, names in idle.items():
    if given := [name for name in names if getattr(args, name)]:
      raise UserError(f"--{given[0]} has no effect with {how}: leave it out")
  if args.baselines:
    return
  if args.trials is None:
    raise UserError(
      "--trials is missing: how many runs on this task chose the settings, this one "
      "among them; 1: nothing was searched"
    )
  entry.check_counts(args, "trials")
  entry.check_counts(args, "seed", least=0)


def submit(path: pathlib.Path, results: pathlib.Path, tasks: Tasks) -> int:
  """Adds the lines of a file to the results, unless one of them has a fault."""
  with records.changed(results, lines.KEYS) as by_run:
    if found := lines.faults(path, list(by_run.values()), tasks):
      print(*found, sep="\n", file=sys.stderr)
      return 1
    rows = [row for _, row in records.numbered(path)]
    by_run.update({row["run"]: row for row in rows})
  print(f"{len(rows)} lines are in {results}")
  return 0


@contextlib.contextmanager
def _workdir(given: str | None) -> Iterator[str]:
  if given:
    yield workdir_path(given)
    return
  with tempfile.TemporaryDirectory(prefix="largevocab-bench-") as made:
    yield made


def cli() -> int:
  return entry.run("bench", main)
