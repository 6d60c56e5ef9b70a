"""Exact metrics of a state on a stream of tokens."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.batches import evaluation_batches
from largevocab.experiment import Experiment


def make_evaluate(
  exp: Experiment, first: int
) -> Callable[[Any, np.ndarray], dict[str, float]]:
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

  def evaluate(state, tokens):
    carry = model.initial_carry(settings.batch_size)
    sums: dict[str, float] = {}
    shape = (settings.batch_size, settings.unroll)
    for batch in evaluation_batches(tokens, *shape, first):
      carry, part = step(state.params, state.inputs.w_VD, state.head, carry, batch)
      for key, value in part.items():
        sums[key] = sums.get(key, 0.0) + float(value)
    means = {key: value / len(tokens) for key, value in sums.items()}
    if "nll" in means:
      means["ppl"] = math.exp(min(means["nll"], 700.0))
    return means

  return evaluate
