"""Exact metrics of a state on held-out data."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from largevocab import inputs, retrieval
from largevocab.data.base import HeldOutBatches
from largevocab.errors import UserError
from largevocab.experiment import Experiment
from largevocab.labels import Counts
from largevocab.similarity import make_similarity
from largevocab.state import State, restore

_LOG = logging.getLogger("largevocab")
_SECONDS = 10.0  # between lines that tell how far a long evaluation is


class Stopped(Exception):
  """An evaluation was asked to stop."""


class Evaluate(Protocol):
  """Exact metrics of a state on batches; `stopped` is asked before each of them.

  Raises:
    Stopped: `stopped` said so.
    UserError: no example has a label.
  """

  def __call__(
    self, state: State, batches: HeldOutBatches, stopped: Callable[[], Any] = ...
  ) -> dict[str, float]: ...


def make_evaluate(exp: Experiment, counts: Counts) -> Evaluate:
  """A function from state and batches to weighted means of the head's exact metrics.

  `counts` are those of the training data.

  Where the head gives 'nll' (nats per example), 'ppl' = exp(nll) is added, and where it
  gives 'log_z', its standard deviation over examples 'log_z_sd'; with `eval.ranking_k`,
  'recall@k' and 'mrr@k', with `eval.precision_k` those of labels, see `retrieval`.
  Means are over examples that have a label, unless `eval.unlabelled` is 'count'.
  """
  model, head, k, ks = exp.model, exp.head, exp.eval.ranking_k, exp.eval.precision_k
  worth_V = retrieval.inverse_propensities(
    counts, exp.eval.propensity_a, exp.eval.propensity_b
  )

  @jax.jit
  def step(params, table, head_state, carry, worth_V, batch):
    rows_BTE = inputs.look_up(table, batch.x, model.embed)
    h_BTD, carry = model.apply({"params": params}, rows_BTE, carry)
    h_ND = h_BTD.reshape(-1, h_BTD.shape[-1])
    weight_N = jnp.sum(batch.y.w_NP, axis=1)
    metrics = head.evaluate(head_state, h_ND, batch.y)
    if exp.eval.top:
      best_NK, _ = head.top_k(head_state, h_ND, exp.eval.top)
      metrics |= retrieval.at_k(best_NK[:, :k], batch.y) if k else {}
      metrics |= retrieval.of_labels(best_NK, batch.y, worth_V, ks)
    if "log_z" in metrics:
      # From the batch's mean, so that little is lost to rounding.
      mean = jnp.average(metrics["log_z"], weights=jnp.maximum(weight_N, 1e-30))
      metrics["log_z_sq"] = jnp.square(metrics["log_z"] - mean)
    return carry, {k: jnp.sum(weight_N * v_N) for k, v_N in metrics.items()}

  def evaluate(
    state: State, batches: HeldOutBatches, stopped: Callable[[], Any] = lambda: False
  ) -> dict[str, float]:
    carry = model.initial_carry(batches.batch_size)
    sums: dict[str, float] = {}
    total = 0.0
    told = time.monotonic()
    for number, batch in enumerate(batches, 1):
      if stopped():
        raise Stopped
      tables = state.params, state.inputs, state.head
      carry, summed = step(*tables, carry, worth_V, batch)
      weight = float(np.sum(batch.y.w_NP, dtype=np.float64))
      part: dict[str, float] = {key: float(value) for key, value in summed.items()}
      if "log_z" in part and weight:
        part["log_z_sq"] += part["log_z"] ** 2 / weight
      for key, value in part.items():
        sums[key] = sums.get(key, 0.0) + value
      total += weight
      if time.monotonic() > told + _SECONDS:
        told = time.monotonic()
        _LOG.info("evaluated %d of %d batches", number, len(batches))
    if not total:
      raise UserError(
        "no example of the data to evaluate has a label: there is nothing to measure"
      )
    means = {key: value / total for key, value in sums.items()}
    if "nll" in means:
      means["ppl"] = math.exp(min(means["nll"], 700.0))
    if "log_z" in means:
      variance = means.pop("log_z_sq") - means["log_z"] ** 2
      means["log_z_sd"] = math.sqrt(max(variance, 0.0))
    counts_all = exp.eval.unlabelled == "count"
    return retrieval.finish(means, total / batches.num_examples if counts_all else 1.0)

  return evaluate


def evaluate_workdir(exp: Experiment, workdir: str, which: str) -> dict[str, Any]:
  """Metrics of a run's 'latest' or 'best' checkpoint on validation and test data."""
  data, state = restore(exp, workdir, which)
  _LOG.info("evaluating the state after step %d", int(state.step))
  evaluate, similarity = make_evaluate(exp, data.counts), make_similarity(exp, data)
  metrics: dict[str, Any] = {"step": int(state.step)}
  for split in ("valid", "test"):
    shape = (exp.eval.batch_size, exp.eval.unroll)
    values = evaluate(state, data.evaluation_batches(split, *shape))
    values |= similarity(state) if split == "valid" else {}
    metrics.update({f"{split}_{key}": value for key, value in values.items()})
  return metrics
