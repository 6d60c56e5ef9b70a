"""Times one matrix product for k classes and B examples.

  python -m largevocab.tools.product_report \\
    --output=experiments/product_time/results.jsonl
  python scripts/plot.py experiments/product_time/sweep.py

Times h_BD @ w_kD.T over k for a few B, as in figure 1 of Grave et al. 2017. Fits
equation 7 of its section 4.1, c + rate max(k0 B0, k B), to all times, and prints both.
--output writes the points as records, and replaces records of the same sizes, dtype and
device.

A time is the minimum over repetitions, since other programs can only increase it.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.fit_cost_model import (
  DTYPES,
  LEAST_POINTS,
  ProductSize,
  fit_product,
  fits,
  measured,
  product_seconds,
)
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record, measured_here
from largevocab.tools.tables import results_table

CLASSES = [4**e for e in range(10)]
EXAMPLES = [8, 64, 512, 2560]  # the last is the paper's: 128 streams of 20 words


def grid(
  classes: list[int], examples: list[int], dim: int, backend: str
) -> list[ProductSize]:
  """All combinations, except those that are too slow or large for this backend."""
  sizes = (
    ProductSize(k, B, dim) for B in sorted(set(examples)) for k in sorted(set(classes))
  )
  return [size for size in sizes if fits(size, backend)]


def report(sizes: list[ProductSize], dtype: str) -> list[Record]:
  """A record for each size, with the time as measured and as predicted by the fit."""
  about = measured_here()
  t_P = measured(product_seconds, sizes, jnp.dtype(dtype))
  fitted = fit_product(sizes, t_P)
  predicted_P = fitted([s.k for s in sizes], [s.B for s in sizes])
  print(fitted)
  return [
    records.report_row(
      f"B={B}, k={k}",
      {"run": f"k={k} B={B} d={d} {dtype} {about['device']}"},
      {"overrides": {"d": d, "dtype": dtype, "device": about["device"]}},
      {"k": k, "B": B, "d": d, "dtype": dtype},
      {"ms": 1e3 * float(t), "predicted_ms": 1e3 * float(predicted)},
      about,
    )
    for (k, B, d), t, predicted in zip(sizes, t_P, predicted_P, strict=True)
  ]


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("--classes", type=int, nargs="+", default=CLASSES, help="k, numbers of classes")
  add("--examples", type=int, nargs="+", default=EXAMPLES, help="B, batch sizes")
  add("--dim", type=int, default=512, help="d, width")
  add("--dtype", choices=DTYPES, default="float32")
  add("--output", type=pathlib.Path, help="results.jsonl to update")
  args = parser.parse_args(argv)
  entry.check_counts(args, "classes", "examples", "dim")
  entry.check_output(args.output)
  sizes = grid(args.classes, args.examples, args.dim, jax.default_backend())
  if len(sizes) < LEAST_POINTS:
    raise UserError(
      f"--classes, --examples and --dim={args.dim} give only {len(sizes)} sizes that "
      f"are small enough for this device; give at least {LEAST_POINTS}"
    )
  rows = report(sizes, args.dtype)
  print(results_table.table(rows, ["k", "B", "d", "ms", "predicted_ms"]))
  if args.output:
    records.merge(args.output, rows)
  return 0


def cli() -> int:
  return entry.run("product_report", main)


if __name__ == "__main__":
  sys.exit(cli())
