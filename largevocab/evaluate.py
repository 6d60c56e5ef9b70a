"""Exact metrics of a state on a stream of tokens."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.batches import evaluation_batches
from largevocab.experiment import Experiment
from largevocab.state import State, restore

_LOG = logging.getLogger("largevocab")
_SECONDS = 10.0  # between lines that tell how far a long evaluation is


class Stopped(Exception):
  """An evaluation was asked to stop."""


class Evaluate(Protocol):
  """Exact metrics of a state on tokens; `stopped` is asked before each batch.

  Raises:
    Stopped: `stopped` said so.
  """

  def __call__(
    self, state: State, tokens: np.ndarray, stopped: Callable[[], Any] = ...
  ) -> dict[str, float]: ...


def make_evaluate(exp: Experiment, first: int) -> Evaluate:
  """A function from state and tokens to weighted means of the head's exact metrics.

  Every token is predicted once. Where the head gives 'nll' (nats per token), 'ppl' =
  exp(nll) is added.

  Args:
    exp: network, head and the batch shape.
    first: the class before the first token.
  """
  model, head, settings = exp.model, exp.head, exp.eval

  @jax.jit
  def step(params, w_VE, head_state, carry, batch):
    h_BTD, carry = model.apply({"params": params}, w_VE[batch.x], carry)
    h_ND = h_BTD.reshape(-1, h_BTD.shape[-1])
    weight_N = jnp.sum(batch.y.w_NP, axis=1)
    metrics = head.evaluate(head_state, h_ND, batch.y)
    return carry, {k: jnp.sum(weight_N * v_N) for k, v_N in metrics.items()}

  def evaluate(
    state: State, tokens: np.ndarray, stopped: Callable[[], Any] = lambda: False
  ) -> dict[str, float]:
    carry = model.initial_carry(settings.batch_size)
    sums: dict[str, float] = {}
    told = time.monotonic()
    batches = evaluation_batches(tokens, settings.batch_size, settings.unroll, first)
    for number, batch in enumerate(batches, 1):
      if stopped():
        raise Stopped
      carry, part = step(state.params, state.inputs.w_VD, state.head, carry, batch)
      for key, value in part.items():
        sums[key] = sums.get(key, 0.0) + float(value)
      if time.monotonic() > told + _SECONDS:
        told = time.monotonic()
        _LOG.info("evaluated %d of %d batches", number, len(batches))
    means = {key: value / len(tokens) for key, value in sums.items()}
    if "nll" in means:
      means["ppl"] = math.exp(min(means["nll"], 700.0))
    return means

  return evaluate


def evaluate_workdir(exp: Experiment, workdir: str, which: str) -> dict[str, Any]:
  """Metrics of a run's 'latest' or 'best' checkpoint on validation and test data."""
  corpus, state = restore(exp, workdir, which)
  _LOG.info("evaluating the state after step %d", int(state.step))
  evaluate = make_evaluate(exp, corpus.vocabulary.eos)
  metrics: dict[str, Any] = {"step": int(state.step)}
  for split in ("valid", "test"):
    values = evaluate(state, getattr(corpus, split))
    metrics.update({f"{split}_{key}": value for key, value in values.items()})
  return metrics
