"""Measures speed and memory, as ratios of functions that take turns.

  python -m benchmarks.bench                                    # all benchmarks
  python -m benchmarks.bench --only sampled_step row_update
  python -m benchmarks.bench --output experiments/bench/results.jsonl
  python -m benchmarks.bench --seconds 3                        # less certain

Prints one JSON object per line: a case, the median times of the two functions, and
their ratio. Results are compared first where both compute the same. Times drift on a
shared machine, so the functions take turns, and the ratio is the median over turns; do
not quote a time without its ratio. On a CPU, new large arrays cause page faults: set
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 to measure with huge pages, as runs of sweeps do.
"""

import json
import math
import pathlib
import sys

from benchmarks import (
  adaptive,
  against_optax,
  against_peers,
  against_softmax,
  deterministic,
  heads,
  inputs,
  kernel,
  lsh,
  machine,
  ranking,
  rows,
  samplers,
  softmax,
  spherical,
  xmlc,
)
from largevocab.tools import entry
from largevocab.tools.reports import measure
from largevocab.tools.sweeps import records

BENCHMARKS = {
  **softmax.ROWS,
  **rows.ROWS,
  **kernel.ROWS,
  **samplers.ROWS,
  **lsh.ROWS,
  **heads.ROWS,
  **xmlc.ROWS,
  **inputs.ROWS,
  **spherical.ROWS,
  **adaptive.ROWS,
  **against_peers.ROWS,
  **against_optax.ROWS,
  **against_softmax.ROWS,
  **deterministic.ROWS,
  **machine.ROWS,
  **ranking.ROWS,
}


def main() -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument(
    "--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="default: all"
  )
  parser.add_argument("--output", type=pathlib.Path, help="results.jsonl to update")
  parser.add_argument(
    "--seconds",
    type=float,
    default=math.inf,
    help="time limit of a comparison, unless its turns need longer",
  )
  args = parser.parse_args()
  entry.check_output(args.output)
  about = measure.about_this_run()
  with measure.shortened(args.seconds):
    for name in args.only:
      for case in BENCHMARKS[name]():
        run = {"run": f"{name}: {case.name}"}
        record = records.report_row(case.name, run, case.sizes, case.figures, about)
        print(json.dumps(record), flush=True)
        if args.output:
          records.merge(args.output, [record])
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("bench", main))
