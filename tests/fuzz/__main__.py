"""Tries many inputs, most of them invalid, and reports those that end in a fault.

  python -m tests.fuzz --cases 4000 --seed 0 --jobs 2
  python -m tests.fuzz --kinds files --cases 200
  python -m tests.fuzz --only keys-17

Prints each fault with a command that shows it again, and a table of what came of the
cases, by kind. Ends with status 1 if there is a fault. What a fault happened in stays
in --root.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile
import time
from collections import Counter

import tests.conftest  # noqa: F401  sets the environment of the workers
from tests.fuzz import kinds
from tests.fuzz.oracle import FAULTS, GOOD
from tests.fuzz.runner import Result, run_all


def main(argv: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--cases", type=int, default=4000, help="how many, over all kinds")
  add("--seed", type=int, default=0)
  add("--jobs", type=int, default=1, help="cases at a time")
  names = lambda text: text.split(",")
  add("--kinds", type=names, default=list(kinds.SHARES), help="default: all")
  add("--only", type=names, default=[], help="cases, as in keys-17,files-3")
  add("--root", type=pathlib.Path, help="default: a temporary directory")
  add("--output", type=pathlib.Path, help="JSON lines, one a case")
  args = parser.parse_args(argv)
  root = args.root or pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
  if args.only:
    args.kinds = list(dict.fromkeys(id.rpartition("-")[0] for id in args.only))
  numbers = kinds.numbers(args.cases, args.kinds)
  began = time.perf_counter()
  results = []
  output = args.output.open("w") if args.output else None
  chosen = lambda case: not args.only or case.id in args.only
  for result in run_all(args.seed, numbers, root, args.jobs, chosen):
    results.append(result)
    if output:
      print(json.dumps(described(result)), file=output, flush=True)
    if result.verdict.is_fault or args.only:
      print(told(result), flush=True)
  print(table(results))
  faults = sum(result.verdict.is_fault for result in results)
  seconds = time.perf_counter() - began
  print(f"{len(results)} cases, {faults} faults, {seconds:.0f} s; seed {args.seed}")
  return 1 if faults else 0


def described(result: Result) -> dict[str, object]:
  """A result as a JSON object."""
  case, verdict, done, here = result
  return {
    **{"id": case.id, "about": case.about, "outcome": verdict.outcome},
    **{"why": verdict.why, "seconds": round(done.seconds, 2)},
    "command": case.command(here),
    **({"err": done.err[-4000:]} if verdict.is_fault else {}),
  }


def told(result: Result) -> str:
  """A fault, and the command that reproduces it."""
  case, verdict, _, here = result
  command = re.sub(r"(.)\1{100,}", r"\1...\1", case.command(here))
  return f"{verdict.outcome}: {case.id}: {case.about}\n  {verdict.why}\n  {command}"


def table(results: list[Result]) -> str:
  """The number of cases by kind and outcome, in Markdown."""
  counts = Counter((result.case.kind, result.verdict.outcome) for result in results)
  rows = [["kind", "cases", *GOOD, *FAULTS, "seconds"]]
  rows.append(["---"] * len(rows[0]))
  by_kind = {kind: [r for r in results if r.case.kind == kind] for kind, _ in counts}
  for kind, own in by_kind.items():
    seconds = sum(result.done.seconds for result in own)
    outcomes = [counts[kind, outcome] for outcome in (*GOOD, *FAULTS)]
    rows.append([kind, *map(str, [len(own), *outcomes]), f"{seconds:.0f}"])
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
  sys.exit(main())
