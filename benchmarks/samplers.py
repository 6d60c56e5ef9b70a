"""Benchmarks of samplers whose cost should depend on the draw, but not on V."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case
from benchmarks.zipf import zipf_counts
from largevocab import single_targets
from largevocab.samplers import Bernoulli
from largevocab.samplers.bernoulli import INCLUSIONS, BernoulliStats
from largevocab.tools.reports.measure import compare

KEY = jax.random.key(0)
Set = tuple[jax.Array, jax.Array]  # ids, and log inclusion probabilities; -inf: unused


def _sparse(sampler: Bernoulli, w_VD: jax.Array) -> Callable[..., Set]:
  h_ND, y = jnp.zeros((1, w_VD.shape[1])), single_targets(jnp.zeros(1, int))

  def draw(stats: BernoulliStats, key: jax.Array) -> Set:
    drawn = sampler.sample(stats, w_VD, key, h_ND, y)
    return drawn.ids, jnp.where(drawn.mask, drawn.log_expected, -jnp.inf)

  return draw


def _dense(m: int) -> Callable[..., Set]:
  """A random number for every class, and the ids of those in the set."""
  capacity = math.ceil(m + 7 * math.sqrt(m) + 10)

  def draw(stats: BernoulliStats, key: jax.Array) -> Set:
    b_V = jnp.exp(stats.log_expected_V)
    in_V = jax.random.uniform(key, b_V.shape) < b_V
    (ids,) = jnp.nonzero(in_V, size=capacity, fill_value=len(b_V))
    log_b = stats.log_expected_V.at[ids].get(mode="fill", fill_value=-jnp.inf)
    return ids, log_b

  return draw


def _timed(draw: Callable[..., Set], stats: BernoulliStats) -> Callable[[], Set]:
  drawn = jax.jit(draw)
  return lambda: drawn(stats, KEY)


def _error(draw: Callable[..., Set], stats: BernoulliStats, f_V: np.ndarray) -> float:
  """Errors of the mean size and of the estimate of sum f over many draws.

  They are in standard errors for independent inclusions.
  """
  b_V = np.exp(np.float64(stats.log_expected_V))
  drawn, draws = jax.jit(draw), 100
  sizes, sums = np.zeros(draws), np.zeros(draws)
  for i, key in enumerate(jax.random.split(jax.random.key(1), draws)):
    ids, log_b = map(np.asarray, drawn(stats, key))
    ids = ids[np.isfinite(log_b)]
    assert len(set(ids.tolist())) == len(ids), "a class is drawn twice"
    sizes[i], sums[i] = len(ids), (f_V[ids] / b_V[ids]).sum()
  off = np.array([sizes.mean() - b_V.sum(), sums.mean() - f_V.sum()])
  variance = np.array([(b_V * (1 - b_V)).sum(), (f_V**2 * (1 / b_V - 1)).sum()])
  error = float(np.abs(off / np.sqrt(variance / draws)).max())
  assert error < 4, f"the answers are off by {error} standard errors"
  return error


def bernoulli_draw(m: int = 1024) -> Iterator[Case]:
  """A set of about m classes: V = 1 M / 10 k, and a mask of all classes / sparse.

  Goal: at V = 1 M at most 1.5 times as long as at V = 10 k.
  """
  for inclusion in INCLUSIONS:
    sampler = Bernoulli(inclusion=inclusion)
    timed, errors = {}, {}
    for V in (10_000, 1_000_000):
      counts, w_VD = zipf_counts(V), jnp.zeros((V, 1))
      stats = sampler.init(counts, w_VD, m)
      draws = {"sparse": _sparse(sampler, w_VD), "dense": _dense(m)}
      for name, draw in draws.items():
        f_V = counts.unigram_V / counts.unigram_V.sum()
        errors[name, V] = _error(draw, stats, f_V)
        timed[name, V] = _timed(draw, stats)
    yield Case(
      f"sets of {m:,}, {inclusion}, V=1,000,000 / V=10,000",
      {"M": m, "error": max(errors["sparse", V] for V in (10_000, 1_000_000))},
      {
        **compare(timed["sparse", 1_000_000], timed["sparse", 10_000], seconds=10),
        "at_most": 1.5,
      },
    )
    for V in (10_000, 1_000_000):
      yield Case(
        f"sets of {m:,}, {inclusion}, mask of all classes / bernoulli, V={V:,}",
        {"M": m, "error": max(errors["sparse", V], errors["dense", V])},
        compare(timed["dense", V], timed["sparse", V], seconds=10),
      )


ROWS: dict[str, Callable[[], Iterator[Any]]] = {"bernoulli_draw": bernoulli_draw}
