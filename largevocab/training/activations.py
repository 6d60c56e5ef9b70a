"""Applies the network to a batch, which gives an activation for each target."""

from typing import Any

import jax
import jax.numpy as jnp

from largevocab.data.batches import Batch
from largevocab.errors import UserError
from largevocab.training.settings import Experiment

PyTree = Any


def activations(
  exp: Experiment,
  params: PyTree,
  rows_BTE: jax.Array,
  carry: PyTree,
  batch: Batch,
  **how: Any,
) -> tuple[jax.Array, PyTree]:
  """h of each target, f32[N, D], and the recurrent state after the batch.

  Args:
    rows_BTE: the inputs, looked up.
    carry: the recurrent state before the batch; reset to zeros if the batch says so.
    how: further arguments of `exp.model.apply`.

  Raises:
    UserError: the network has too few activations.
  """
  carry = jax.tree.map(lambda c: jnp.where(batch.start, 0, c), carry)
  h_BTD, carry = exp.model.apply({"params": params}, rows_BTE, carry, **how)
  if batch.at is not None:
    return at_steps(h_BTD, jnp.asarray(batch.at)), carry
  return of_targets(h_BTD, len(batch.y.ids_NP)), carry


def at_steps(h_BTD: jax.Array, at_B: jax.Array) -> jax.Array:
  """One activation per example, f32[B, D]: that of its step, or the only one.

  >>> at_steps(jnp.array([[[1.0], [2.0]], [[3.0], [4.0]]]), jnp.array([1, 0])).tolist()
  [[2.0], [3.0]]
  """
  if h_BTD.shape[1] == 1:
    return h_BTD[:, 0]
  return jnp.take_along_axis(h_BTD, at_B[:, None, None], axis=1)[:, 0]


def of_targets(h_BTD: jax.Array, num: int) -> jax.Array:
  """The activations of N targets, f32[N, D]: the last N / B of each example.

  On text, each input has a target. A history has one target, the next item, for which h
  of the last item is used.

  Raises:
    UserError: the network has too few activations.

  >>> h_BTD = jnp.arange(6.0).reshape(2, 3, 1)
  >>> of_targets(h_BTD, 2).ravel().tolist(), of_targets(h_BTD, 6).ravel().tolist()
  ([2.0, 5.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
  """
  num_examples, length, width = h_BTD.shape
  each, rest = divmod(num, num_examples)
  if rest or each > length:
    raise UserError(
      f"the data has {each} labels per example, but the network has {length} "
      "activation per example: set model.name to 'lstm', 'gru' or 'transformer', which "
      "read sequences, or, if the data has it, data.one_label=True"
    )
  return h_BTD[:, length - each :].reshape(-1, width)
