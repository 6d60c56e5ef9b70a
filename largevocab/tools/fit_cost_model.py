"""Fits a cost model: the time that this device takes for the classes of a cluster.

  python -m largevocab.tools.fit_cost_model --out=mine.json
  python -m largevocab.tools.fit_cost_model --out=b.json --dtype=bfloat16 --points=200

Times the step of a head on k classes, with rows of width d and B examples (exact loss,
gradients, SGD update of all rows), for sizes spread over all orders of magnitude. Fits
the formulas of `largevocab.ops.adaptive.cost_model` to the logarithms of the times, and
prints both. Use the file with `--config.head.cost_model=mine.json`.

A time is the minimum over repetitions, since other programs can only increase it.
Measure on an idle machine, on the cores used for training. This takes 5 minutes on a
CPU.
"""

import datetime
import functools
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares
from scipy.stats import qmc

from largevocab.errors import UserError
from largevocab.ops.adaptive.cost_model import CostModel, ProductTime, StepTime
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.plan import budget_bytes, plan
from largevocab.provenance import device_name
from largevocab.tools import entry
from largevocab.tools.reports.measure import Stepper, least_time
from largevocab.tools.tables import markdown as tables

DTYPES = ("float32", "bfloat16")
LEAST = 8  # minimum number of classes and examples, and minimum width
MOST_CLASSES, MOST_EXAMPLES, MOST_WIDTH = 500_000, 4096, 1024
ALIGN = 8
MOST_POINTS = 10_000
STARTS = 12  # number of starting points of a fit
LEAST_POINTS = 4  # minimum number of products, since their formula has 3 constants


class ProductSize(NamedTuple):
  """The size of a product: k classes, B examples, width d."""

  k: int
  B: int
  d: int


def limits(backend: str) -> tuple[float, float]:
  """Limits on products k B d, which take a second or two, and on tables k d."""
  return (8e9, 4e7) if backend == "cpu" else (5e12, 4e8)


def fits(size: ProductSize, backend: str) -> bool:
  """Whether a size is within the limits of this backend."""
  most_work, most_numbers = limits(backend)
  return (
    size.k * size.B * size.d <= most_work
    and max(size.k, size.B) * size.d <= most_numbers
  )


def step_sizes(num: int, backend: str) -> list[ProductSize]:
  """Sizes evenly spread in log k, log B and log d, except those that are too large."""
  at_most = np.log2([MOST_CLASSES, MOST_EXAMPLES, MOST_WIDTH])
  points = qmc.scale(qmc.Halton(3, seed=0).random(20 * num), 3, at_most)
  sizes: list[ProductSize] = []
  for log_k, log_B, log_d in points:
    rounded = lambda x: int(2**x) // ALIGN * ALIGN
    size = ProductSize(int(2**log_k), rounded(log_B), rounded(log_d))
    if fits(size, backend):
      sizes.append(size)
  return sizes[:num]


def product_sizes(num: int, dim: int, backend: str) -> list[ProductSize]:
  """Sizes of a matrix product, evenly spread in log k and log B, at one width."""
  flat = {(s.k, s.B): ProductSize(s.k, s.B, dim) for s in step_sizes(4 * num, backend)}
  return [size for size in flat.values() if fits(size, backend)][:num]


def operands(size: ProductSize) -> tuple[jax.Array, ...]:
  """Random rows, activations, true classes and weights."""
  rng = np.random.default_rng(0)
  w_VD = jnp.asarray(0.05 * rng.standard_normal((size.k, size.d)), jnp.float32)
  h_ND = jnp.asarray(rng.standard_normal((size.B, size.d)), jnp.float32)
  ids_NP = jnp.asarray(rng.integers(0, size.k, (size.B, 1)), jnp.int32)
  return w_VD, h_ND, ids_NP, jnp.full((size.B, 1), 1 / size.B)


def product_seconds(size: ProductSize, dtype: Any) -> float:
  """Time of one matrix product, as in section 4.1 of Grave et al. 2017."""
  w_VD, h_ND, *_ = (x.astype(dtype) for x in operands(size))
  product = jax.jit(lambda h_ND, w_VD: h_ND @ w_VD.T)
  return least_time(lambda: product(h_ND, w_VD))


def step_seconds(size: ProductSize, dtype: Any) -> float:
  """Time of a step: loss, gradients and update."""
  k, B, d = size
  how = plan(B, k, d, budget_bytes(0), compute_bytes=jnp.dtype(dtype).itemsize)

  def step(w_VD, h_ND, ids_NP, w_NP):
    loss = lambda h_ND, w_VD: softmax_loss(h_ND, w_VD, ids_NP, w_NP, how, dtype=dtype)
    value, (dh_ND, dw_VD) = jax.value_and_grad(loss, (0, 1))(h_ND, w_VD)
    return w_VD - 0.1 * dw_VD, (value, dh_ND)

  return least_time(Stepper(step, *operands(size)))


def fit(
  make: Callable[..., Any], starts: dict[str, float], sizes: np.ndarray, t_P: np.ndarray
) -> Any:
  """Fits positive constants by least squares on the logarithms of the times.

  Args:
    make: a class of the cost model, which makes a formula from errors and constants.
    starts: order of magnitude of each constant, by name.
    sizes: [P, ...], arguments of the formula.
    t_P: measured seconds.
  """
  of = lambda x: make(0, 0.0, 0.0, **dict(zip(starts, np.exp(x).tolist(), strict=True)))
  errors = lambda x: np.log(of(x)(*sizes.T)) - np.log(t_P)
  start = np.log(list(starts.values()))
  low, high = start - 14, start + 14  # keeps the log of a vanishing constant finite
  rng = np.random.default_rng(0)
  tries = [start, *(start + rng.uniform(-2, 2, len(start)) for _ in range(STARTS - 1))]
  found = [least_squares(errors, x, bounds=(low, high)) for x in tries]
  best = min(found, key=lambda result: result.cost)
  rounded = {
    key: float(f"{value:.4g}")
    for key, value in zip(starts, np.exp(best.x), strict=True)
  }
  rms, worst = math.sqrt(np.square(best.fun).mean()), np.abs(best.fun).max()
  return make(len(t_P), round(rms, 4), round(float(worst), 4), **rounded)


def fit_product(sizes: list[ProductSize], t_P: np.ndarray) -> ProductTime:
  """Fits the time of a product; all sizes must have the same width."""
  kB_P = np.array([(size.k, size.B) for size in sizes], np.float64)
  starts = {"constant": t_P.min(), "rate": (t_P / kB_P.prod(axis=1)).min()}
  starts["least"] = starts["constant"] / starts["rate"]
  dim = sizes[0].d
  return fit(functools.partial(ProductTime, dim=dim), starts, kB_P, t_P)


def fit_step(sizes: list[ProductSize], t_P: np.ndarray) -> StepTime:
  """Fits the time of a training step, for sizes of any widths."""
  kBd_P = np.array(sizes, np.float64)
  least = (t_P / kBd_P.prod(axis=1)).min()
  starts = {
    "constant": t_P.min(),
    "logit": 50 * least,
    "product": least,
    "row": 10 * least,
    "far": 30 * least,
    "near": 4e6,
  }
  return fit(StepTime, starts, kBd_P, t_P)


def measured(
  what: Callable[[ProductSize, Any], float], sizes: list[ProductSize], dtype: Any
) -> np.ndarray:
  """Seconds of `what(size, dtype)` at each size, with progress on standard error."""
  seconds = []
  for i, size in enumerate(sizes, start=1):
    seconds.append(what(size, dtype))
    text = f"{i} of {len(sizes)}: {size}"
    print(f"\r{text:60}", end="", file=sys.stderr, flush=True)
  print(file=sys.stderr)
  return np.array(seconds)


def comparison_table(
  name: str,
  model: Any,
  sizes: list[ProductSize],
  predicted_P: np.ndarray,
  t_P: np.ndarray,
) -> str:
  """Measured and predicted times, as a Markdown table."""
  rows = [
    [*map(str, size), f"{1e3 * t:.3g}", f"{1e3 * p:.3g}", f"{p / t:.2f}"]
    for size, p, t in sorted(zip(sizes, predicted_P, t_P, strict=True))
  ]
  header = ["k", "B", "d", "ms", "predicted ms", "ratio"]
  table = tables.markdown(header, rows)
  return f"{name}\n\n{table}\n\n{model}\n"


def fitted_model(
  steps: list[ProductSize], products: list[ProductSize], dtype: str
) -> CostModel:
  """Measures this device at these sizes, fits the cost model, and prints both."""
  t_P = measured(product_seconds, products, jnp.dtype(dtype))
  product = fit_product(products, t_P)
  predicted_P = np.array([product(size.k, size.B) for size in products])
  print(comparison_table("One product", product, products, predicted_P, t_P))

  t_P = measured(step_seconds, steps, jnp.dtype(dtype))
  step = fit_step(steps, t_P)
  predicted_P = np.array([step(*size) for size in steps])
  print(comparison_table("A training step", step, steps, predicted_P, t_P))

  today = datetime.date.today().isoformat()
  return CostModel(
    jax.default_backend(), device_name(), dtype, today, jax.__version__, product, step
  )


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("--out", type=pathlib.Path, help="default: PLATFORM-DTYPE-YEAR-MONTH.json")
  add("--dtype", choices=DTYPES, default="float32", help="dtype of the operands")
  add(
    "--points", type=int, default=120, help="number of steps, and half as many products"
  )
  add("--dim", type=int, default=512, help="width of the products")
  args = parser.parse_args(argv)
  if args.points < 20:
    raise UserError(f"--points={args.points}: must be at least 20, to fit 6 constants")
  if args.points > MOST_POINTS:
    raise UserError(f"--points={args.points}: must be at most {MOST_POINTS:,}")
  entry.check_counts(args, "dim")
  backend = jax.default_backend()
  month = datetime.date.today().isoformat()[:7]
  out = args.out or pathlib.Path(f"{backend}-{args.dtype}-{month}.json")
  if not out.parent.is_dir():
    raise UserError(f"--out={out}: there is no such directory; create it first")
  if out.is_dir():
    raise UserError(f"--out={out} is a directory: name a .json file")
  products = product_sizes(args.points // 2, args.dim, backend)
  if len(products) < LEAST_POINTS:
    raise UserError(
      f"--dim={args.dim}: too large for this device; choose a smaller one"
    )

  fitted_model(step_sizes(args.points, backend), products, args.dtype).save(out)
  print(f"written to {out}")
  return 0


def cli() -> int:
  return entry.run("fit_cost_model", main)


if __name__ == "__main__":
  sys.exit(cli())
