"""Writes results.jsonl of sweeps from their finished runs, without starting any.

  python -m largevocab.tools.collect experiments/ptb_sampled/sweep.py --root runs

Runs of experiments/NAME/sweep.py are read from ROOT/NAME, where scripts/run_sweep.py
writes them. Trials of a search go to search.jsonl. A run that has not finished there
keeps its line; lines that are removed or replaced go to results.removed.jsonl.
"""

import pathlib
import sys

from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.sweeps import sweepfile
from largevocab.tools.sweeps.campaign import Campaign
from largevocab.tools.sweeps.launch import Launcher


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("sweeps", nargs="+", type=pathlib.Path, metavar="sweep")
  parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("runs"))
  args = parser.parse_args(argv)
  status = 0
  for path in args.sweeps:
    root = args.root / path.resolve().parent.name
    found = Campaign(path, sweepfile.load(path), Launcher(root, []))
    try:
      found.collect(page=False)  # which would be written to ROOT
    except UserError as error:
      print(f"collect: {path}: {error}", file=sys.stderr)
      status = 1
      continue
    runs = [found.chosen(run) or run for run in found.sweep.runs]
    finished = sum((root / run.id / "result.json").exists() for run in runs)
    print(f"{path}: {finished} of {len(runs)} runs finished in {root}")
  return status


def cli() -> int:
  return entry.run("collect", main)


if __name__ == "__main__":
  sys.exit(cli())
