"""Figures 1 and 2 of Barber & Botev 2016: losses in place of the likelihood.

How well do losses that read few classes stand in for the likelihood?

  python experiments/likelihood_toy/run.py --figure 1
  python experiments/likelihood_toy/run.py --figure 2
  python experiments/likelihood_toy/run.py --search     # where RATES come from

The problem is softmax regression on synthetic data. All methods start from the same
initial rows and read the same minibatches. At points along the way these are measured
over all training inputs:

  log_likelihood  exact log likelihood, mean per example, nats
  bias_exact      natural logarithm of mean |p - p'| over inputs and classes; p' is of
                  the model trained with the exact gradient, at the same iteration
  bias_true       as bias_exact; p' is of the model that the labels were drawn from

A figure's results replace those of the same methods in results.jsonl. The plots go to
the directory `figures`. Both figures hold `exact` and `ranking, alpha=log(C-1)`.
"""

import argparse
import functools
import math
import pathlib
import sys
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.synthetic.softmax_regression import (
  KnownRegression,
  SoftmaxRegression,
)
from largevocab.errors import UserError
from largevocab.heads import Full, Sampled
from largevocab.labels import Targets
from largevocab.losses import (
  NCE,
  BlackOut,
  Importance,
  NegativeSampling,
  Ranking,
  SampledLoss,
  SampledSoftmax,
  UpperBound,
)
from largevocab.rows import Momentum
from largevocab.samplers import Bernoulli, Sampler, Uniform, Unigram
from largevocab.tools import entry
from largevocab.tools.plots import drawing
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import seeds

HERE = pathlib.Path(__file__).resolve().parent

EXACT = "exact"
IMPORTANCE = "complement, importance, q=f+1"
CORRECTED = "importance, true class corrected too"
RANKING = "ranking, alpha=log(C-1)"
BLACKOUT = "BlackOut"
NCE_ONE, NCE_OWN = "NCE, z=1", "NCE, z learned for each example"
NEGATIVE_SAMPLING = "negative sampling"
MEAN_SAMPLING = "negative sampling, mean of the negatives"
BOUND = "bound, Bernoulli, b=(f+1)^a"
PLAIN = "plain importance, q=f+1"
ALPHAS = ("0", "1", "3", "5", "log(C-1)", "8", "10")
NEGATIVES = 20  # K, for each example

# The learning rates at which these methods end at the highest exact likelihood on
# separate data. They come from --search, whose table is in README.md. The other methods
# share one of these rates. The bound has a rate below the grid, on which it diverges.
RATES = {
  IMPORTANCE: 0.03,
  RANKING: 0.03,
  BLACKOUT: 0.03,
  CORRECTED: 0.1,
  NCE_ONE: 0.001,
  NCE_OWN: 0.03,
  NEGATIVE_SAMPLING: 0.003,
  MEAN_SAMPLING: 0.03,
  BOUND: 0.0003,
}
GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SEARCH_SEED = 100

METRICS = ("log_likelihood", "bias_exact", "bias_true")
AXES = {
  "log_likelihood": "- exact log likelihood, nats",
  "bias_exact": "log mean |p - p of exact training|",
  "bias_true": "log mean |p - p of the true model|",
}
# The metric that each figure shows beside the likelihood.
BIAS = {1: "bias_true", 2: "bias_exact"}
CURVE_DIGITS = 4


@dataclass(frozen=True)
class Setting:
  """The setting of the caption of figure 2; we chose what the caption does not give.

  Attributes:
    num_classes, num_examples, dim: C, N and D.
    batch_size: Number of examples in a step.
    momentum: Momentum of all methods.
    init_scale: Rows start uniform in [-init_scale, init_scale].
    iterations: Number of steps.
    points: Number of evenly spaced measurements.
  """

  num_classes: int = 1000
  num_examples: int = 2000
  dim: int = 100
  batch_size: int = 50
  momentum: float = 0.99
  init_scale: float = 0.05
  iterations: int = 2000
  points: int = 40

  def __post_init__(self):
    if self.points < 1 or self.iterations % self.points:
      raise UserError(
        f"--iterations is {self.iterations} and --points {self.points}: "
        "--iterations must be a multiple of --points"
      )


class Method(NamedTuple):
  """A head and its learning rate."""

  head: Full | Sampled
  lr: float


def methods(setting: Setting) -> dict[str, Method]:
  """All methods that are compared, by name."""
  common = {
    "bias": False,  # the paper's score is <w_c, x>
    "init_scale": setting.init_scale,
    "optimizer": Momentum(setting.momentum),
  }
  drawn = {**common, "num_samples": NEGATIVES}
  uniform, frequency = Uniform(per_example=True), Unigram(per_example=True)
  # With f, as in the paper, classes without training examples are never drawn.
  paper = {"smoothing": 0.0, "per_example": True}
  samplers = {
    "complement, importance, q=f": Unigram(**paper),
    "complement, Bernoulli, b=f^a": Bernoulli(inclusion="power", **paper),
    IMPORTANCE: frequency,
    "complement, Bernoulli, b=min(1, lam (f+1))": Bernoulli(per_example=True),
    "complement, importance, q uniform": uniform,
  }
  rankings = {
    f"ranking, alpha={alpha}": Sampled(
      loss=Ranking(alpha=alpha.replace("C", "V")), sampler=uniform, **drawn
    )
    for alpha in ALPHAS
  }
  own_z = NCE(normalizer="context", num_contexts=setting.num_examples)
  by_root = Unigram(power=0.5, per_example=True)
  by_power = Bernoulli(inclusion="power", per_example=True)
  losses: dict[str, tuple[SampledLoss, Sampler]] = {
    CORRECTED: (SampledSoftmax(correct_positive=True), frequency),
    BLACKOUT: (BlackOut(), by_root),
    NCE_ONE: (NCE(), frequency),
    NCE_OWN: (own_z, frequency),
    NEGATIVE_SAMPLING: (NegativeSampling(), uniform),
    MEAN_SAMPLING: (NegativeSampling(mean=True), uniform),
    BOUND: (UpperBound(), by_power),
  }
  others = {
    name: Sampled(loss=loss, sampler=sampler, **drawn)
    for name, (loss, sampler) in losses.items()
  }
  shared = RATES[IMPORTANCE]
  plain = Sampled(loss=Importance(), sampler=frequency, **drawn)
  return {
    EXACT: Method(Full(**common), shared),
    PLAIN: Method(plain, shared),
    **{n: Method(Sampled(sampler=s, **drawn), shared) for n, s in samplers.items()},
    **{name: Method(head, RATES[RANKING]) for name, head in rankings.items()},
    **{name: Method(head, RATES[name]) for name, head in others.items()},
  }


def of_figure(names: list[str], figure: int) -> list[str]:
  """The methods that a figure compares.

  >>> of_figure(["exact", "ranking, alpha=1", "BlackOut"], 1)
  ['exact', 'ranking, alpha=1']
  """
  is_ranking = lambda name: name.startswith("ranking")
  if figure == 1:
    return [name for name in names if name == EXACT or is_ranking(name)]
  return [name for name in names if name == RANKING or not is_ranking(name)]


class Problem(NamedTuple):
  """Training examples and the true distribution of their labels.

  Attributes:
    x_ND: Inputs, f32[N, D].
    ids_N: Labels, i32[N].
    p_NC: True probabilities of the labels, f32[N, C].
  """

  x_ND: jax.Array
  ids_N: jax.Array
  p_NC: jax.Array


def problem_of(data: KnownRegression) -> Problem:
  x_ND = data.train.x_ND
  p_NC = np.exp(data.true_log_prob(x_ND)).astype(np.float32)
  return Problem(*map(jnp.asarray, (x_ND, data.train.ids_N, p_NC)))


@functools.partial(jax.jit, static_argnames="head", donate_argnames="state")
def advance(
  head: Full | Sampled,
  state: Any,
  problem: Problem,
  at_SB: jax.Array,
  key: jax.Array,
  lr: float,
) -> Any:
  """The state after a step for each row of at_SB, i32[S, B], numbers of examples."""

  def step(state, now):
    number, at_B = now
    y = Targets(problem.ids_N[at_B][:, None], jnp.ones((len(at_B), 1)), at_B)
    key_step = jax.random.fold_in(key, number)
    out = head.backward(state, problem.x_ND[at_B], y, key_step)
    return head.update(state, out.grads, lr, 1.0), None

  return jax.lax.scan(step, state, (jnp.arange(len(at_SB)), at_SB))[0]


@jax.jit
def predict(w_CD: jax.Array, problem: Problem) -> tuple[jax.Array, jax.Array]:
  """The exact log likelihood and the probabilities, f32[N, C]."""
  log_p_NC = jax.nn.log_softmax(problem.x_ND @ w_CD.T)
  of_labels_N = jnp.take_along_axis(log_p_NC, problem.ids_N[:, None], axis=1)
  return jnp.mean(of_labels_N), jnp.exp(log_p_NC)


@jax.jit
def log_difference(p_NC: jax.Array, other_NC: jax.Array) -> jax.Array:
  """log mean |p - p'|."""
  return jnp.log(jnp.mean(jnp.abs(p_NC - other_NC)))


Curve = dict[str, list[float]]  # by metric, a number for each point


def compare(
  setting: Setting, compared: dict[str, Method], seed: int
) -> dict[str, Curve]:
  """The curves of methods; the first method is the reference of `bias_exact`.

  Args:
    setting: Sizes and schedule.
    compared: The methods, by name.
    seed: Seed of the data, the initial rows, the order and the negatives.
  """
  data = SoftmaxRegression(
    num_classes=setting.num_classes,
    num_examples=setting.num_examples,
    dim=setting.dim,
    seed=seed,
  ).load()
  problem = problem_of(data)
  batches = data.training_batches(setting.batch_size, 1)
  every = setting.iterations // setting.points
  key_rows, key_draws = jax.random.split(jax.random.key(seed))
  states = {
    name: head.init(key_rows, data.counts, setting.dim)
    for name, (head, _) in compared.items()
  }
  curves: dict[str, Curve] = {name: {m: [] for m in METRICS} for name in compared}
  for point in range(setting.points):
    steps = range(point * every, (point + 1) * every)
    at_SB = np.stack([batches.batch(step).y.context_N for step in steps])
    key = jax.random.fold_in(key_draws, point)
    first_p_NC = None
    for name, (head, lr) in compared.items():
      states[name] = advance(head, states[name], problem, at_SB, key, lr)
      likelihood, p_NC = predict(states[name].table.w_VD, problem)
      first_p_NC = p_NC if first_p_NC is None else first_p_NC
      curve = curves[name]
      curve["log_likelihood"].append(float(likelihood))
      curve["bias_exact"].append(float(log_difference(p_NC, first_p_NC)))
      curve["bias_true"].append(float(log_difference(p_NC, problem.p_NC)))
  return curves


def search(setting: Setting) -> None:
  """Prints the final log_likelihood of the methods of RATES at each rate of GRID."""
  setting = replace(setting, points=1)
  every = methods(setting)
  print("| method |", *(f"{lr} |" for lr in GRID))
  print("| --- |", *("--- |" for _ in GRID))
  for name in RATES:
    compared = {str(lr): every[name]._replace(lr=lr) for lr in GRID}
    curves = compare(setting, compared, SEARCH_SEED)
    cells = (f"{curve['log_likelihood'][-1]:.4f} |" for curve in curves.values())
    print(f"| {name} |", *cells, flush=True)


def run(setting: Setting, figure: int, num_seeds: int) -> list[Record]:
  """A record for each method of a figure and each seed.

  Raises:
    UserError: a method diverged.
  """
  every = methods(setting)
  names = of_figure(list(every), figure)
  compared = {name: every[name] for name in names}
  machine = records.measured_here()
  rows = []
  for seed in range(num_seeds):
    for name, curve in compare(setting, compared, seed).items():
      lr = compared[name].lr
      if not all(map(math.isfinite, curve["log_likelihood"])):
        raise UserError(f"{name} diverges with a rate of {lr}; see --search")
      if name == EXACT:
        del curve["bias_exact"]  # log 0
      row = records.report_row(
        name,
        {"run": f"{name}, seed={seed}", "overrides": {"lr": lr, "seed": seed}},
        {metric: values[-1] for metric, values in curve.items()},
        {key: getattr(setting, key) for key in ("iterations", "num_classes")},
        machine,
        {"curves": {m: [short(value) for value in v] for m, v in curve.items()}},
      )
      rows.append(row)
    print(f"figure {figure}: seed {seed} is done", file=sys.stderr, flush=True)
  return rows


def short(value: float) -> float:
  """The value rounded to few digits, which keeps the file small.

  >>> short(-3.14159265)
  -3.142
  """
  return float(f"{value:.{CURVE_DIGITS}g}")


def merged(old: list[Record], new: list[Record], names: list[str]) -> list[Record]:
  """The old and new records, in the order of names.

  New records replace all old ones of the same method. Old records of methods that are
  no longer compared are dropped.

  >>> one, two, anew = ({"name": n, "x": x} for n, x in (("a", 1), ("b", 1), ("b", 2)))
  >>> merged([two, one], [anew], ["a", "b"])
  [{'name': 'a', 'x': 1}, {'name': 'b', 'x': 2}]
  """
  kept = set(names) - {row["name"] for row in new}
  rows = [row for row in old if row["name"] in kept] + new
  return sorted(rows, key=lambda row: names.index(row["name"]))


def draw(rows: list[Record], names: list[str], figure: int):
  """Draws likelihood and bias over iterations, with means and ranges over seeds."""
  canvas = drawing.new_figure(11.5, 4.2)
  likelihood_ax, bias_ax = canvas.subplots(1, 2)
  groups = seeds.groups(row for row in rows if row["name"] in names)
  for number, members in enumerate(groups.values()):
    name = members[0]["name"]
    how = {"color": "black" if name == EXACT else f"C{(number - 1) % 10}"}
    how["ls"] = "--" if number > 10 else "-"
    for ax, metric in ((likelihood_ax, "log_likelihood"), (bias_ax, BIAS[figure])):
      if metric not in members[0]["curves"]:
        continue
      y_RP = np.array([row["curves"][metric] for row in members])
      y_RP = -y_RP if metric == "log_likelihood" else y_RP
      x_P = np.linspace(0, members[0]["iterations"], y_RP.shape[1] + 1)[1:]
      ax.plot(
        x_P, y_RP.mean(axis=0), label=name if ax is likelihood_ax else None, **how
      )
      ax.fill_between(
        x_P, *(f(y_RP, axis=0) for f in (np.min, np.max)), alpha=0.15, **how
      )
  for ax, metric in ((likelihood_ax, "log_likelihood"), (bias_ax, BIAS[figure])):
    ax.grid(alpha=0.3)
    ax.set_xlabel("iterations")
    ax.set_ylabel(AXES[metric])
  likelihood_ax.set_yscale("log")
  likelihood_ax.invert_yaxis()  # better values are at the top, as in the paper
  canvas.legend(loc="outside right upper")
  return canvas


def parse_args(argv: list[str] | None) -> argparse.Namespace:
  parser = entry.Parser(__doc__)
  what = parser.add_mutually_exclusive_group(required=True)
  what.add_argument("--figure", type=int, choices=[1, 2])
  what.add_argument("--search", action="store_true", help="print a table of rates")
  parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
  parser.add_argument("--output", type=pathlib.Path, default=HERE)
  for field in fields(Setting):
    kind = type(field.default)
    parser.add_argument(f"--{field.name}", type=kind, default=field.default)
  return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
  args = parse_args(argv)
  setting = Setting(
    **{field.name: getattr(args, field.name) for field in fields(Setting)}
  )
  if args.search:
    search(setting)
    return 0
  path = args.output / "results.jsonl"
  # These fail now, not at the end.
  drawing.new_figure(1, 1)
  if path.exists():
    records.load(path)
  names = list(methods(setting))
  new = run(setting, args.figure, args.seeds)
  with records.changed(path, records.FIELDS) as by_run:
    rows = merged([*by_run.values()], new, names)
    by_run.clear()
    by_run.update({row["run"]: row for row in rows})
  canvas = draw(rows, of_figure(names, args.figure), args.figure)
  drawing.save(canvas, args.output / "figures", f"figure{args.figure}")
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("likelihood_toy", main))
