"""The benchmark: tasks that are the same for all, and a table that anyone can enter.

  largevocab-bench data ptb --data DIR           # whether these are the task's data
  largevocab-bench run ptb --data DIR --method sampled/pps --set head.num_samples=512 \\
    --seed 0 --trials 1 --out mine.jsonl
  largevocab-bench run ptb --data DIR --adapter my_code:my_method --code URL \\
    --seed 0 --trials 1 --out mine.jsonl
  largevocab-bench run ptb --data DIR --baselines --out mine.jsonl
  largevocab-bench submit mine.jsonl
  largevocab-bench table                         # --update PAGE puts it into a page

A run has one seed, and is one line in the file of --out. docs/bench.md has the rules.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from largevocab import atomic, config
from largevocab.bench import adapter, lines, ours
from largevocab.bench.load import MOST, Others, busy_cores
from largevocab.bench.table import tables
from largevocab.bench.tasks import TASKS, Task, find
from largevocab.errors import UserError, remedy
from largevocab.provenance import device_name, has_changes, revision
from largevocab.tools import entry
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables.markdown import with_section
from largevocab.training.workdir import workdir_path

RESULTS = pathlib.Path("bench/results.jsonl")
# Environment variables that change the speed of a program. No version or setting shows
# them.
ENVIRONMENT = (
  *("GLIBC_TUNABLES", "LD_PRELOAD", "NVIDIA_TF32_OVERRIDE"),
  *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
  *("JAX_DEFAULT_MATMUL_PRECISION", "XLA_FLAGS", "XLA_PYTHON_CLIENT_ALLOCATOR"),
  *("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_ENABLE_ONEDNN_OPTS"),
  *("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"),
)
# Environment variables that turn off the caches of compiled programs of other packages.
NO_CACHE = ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "CUDA_CACHE_DISABLE")
Tasks = Mapping[str, Task]


def parser(tasks: Tasks) -> argparse.ArgumentParser:
  whole = entry.Parser(__doc__)
  whole.prog = "largevocab-bench"
  commands = whole.add_subparsers(
    dest="command",
    required=True,
    parser_class=argparse.ArgumentParser,
    metavar="COMMAND",
  )
  add = functools.partial(commands.add_parser, allow_abbrev=False)
  path: dict[str, Any] = {"type": pathlib.Path, "metavar": "FILE"}

  def of_task(name: str, does: str) -> argparse.ArgumentParser:
    own = add(name, help=does)
    own.add_argument("task", metavar="TASK", help=f"one of {', '.join(tasks)}")
    own.add_argument("--data", default="", metavar="PLACE", help="location of the data")
    return own

  of_task("data", "read the data of a task, and print their digest")
  run = of_task("run", "train a method with one seed, and add a line to a file")
  how = run.add_mutually_exclusive_group(required=True)
  how.add_argument("--method", metavar="HEAD[/SAMPLER]", help="a head of largevocab")
  how.add_argument("--adapter", metavar="MODULE:FUNCTION", help="other code")
  how.add_argument("--baselines", action="store_true", help="models that only count")
  run.add_argument(
    "--set", action="append", default=[], metavar="KEY=VALUE",
    help="key of head, optimizer or the rates of train; without a dot: argument of the "
    "adapter's function",
  )  # fmt: skip
  run.add_argument("--name", help="name in the table; default: method and settings")
  run.add_argument("--seed", type=int, help="default: 0")
  run.add_argument(
    "--trials", type=int, help="runs that chose the settings, this one included"
  )
  run.add_argument(
    "--code", metavar="URL", help="address of the adapter's code, at a fixed revision"
  )
  run.add_argument(
    "--workdir", help="with --method, to resume a stopped run; default: a temporary one"
  )
  run.add_argument(
    "--shared", action="store_true",
    help="other programs use the machine, too; the table then shows no times",
  )  # fmt: skip
  run.add_argument("--out", required=True, **path, help="file to add the line to")
  submit = add("submit", help="check lines, and add them to the results")
  submit.add_argument("file", **path)
  submit.add_argument(
    "--replace", action="store_true", help="also replace existing lines of these runs"
  )
  show = add("table", help="print the results as Markdown")
  show.add_argument("--update", **path, help="rewrite the tables in a page")
  for each in (submit, show):
    each.add_argument("--results", default=RESULTS, **path, help=f"default: {RESULTS}")
  return whole


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
    return submit(args.file, args.results, tasks, args.replace)
  else:
    if not args.results.exists():
      raise UserError(
        f"there is no file {args.results}: run the command at the root of a checkout, "
        "or give --results"
      )
    shown = tables(lines.published(args.results, tasks), tasks) or "No entries yet."
    if args.update:
      atomic.write_text(args.update, with_section(args.update, "bench", shown))
    else:
      print(shown)
  return 0


def run(args: argparse.Namespace, task: Task) -> int:
  """Makes one line, or one for each baseline, and adds it to the file of --out."""
  _check(args, task)
  before: Record = {"git_dirty": has_changes(), "git": revision()}
  if before["git_dirty"]:
    print(
      "bench: files in largevocab or configs have uncommitted changes: "
      "`submit` will refuse the line",
      file=sys.stderr,
    )
  if not before["git"]:
    print(
      "bench: this package is not in a checkout of its repository: `submit` will "
      "refuse the line",
      file=sys.stderr,
    )
  if args.baselines:
    found = [before | row for row in ours.count_baselines(task, args.data)]
  else:
    found = [_trained(args, task, before)]
  rows = [lines.line(args.task, task.metric, row.pop("digest"), **row) for row in found]
  try:
    with records.changed(args.out) as by_run:
      new = {row["run"]: row for row in rows}
      replaced = [run for run in new if by_run.get(run, new[run]) != new[run]]
      by_run.update(new)
  except (OSError, UserError):
    print(*map(json.dumps, rows), sep="\n", file=sys.stderr)
    raise
  for run_id in replaced:
    print(f"replaced the line of {run_id} in {args.out}")
  for row in rows:
    shown = f"diverged at step {row['diverged']}" if "diverged" in row else row["valid"]
    print(f"{row['run']}: valid {task.metric} {shown}")
    if task.is_entered:
      for fault in lines.faults_of_run(row, task):
        print(f"bench: `submit` will refuse the line: {fault}", file=sys.stderr)
  return 0


def _trained(args: argparse.Namespace, task: Task, before: Record) -> Record:
  """The part of a line about a run, and about the state before the run."""
  seed: int = args.seed or 0
  about: Record = {"name": _name(args), "seed": seed, "trials": args.trials}
  if args.code:
    about["code_url"] = args.code
  if found := {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}:
    before |= {"environment": found}
  chosen = {"method": args.method or args.adapter, "settings": args.set}
  device = {"device": device_name()} if args.method else {}
  _compare_seeds(args, about | before | chosen | device)
  load = lambda: _load(args.shared)
  if args.method:
    of_run = task, args.method, seed, args.data, args.set
    with _workdir(args.workdir) as workdir:
      line = ours.run(*of_run, workdir, before, load)
  else:
    state, others = before | load(), Others()
    line = adapter.run(task, args.adapter, seed, args.data, args.set)
    others.note(state)
    line |= state
  if line.get("shared") and not args.shared:
    print(
      f"bench: other programs used the machine, too (`load` {line.get('load', '-')}): "
      "the line is `shared`, so the table shows no times for it",
      file=sys.stderr,
    )
  return about | line


def _compare_seeds(args: argparse.Namespace, about: Record) -> None:
  """Warns, before training, if other seeds of the method differ from this one."""
  rows = records.load(args.out, lines.KEYS) if args.out.exists() else []
  of_method = lambda row: (row["task"], row["name"]) == (args.task, about["name"])
  # An adapter tells its device only when it is made.
  known = [key for key in lines.KNOWN_BEFORE if key in about or key != "device"]
  value = lines.shared_by_seeds
  for row in filter(of_method, rows):
    differ = [key for key in known if value(row, key) != value(about, key)]
    if differ and row.get("seed") not in (None, about["seed"]):
      print(
        f"bench: `{differ[0]}` of seed {row['seed']} in {args.out} is "
        f"{row.get(differ[0], '-')}, but {about.get(differ[0], '-')} here: `submit` "
        "will refuse seeds of one method that differ in it",
        file=sys.stderr,
      )


def _load(shared: bool) -> Record:
  """How busy the machine is; raises a UserError if it is busy and `shared` is False."""
  busy = busy_cores()
  if busy is not None and busy > MOST and not shared:
    raise UserError(
      f"other programs keep {busy} cores of this machine busy: wait until they have "
      "ended, or give --shared; the table then shows no times"
    )
  return ({} if busy is None else {"load": busy}) | ({"shared": True} if shared else {})


def _name(args: argparse.Namespace) -> str:
  what = (args.method or args.adapter).rpartition(":")[2]
  words = sorted(word.removeprefix("head.") for word in args.set)
  return args.name or ", ".join([what, *words])


def _check(args: argparse.Namespace, task: Task) -> None:
  """Refuses flags that have no effect, and errors that training would only delay."""
  how, idle = "--method", ["code"]
  if args.adapter:
    is_ours = args.adapter.startswith(lines.OURS)
    how, idle = f"--adapter={args.adapter}", ["workdir", *["code"] * is_ours]
  elif args.baselines:
    how = "--baselines"
    idle = ["workdir", "set", "name", "seed", "trials", "shared", "code"]
  for name in idle:
    given = getattr(args, name)
    if given is not None and given is not False and given != []:
      raise UserError(f"--{name} has no effect with {how}: leave it out")
  if not args.baselines:
    _check_training(args)
    of = ours.prepared if args.method else adapter.prepared
    of(task, args.method or args.adapter, args.seed or 0, args.data, args.set)
  try:  # checks that the line can be written
    with (
      records.changed(args.out, lines.KEYS),
      tempfile.TemporaryFile(dir=args.out.parent),
    ):
      pass
  except OSError as error:
    what_to_do = remedy(error.errno, "give another file")
    raise UserError(f"--out={args.out}: {error.strerror}: {what_to_do}") from error


def _check_training(args: argparse.Namespace) -> None:
  if args.trials is None:
    raise UserError(
      "--trials is missing: give the number of runs on this task that chose the "
      "settings, this one included; 1: nothing was searched"
    )
  entry.check_counts(args, "trials")
  entry.check_counts(args, "seed", least=0)
  if args.adapter and lines.needs_url(args.adapter) and not args.code:
    raise UserError(
      "--code is missing: give the web address of the adapter's code, at a fixed "
      "revision"
    )
  if args.code and not lines.is_url(args.code):
    raise UserError(
      f"--code={args.code}: must be https://..., without spaces or brackets"
    )
  name = _name(args)
  if not name or not lines.is_plain(name):
    raise UserError(
      f"the name {name!r:.80} cannot go into a table: give another --name, without "
      "markup or line breaks"
    )
  keys = [word.partition("=")[0] for word in args.set]
  if again := [key for place, key in enumerate(keys) if key in keys[:place]]:
    raise UserError(f"--set {again[0]} is given twice: leave one out")


def submit(
  path: pathlib.Path, results: pathlib.Path, tasks: Tasks, replace: bool = False
) -> int:
  """Adds the lines of a file to the results.

  Nothing is added if a line has a fault, or if a line would replace another one and
  `replace` is False.
  """
  if not results.parent.is_dir():
    raise UserError(
      f"there is no directory {results.parent}: submit at the root of a checkout, or "
      "give --results"
    )
  numbered = records.numbered(path)
  if not numbered:
    raise UserError(f"{path} has no lines: make some with largevocab-bench run --out")
  with records.changed(results, lines.KEYS) as by_run:
    found = lines.faults(numbered, list(by_run.values()), tasks)
    if not found and not replace:
      found = [
        f"{number}: run: {results} has another line of this run{_instead(row, other)}"
        for number, row in numbered
        if not _agree(row, other := by_run.get(row["run"], row))
      ]
    if found:
      print(*(f"{path}:{fault}" for fault in found), sep="\n", file=sys.stderr)
      return 1
    new = {row["run"]: row for _, row in numbered}
    by_run.update(new if replace else new | by_run)
  print(f"{len(numbered)} lines are in {results}")
  return 0


def _agree(row: Record, other: Record) -> bool:
  """Whether lines of one run are the same; for baselines, on whatever device."""
  if not row.get("baseline"):
    return row == other
  near = functools.partial(math.isclose, rel_tol=lines.ROUNDED)
  return all(near(row[key], other[key]) for key in lines.METRICS)


def _instead(row: Record, other: Record) -> str:
  """What to do with a line if there is another line of the same run."""
  if row["device"] != other["device"] and not row.get("baseline"):
    return f", on {other['device']}; run it with another --name"
  return "; --replace replaces it"


@contextlib.contextmanager
def _workdir(given: str | None) -> Iterator[str]:
  if given:
    yield workdir_path(given)
    return
  with tempfile.TemporaryDirectory(prefix="largevocab-bench-") as made:
    yield made


def cli() -> int:
  # Seconds include compilation, even of programs that an earlier run compiled.
  jax.config.update("jax_enable_compilation_cache", False)
  os.environ.update(dict.fromkeys(NO_CACHE, "1"))
  return entry.run("bench", main)
