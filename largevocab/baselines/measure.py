"""Computes exact metrics of a baseline on held-out data, as for a network."""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.base import HeldOutBatches
from largevocab.data.batches import Batch
from largevocab.evaluation import moments
from largevocab.evaluation.evaluate import (
  finished,
  num_ranked,
  propensity_weights,
  retrieved,
)
from largevocab.evaluation.moments import Moments
from largevocab.labels import Counts
from largevocab.training.settings import Experiment


class Baseline(Protocol):
  """A distribution of the class, given the previous class."""

  def log_p(self, context_N: np.ndarray, ids_NP: np.ndarray) -> np.ndarray:
    """f64[N, P], log-probabilities of classes in nats."""
    ...

  def top_k(self, context_N: np.ndarray, k: int) -> np.ndarray:
    """i32[N, k], the most probable classes, best first."""
    ...


def measure(
  model: Baseline, exp: Experiment, counts: Counts, batches: HeldOutBatches
) -> dict[str, float]:
  """Computes the metrics of `largevocab.evaluation.evaluate.Evaluate` for a baseline.

  Args:
    model: the baseline.
    exp: the experiment, whose `eval` selects the metrics.
    counts: class counts of the training data.
    batches: batches of a split, from `largevocab.evaluation.evaluate.held_out`.

  Raises:
    UserError: no example has a label.

  Cost: O(N P log V), and for ranking metrics O(V) for each distinct context.
  """
  num_classes = counts.num_classes
  inverse_propensity_V = propensity_weights(exp, counts)

  @jax.jit
  def sums(nll_N: jax.Array, batch: Batch, best_NK: jax.Array | None):
    metrics = {"nll": nll_N}
    if best_NK is not None:
      metrics |= retrieved(exp, best_NK, batch, num_classes, inverse_propensity_V)
    return moments.sums(metrics, jnp.sum(batch.y.w_NP, axis=1))

  seen = Moments()
  for batch in batches:
    context_N, w_NP = np.asarray(batch.y.context_N), np.asarray(batch.y.w_NP)
    nll_N = _nll(model, context_N, np.asarray(batch.y.ids_NP), w_NP)
    num = num_ranked(exp, batch, counts.num_classes)
    best_NK = model.top_k(context_N, num) if num else None
    summed = sums(nll_N.astype(np.float32), batch, best_NK)
    seen.add(summed, np.sum(w_NP, axis=1, dtype=np.float64))
  return finished(exp, seen, batches)


def _nll(
  model: Baseline, context_N: np.ndarray, ids_NP: np.ndarray, w_NP: np.ndarray
) -> np.ndarray:
  """-log p, f64[N], as a weighted mean over the true classes; 0 if there are none."""
  is_true_NP = w_NP > 0
  log_p_NP = model.log_p(context_N, np.where(is_true_NP, ids_NP, 0))
  weight_N = np.sum(w_NP, axis=1)
  # Padding may stand for a class of probability 0.
  sum_N = -np.sum(w_NP * np.where(is_true_NP, log_p_NP, 0), axis=1)
  return sum_N / np.where(weight_N > 0, weight_N, 1)
