"""Compares the proposal distributions of samplers with the softmax of a trained model.

  python -m largevocab.tools.sampler_report --workdir=runs/ptb
  python -m largevocab.tools.sampler_report --workdir=runs/ptb --samplers=pps,unigram \\
    --num_samples=512

  python -m largevocab.tools.sampler_report --workdir=runs/ptb \\
    --samplers=quadratic_prior,quadratic_prior:rank=16:leaf_size=100

Takes activations h at positions spread over the validation data. At each position,
computes the exact softmax p of the model and the proposal distribution q of each
sampler, over all classes:

  tv       sum |p - q| / 2, the total variation distance
  chi2     sum (p - q)^2 / q = sum p^2 / q - 1, the chi-squared divergence
  ess      m / (1 + chi2), the effective sample size of m draws; `ess_share` is ess / m
  relvar   variance of Z~ / Z in the sampled loss, with an exact true class and sampled
           negatives. Independent draws: (sum p^2 / q - (sum p)^2) / m over all classes
           but the true one. Without replacement: sum p^2 (1 / pi - 1) with inclusion
           probabilities pi. This holds for independent inclusions (bernoulli). The
           variance is usually lower for systematic sampling (pps) of classes sorted by
           count. It is also usually lower if each part draws a fixed share (mixture),
           since such draws are less random than independent ones.
           Weights are plain, 1 / (m q). Heads weight independent draws given that they
           missed the true class (losses.complement_weights), mostly with less variance;
           relvar_report.py measures this over draws
  ms       time of a draw for all these positions at once, as in training
  ratio    this time over the time of a draw from the softmax itself, timed in turns

Samplers whose draws depend on other examples (cbns, sce, rece) are left out.

The first four are means over positions, with medians. Statistics are rebuilt from the
class table, as after several refreshes. `random_features` is not a sampler of the
package, but only a distribution to compare with; see random_features.py.

Prints a table, and writes --output (with the medians) and a .png and .svg beside it.
Needs memory for [--chunk, V] numbers, and for the draws of each sampler.
"""

import argparse
import dataclasses
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Full, Sampled
from largevocab.labels import Counts, Targets
from largevocab.ops.softmax.chunks import product
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers import SAMPLERS, Sampler, Softmax, sketch
from largevocab.samplers.base import Size, keeps_up
from largevocab.tools import entry
from largevocab.tools.plots import drawing
from largevocab.tools.reports import measure
from largevocab.tools.reports.positions import Positions
from largevocab.tools.reports.random_features import random_feature_law
from largevocab.tools.reports.specs import with_field
from largevocab.tools.reports.trained import experiment, refreshed, trained
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import markdown as tables, results_table

RANDOM_FEATURES = "random_features"
COLUMNS = [
  *("tv", "tv_median", "chi2", "chi2_median", "ess", "ess_share"),
  *("relvar", "relvar_median", "ms", "ratio"),
]
FORMULAS = {True: "inclusion", False: "independent"}  # names of formulas for relvar
FEATURE_SCALES = (2.0, 4.0, 8.0)  # at 1, long rows have a huge variance
KEY = jax.random.key(0)
SECONDS = 3.0  # seconds of timing per sampler
SAMPLES = 64  # number of samples if the head of the run has none
LEAST_CHI2 = 1e-3  # smallest value in the plot, since exact distributions have 0

# Expected counts of all classes in a draw, up to a factor: f64[V] or f64[N, V].
Law = Callable[[jax.Array, Targets], np.ndarray]


def figures(
  p_NV: np.ndarray, expected_NV: np.ndarray, y: Targets, m: int, at_most_once: bool
) -> dict[str, np.ndarray]:
  """tv, chi2, ess_share and relvar of each position; see the module docstring.

  A class with p > 0 that is never drawn makes chi2 and relvar infinite.

  Args:
    p_NV: f64[N, V], the softmax.
    expected_NV: f64[N, V], expected counts in a draw. A common factor matters only if
      they are inclusion probabilities.
    y: the true classes.
    m: number of independent draws.
    at_most_once: whether draws are without replacement, so that expected_NV are
      inclusion probabilities.

  >>> y = Targets(np.array([[0]]), np.ones((1, 1)), np.zeros(1))
  >>> law = figures(np.array([[0.5, 0.5]]), np.array([[3.0, 1.0]]), y, 4, False)
  >>> [(key, float(value_N[0].round(4))) for key, value_N in law.items()]
  [('tv', 0.25), ('chi2', 0.3333), ('ess_share', 0.75), ('relvar', 0.1875)]
  """
  size_N1 = expected_NV.sum(axis=1, keepdims=True)  # 0 if nothing can be drawn
  q_NV = expected_NV / np.where(size_N1 > 0, size_N1, 1)
  others_NV = p_NV.copy()
  n, i = np.nonzero(y.ids_NP < p_NV.shape[1])
  others_NV[n, np.asarray(y.ids_NP)[n, i]] = 0
  over = lambda a, b: np.divide(a, b, out=np.where(a > 0, np.inf, 0.0), where=b > 0)
  chi2_N = over((p_NV - q_NV) ** 2, q_NV).sum(axis=1)
  if at_most_once:
    relvar_N = (over(others_NV**2, expected_NV) - others_NV**2).sum(axis=1)
  else:
    relvar_N = over(others_NV**2, q_NV).sum(axis=1) - others_NV.sum(axis=1) ** 2
    relvar_N = relvar_N / m
  return {
    "tv": np.abs(p_NV - q_NV).sum(axis=1) / 2,
    "chi2": chi2_N,
    "ess_share": 1 / (1 + chi2_N),
    "relvar": relvar_N,
  }


def sampler_law(sampler: Sampler, stats: Any, w_VD: jax.Array) -> Law:
  """The expected counts that a sampler reports for all classes."""
  ids_V = jnp.arange(w_VD.shape[0])

  @jax.jit
  def log_expected(stats, w_VD, x_ND, y):
    return sampler.log_expected(stats, w_VD, x_ND, y, ids_V)

  return lambda x_ND, y: np.exp(
    np.asarray(log_expected(stats, w_VD, x_ND, y), np.float64)
  )


def judge(
  laws: dict[str, Law],
  head: Full | Sampled,
  w_VD: jax.Array,
  positions: Positions,
  m: int,
  chunk: int,
  distinct: set[str],
) -> dict[str, Record]:
  """Means and medians of the figures of each distribution.

  Draws from the distributions in `distinct` are without replacement.
  """

  @jax.jit
  def scores(w_VD, x_ND):
    return score_of(head.absolute)(product("nd,vd->nv", x_ND, w_VD, head.dtype))

  parts: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in laws}
  for part in positions.chunks(chunk):
    p_NV = softmax(np.asarray(scores(w_VD, part.x_ND), np.float64), axis=1)
    for name, law in laws.items():
      expected = law(part.x_ND, part.y)
      expected_NV = np.broadcast_to(expected, p_NV.shape)
      parts[name].append(figures(p_NV, expected_NV, part.y, m, name in distinct))
  judged = {}
  for name, chunks in parts.items():
    whole = {key: np.concatenate([c[key] for c in chunks]) for key in chunks[0]}
    judged[name] = {
      **{key: float(value_N.mean()) for key, value_N in whole.items()},
      **{f"{key}_median": float(np.median(v_N)) for key, v_N in whole.items()},
      "ess": m * float(whole["ess_share"].mean()),
      "relvar_formula": FORMULAS[name in distinct],
    }
  return judged


def timed(draw: Callable[[], Any], yardstick: Callable[[], Any]) -> Record:
  """Milliseconds of a draw, and their ratio to the milliseconds of `yardstick`."""
  took = measure.compare(draw, yardstick, seconds=SECONDS, min_turns=3)
  return {"ms": took["above_ms"], "ratio": took["ratio"]}


def sampler_of(text: str) -> Any:
  """A sampler from NAME or NAME:FIELD=VALUE:FIELD=VALUE.

  >>> sampler_of("pps:power=0.5").power
  0.5
  """
  name, *settings = text.split(":")
  sampler = config.part("sampler", name)
  for setting in settings:
    key, _, value = setting.partition("=")
    sampler = with_field(f"--samplers: {text}", sampler, key, value)
  return sampler


def statistics(
  sampler: Sampler, counts: Counts, w_VD: jax.Array, x_ND: jax.Array, m: int
) -> Any:
  """Statistics as after several refreshes; a sketch of activations has seen x_ND."""
  stats = sampler.init(counts, w_VD, m)
  if not keeps_up(sampler):
    return stats
  if getattr(stats, "sketch", None) is not None:
    stats = stats._replace(sketch=sketch.observe(stats.sketch, x_ND))
  refresh = jax.jit(sampler.refresh)
  return refreshed(lambda stats, key: refresh(stats, w_VD, key), stats)


def drawing_of(
  sampler: Sampler, stats: Any, w_VD: jax.Array, positions: Positions
) -> Callable[[], Any]:
  """A compiled draw for all positions."""
  sample = jax.jit(sampler.sample)
  key, (x_ND, y) = jax.random.key(0), positions
  return lambda: sample(stats, w_VD, key, x_ND, y)


def report(args: argparse.Namespace) -> list[Record]:
  """A record for each distribution that is available for the model and data.

  Raises:
    UserError: the head does not have one row per class, or no sampler is usable.
  """
  machine = records.measured_here()
  model = trained(args.workdir, args.checkpoint)
  _, head, data, state = model
  w_VD = model.w_VD
  m = args.num_samples or getattr(head, "num_samples", SAMPLES)
  h_ND, y = model.positions(args.positions)
  positions = Positions(head.features(h_ND), y)  # with the constant feature, if any
  ready = {}
  for name in args.samplers:
    if name == RANDOM_FEATURES:
      continue
    try:
      sampler = sampler_of(name)
      if hasattr(sampler, "absolute"):
        sampler = dataclasses.replace(sampler, absolute=head.absolute)
      if getattr(sampler, "of_batches", False):
        raise UserError("its law depends on other examples: use relvar_report.py")
      if getattr(sampler, "whole_leaves", False):
        raise UserError("its draws depend on one another; drop whole_leaves")
      stats = statistics(sampler, data.counts, w_VD, positions.x_ND, m)
      draw = jax.eval_shape(sampler.sample, stats, w_VD, KEY, *positions)
      if draw.exact_ids is not None:
        raise UserError(
          "it sums classes exactly, which its law leaves out: use relvar_report.py"
        )
      ready[name] = sampler, stats
    except UserError as error:
      print(f"without {name}: {error}", file=sys.stderr)
  laws = {name: sampler_law(*s, w_VD) for name, s in ready.items()}
  if RANDOM_FEATURES in args.samplers:
    for scale in FEATURE_SCALES:
      name = f"{RANDOM_FEATURES}, scale {scale:g}"
      laws[name] = random_feature_law(w_VD, head.absolute, scale)
  if not laws:
    raise UserError("no sampler is left to report on; name others in --samplers")
  distinct = {name for name, (s, _) in ready.items() if getattr(s, "distinct", False)}
  judged = judge(laws, head, w_VD, positions, m, args.chunk, distinct)
  yardstick = drawing_of(Softmax(absolute=head.absolute), Size(m), w_VD, positions)
  for name, (sampler, stats) in ready.items():
    draw = drawing_of(sampler, stats, w_VD, positions)
    judged[name].update(timed(draw, yardstick))
  about = {"checkpoint_step": int(state.step), "positions": len(positions.x_ND)}
  about.update(num_samples=m, num_classes=len(w_VD))
  return [records.report_row(*each, about, machine) for each in judged.items()]


def table(rows: list[Record]) -> str:
  """The figures as a Markdown table, and how they were measured."""
  cells = lambda row: [
    tables.summary([row[key]] if key in row else []) for key in COLUMNS
  ]
  body = [[row["name"], *cells(row)] for row in rows]
  first = rows[0]
  once = [r["name"] for r in rows if r["relvar_formula"] == FORMULAS[True]]
  bound = f"; of {', '.join(once)} by inclusion probabilities" if once else ""
  return (
    f"{tables.markdown(['law', *COLUMNS], body)}\n\n"
    f"m={first['num_samples']}, V={first['num_classes']:,}, {first['positions']} "
    f"positions, after step {first['checkpoint_step']}. relvar of independent draws"
    f"{bound}. {results_table.measured_on(rows)}"
  )


def draw_plot(rows: list[Record]):
  """Plots chi2 over milliseconds; distributions without a time are horizontal lines."""
  canvas = drawing.new_figure(7, 4)
  ax = canvas.subplots()
  ax.set_xscale("log")
  ax.set_yscale("log")
  shown = [row for row in rows if math.isfinite(row["chi2"])]
  for i, row in enumerate(shown):
    how = {"color": f"C{i % 10}", "label": row["name"]}
    if "ms" not in row:
      ax.axhline(row["chi2"], ls=(0, (i % 3 + 1, 2)), **how)
    elif row["chi2"] >= LEAST_CHI2:
      ax.plot(row["ms"], row["chi2"], "s" if i >= 10 else "o", **how)
    else:
      how["label"] += f", below {LEAST_CHI2:g}"
      ax.plot(row["ms"], LEAST_CHI2, "v", **how)
  ax.grid(alpha=0.3)
  ax.set_xlabel(f"milliseconds a draw, {rows[0]['positions']} positions")
  ax.set_ylabel("mean chi-square distance to the softmax")
  canvas.legend(loc="outside right upper")
  return canvas


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
  parser = entry.Parser(__doc__)
  names = lambda text: list(dict.fromkeys(text.split(",")))
  every = [*SAMPLERS, RANDOM_FEATURES]
  add = parser.add_argument
  add("--workdir", required=True, help="workdir of a run of largevocab.main")
  add("--checkpoint", choices=["latest", "best"], default="latest")
  many = f"of {','.join(every)}; may have fields, as in pps:power=0.75"
  add("--samplers", type=names, default=every, help=many)
  add("--positions", type=int, default=256, help="number of positions")
  default = f"m, negatives per draw; default: head.num_samples of the run, or {SAMPLES}"
  add("--num_samples", type=int, help=default)
  add("--chunk", type=int, default=32, help="positions enumerated at a time")
  add("--output", type=pathlib.Path, help="default: WORKDIR/sampler_report.jsonl")
  args = parser.parse_args(argv)
  entry.check_counts(args, "positions", "num_samples", "chunk")
  for name in args.samplers:
    if name.partition(":")[0] not in every:
      raise UserError(f"--samplers: unknown {name!r}; known: {', '.join(every)}")
    if name != RANDOM_FEATURES:
      sampler_of(name)  # raises now if it is invalid
  return args


def main(argv: list[str] | None = None) -> int:
  args = parse_args(argv)
  drawing.new_figure(1, 1)  # fails here without matplotlib, rather than at the end
  output = args.output or pathlib.Path(args.workdir, "sampler_report.jsonl")
  experiment(args.workdir)  # raises now if there is no such run
  entry.check_output(output)
  rows = report(args)
  print(table(rows))
  records.replace(output, rows)
  drawing.save(draw_plot(rows), output.parent, output.stem)
  return 0


def cli() -> int:
  return entry.run("sampler_report", main)


if __name__ == "__main__":
  sys.exit(cli())
