"""Benchmarks of exact steps whose cost is independent of V.

They follow table 1 of Vincent et al. 2015.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.case import Case, check_close
from benchmarks.zipf import zipf_batch
from largevocab import HeadStep, config, single_targets
from largevocab.heads import Hierarchical, Spherical
from largevocab.heads.base import total_weight
from largevocab.heads.linear import LinearHead
from largevocab.labels import as_counts
from largevocab.losses.spherical import SphericalLoss, SphericalSoftmax, Squared
from largevocab.ops.factored.steps import loss_naive, next_inverse
from largevocab.ops.factored.table import dot
from largevocab.tools.reports.measure import Stepper, compare, row_step
from largevocab.tools.reports.training_steps import TrainingSteps
from largevocab.training.settings import Experiment

N = 128
LM1B = 793_471  # classes of One Billion Word
LOSS = SphericalSoftmax(eps=1.0)
SMALL = 1e-6  # learning rate


@dataclass(frozen=True)
class Naive(LinearHead):
  """`Spherical` with all outputs and without factors: the naive model of the paper."""

  loss: SphericalLoss = LOSS

  def init(self, key, counts, dim):
    return self.random_rows(key, as_counts(counts).num_classes, dim)

  def backward(self, state, h_ND, y, key):
    loss = functools.partial(self.loss, num_classes=len(state))
    args = y.ids_NP, jnp.ones_like(y.w_NP), y.w_NP[:, 0] / total_weight(y)
    total = lambda w_VD, h_ND: loss_naive(w_VD, loss, self.features(h_ND), *args)
    value, (dw_VD, dh_ND) = jax.value_and_grad(total, (0, 1))(state, h_ND)
    return HeadStep(value, dh_ND, dw_VD, jnp.sum(jnp.square(dw_VD)))

  def update(self, state, grads, lr, scale):
    return state - lr * scale * grads


def operations(V: int, D: int) -> dict[str, float]:
  """Multiplications and additions of a step's matrix products, by formula."""
  return {"naive": 6 * N * V * D, "factored": 14 * N * D**2 + 12 * N**2 * D}


def stepper(head: Any, V: int, D: int) -> Stepper:
  """A step of the output layer alone: backward and update."""
  state = head.init(jax.random.key(0), jnp.ones(V, jnp.int32), D)
  return Stepper(row_step(head), state, *zipf_batch(N, V, D))


def output_layer() -> Iterator[Case]:
  """Steps of the output layer: many / few classes, and naive / factored.

  Goals: at most 1.3 times as long with 100 or 1000 times the classes; at 793,471
  classes 1000 times as fast as the naive step, with the same result. `predicted_ratio`
  excludes the naive step's elementwise passes over all outputs.
  """
  factored = Spherical(loss=LOSS, bias=False)
  for D, V in ((64, 10_000_000), (300, 1_000_000)):
    small, large = stepper(factored, 10_000, D), stepper(factored, V, D)
    yield Case(
      f"factored step, V={V:,} / V=10,000, D={D}",
      {"D": D, "N": N},
      {**compare(large, small, seconds=8), "at_most": 1.3},
    )
    del small, large
  for V in (10_000, 30_000, 100_000, 300_000, LM1B):
    D, naive = 300, Naive(bias=False)
    above, below = stepper(naive, V, D), stepper(factored, V, D)
    w_VD, ids_R = above(), jnp.arange(0, V, 7)
    rows_RD = factored.class_rows(below(), ids_R)
    error = check_close(rows_RD, w_VD[ids_R], 1e-4)
    counts = operations(V, D)
    predicted = {"predicted_ratio": counts["naive"] / counts["factored"]}
    sizes = {"V": V, "D": D, "N": N, "error": error}
    figures = compare(above, below, seconds=10)
    yield Case(
      f"output layer, naive / factored, V={V:,}",
      sizes,
      {**figures, **predicted, **({"at_least": 1000} if V == LM1B else {})},
    )
    below = stepper(Hierarchical(bias=False), V, D)
    figures = compare(above, below, seconds=10)
    yield Case(f"output layer, naive / hierarchical, V={V:,}", sizes, figures)


def naive_online(w_VD, h_ND, y, key):
  """The step of one example without factors: W <- W - lr 2 (W h - t) h^T, dL/dh."""
  do_V = 2 * dot(w_VD, h_ND[0]).at[y.ids_NP[0]].add(-1)
  return w_VD - SMALL * do_V[:, None] * h_ND, dot(do_V, w_VD)[None]


def online_step() -> Iterator[Case]:
  """Steps of one example by its squared error: all outputs / factors.

  `predicted_ratio` is V / (4 D), the paper's (section 3.5). The rate is so small that
  the same example can be repeated.
  """
  D, head = 300, Spherical(loss=Squared(), bias=False)
  for V in (100_000, LM1B):
    w_VD = Naive(bias=False).init(jax.random.key(0), jnp.ones(V, jnp.int32), D)
    state = head.init(jax.random.key(0), jnp.ones(V, jnp.int32), D)
    h_ND = jax.random.normal(jax.random.key(1), (1, D)) / D**0.5
    args = h_ND, single_targets([V // 2]), jax.random.key(2)
    above = Stepper(naive_online, w_VD, *args)
    below = Stepper(row_step(head, SMALL), state, *args)
    ids_R = jnp.arange(V // 2 - 50, V // 2 + 50)
    rows_RD = head.class_rows(below(), ids_R)
    error = check_close(rows_RD, above()[ids_R], 1e-4)
    error = max(error, check_close(below.output, above.output, 1e-4))
    yield Case(
      f"one example, squared error, naive / factored, V={V:,}",
      {"V": V, "D": D, "N": 1, "error": error},
      {**compare(above, below, seconds=10), "predicted_ratio": V / (4 * D)},
    )
    del above, below, state, w_VD


def ngram(head: Any) -> Experiment:
  """A 5-gram model with input rows and a hidden layer of width 300."""
  return Experiment(
    head=head,
    data=config.part("data", "zipf"),
    model=config.part("model", "ngram"),
    optimizer=config.part("optimizer", "sgd"),
    train=config.Training(batch_size=16, unroll=N // 16, lr=0.1, clip_norm=0.0),
  )


def whole_model() -> Iterator[Case]:
  """Training steps of a 5-gram model: naive / other heads."""
  data = config.part("data", "zipf", num_classes=LM1B, num_tokens=200_000).load()
  naive = TrainingSteps(ngram(Naive()), data)
  for name, head in (
    ("factored", Spherical(loss=LOSS)),
    ("hierarchical", Hierarchical()),
  ):
    below = TrainingSteps(ngram(head), data)
    error = abs(below.loss / naive.loss - 1)
    assert name != "factored" or error < 1e-5, f"the loss is off by {error}"
    yield Case(
      f"whole model, naive / {name}, V={LM1B:,}",
      {"V": LM1B, "D": 300, "N": N},
      compare(naive, below, seconds=10),
    )
    del below


def inverse_of_u() -> Iterator[Case]:
  """H U^-1 with the new U: by solving D x D equations / from an updated inverse.

  A step needs this product. The equations are solved in every step; the inverse is
  updated by steps (Vincent et al. 2015, section 3.6).
  """
  D, keys = 300, jax.random.split(jax.random.key(0), 2)
  u_DD = jnp.eye(D) + 0.3 / D**0.5 * jax.random.normal(keys[0], (D, D))
  u_inv_DD = jnp.linalg.inv(u_DD)

  def next_u(h_ND, g_N):
    return u_DD - dot(dot(u_DD, h_ND.T) * g_N, h_ND)

  @jax.jit
  def anew(h_ND, g_N):
    u_now_DD = next_u(h_ND, g_N)
    return u_now_DD, jnp.linalg.solve(u_now_DD.T, h_ND.T).T

  @jax.jit
  def kept(h_ND, g_N):
    _, back_ND = inverses = next_inverse(u_inv_DD, h_ND, g_N)
    return next_u(h_ND, g_N), back_ND, inverses

  for num in (1, 16, 128, 512):
    h_ND = jax.random.normal(keys[1], (num, D)) / D**0.5
    args = h_ND, jnp.full(num, 0.1)
    error = check_close(anew(*args), kept(*args)[:2], 1e-4)
    yield Case(
      f"inverse of U, solved anew / kept, N={num}",
      {"D": D, "N": num, "error": error},
      compare(lambda args=args: anew(*args), lambda args=args: kept(*args), seconds=4),
    )


def spherical_step() -> Iterator[Case]:
  """The output layer alone, and whole models."""
  yield from output_layer()
  yield from whole_model()


ROWS: dict[str, Callable[[], Iterator[Any]]] = {
  "spherical_step": spherical_step,
  "online_step": online_step,
  "inverse_of_u": inverse_of_u,
}
