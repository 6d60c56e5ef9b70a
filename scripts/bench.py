"""Speed and memory, as ratios measured side by side.

  python scripts/bench.py                                    # all benchmarks
  python scripts/bench.py --only sampled_step row_update
  python scripts/bench.py --output experiments/bench/results.jsonl

Prints one JSON object a line: a case, the median times of what is compared, and their
ratio. The answers are compared first. Times drift on a shared machine, so the functions
take turns, and a ratio is the median of those within a turn; quote no time without its
ratio. On CPU, fresh large arrays cost page faults: to see what is left without them,
set GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:\
glibc.malloc.trim_threshold=8589934592.
"""

import json
import os
import pathlib
import sys

import bench_adaptive
import bench_heads
import bench_kernel
import bench_lsh
import bench_peers
import bench_peers_optax
import bench_peers_softmax
import bench_rows
import bench_samplers
import bench_softmax
import bench_spherical
import bench_xmlc
import entry
import records

from largevocab.workdir import describe_machine

BENCHMARKS = {
  **bench_softmax.ROWS,
  **bench_rows.ROWS,
  **bench_kernel.ROWS,
  **bench_samplers.ROWS,
  **bench_lsh.ROWS,
  **bench_heads.ROWS,
  **bench_xmlc.ROWS,
  **bench_spherical.ROWS,
  **bench_adaptive.ROWS,
  **bench_peers.ROWS,
  **bench_peers_optax.ROWS,
  **bench_peers_softmax.ROWS,
}


def about_this_run() -> dict[str, object]:
  """What the times depend on."""
  machine = describe_machine()
  return {
    **{key: machine[key] for key in ("device", "num_devices", "python")},
    **machine["versions"],
    "page_faults": "glibc.malloc" not in os.environ.get("GLIBC_TUNABLES", ""),
    "git": machine["git"],
    "git_dirty": machine["git_dirty"],
  }


def main() -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument(
    "--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="instead of all"
  )
  parser.add_argument("--output", type=pathlib.Path, help="results.jsonl to update")
  args = parser.parse_args()
  about = about_this_run()
  for name in args.only:
    for case in BENCHMARKS[name]():
      record = {
        **{"run": f"{name}: {case.name}", "name": case.name},
        **{"config": "", "overrides": {}},
        **case.sizes,
        **case.figures,
        **about,
      }
      print(json.dumps(record), flush=True)
      if args.output:
        records.merge(args.output, [record])
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("bench", main))
