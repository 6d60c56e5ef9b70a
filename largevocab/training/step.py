"""The training step, independent of the method: a head gets h and the labels, returns
the loss and its gradient with respect to h, and then updates itself."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from largevocab.data.batches import Batch
from largevocab.placement import placed, row_major
from largevocab.rows import sq_norm
from largevocab.training.activations import activations
from largevocab.training.input_rows import gradients, look_up
from largevocab.training.settings import Experiment
from largevocab.training.spread import by_examples, inputs_of, places
from largevocab.training.state import State


def train_step(state: State, batch: Batch, lr: jax.Array, *, exp: Experiment) -> State:
  """One update of network, inputs and head, clipped by their joint gradient norm."""
  k_net, k_head = jax.random.split(jax.random.fold_in(state.key, state.step))
  batch = by_examples(exp, batch)
  tables = state.inputs, state.head
  rows_BTE = look_up(exp, *tables, batch.x)

  def network(params, rows_BTE):
    how = {"train": True, "rngs": {"dropout": k_net}}
    return activations(exp, params, rows_BTE, state.carry, batch, **how)

  h_ND, pull_back, carry = jax.vjp(network, state.params, rows_BTE, has_aux=True)
  out = exp.head.backward(state.head, h_ND, batch.y, k_head)
  g_params, g_rows_BTE = pull_back(out.dh_ND)
  g_inputs, out = gradients(exp, *tables, batch.x, g_rows_BTE, out)

  norm = jnp.sqrt(sq_norm(g_params) + sq_norm(g_inputs) + out.sq_norm)
  clip = exp.train.clip_norm
  scale = clip / jnp.maximum(norm, clip) if clip else jnp.float32(1)
  g_params = jax.tree.map(lambda g: scale * g, g_params)
  tx = exp.optimizer.transformation()
  direction, opt = tx.update(g_params, state.opt, state.params)
  is_new_bad = (state.bad_step < 0) & ~(jnp.isfinite(out.loss) & jnp.isfinite(norm))
  return State(
    step=state.step + 1,
    key=state.key,
    params=jax.tree.map(lambda p, d: p - lr * d, state.params, direction),
    opt=opt,
    inputs=inputs_of(exp).update(state.inputs, g_inputs, lr, scale),
    head=exp.head.update(state.head, out.grads, lr * exp.train.head_lr_factor, scale),
    carry=carry,
    loss_sum=state.loss_sum + out.loss,
    bad_step=jnp.where(is_new_bad, state.step, state.bad_step),
  )


def compiled_steps(exp: Experiment, state: State) -> tuple[State, Any, Any]:
  """The state, and `train_step` and the head's `refresh`, compiled for states like it,
  which they donate. Tables are updated in place; those of which a step touches few rows
  are row-major."""
  how, is_sparse = places(exp, state), getattr(exp.head, "row_sparse", False)
  how = how._replace(
    inputs=row_major(state.inputs, how.inputs),
    head=row_major(state.head, how.head) if is_sparse else how.head,
  )
  step = jax.jit(
    functools.partial(train_step, exp=exp),
    in_shardings=(how, None, None),
    out_shardings=how,
    donate_argnums=0,
  )
  refresh = jax.jit(
    exp.head.refresh,
    in_shardings=(how.head, None),
    out_shardings=how.head,
    donate_argnums=0,
  )
  return placed(state, how), step, refresh


def monitor(state: State, batch: Batch, *, exp: Experiment) -> dict[str, jax.Array]:
  """The head's diagnostics on a batch that has not been trained on yet."""
  batch = by_examples(exp, batch)
  rows_BTE = look_up(exp, state.inputs, state.head, batch.x)
  h_ND, _ = activations(exp, state.params, rows_BTE, state.carry, batch)
  number = jnp.uint32(3 << 30) + state.step.astype(jnp.uint32)  # not used by steps
  key = jax.random.fold_in(state.key, number)
  return exp.head.monitor(state.head, h_ND, batch.y, key)
