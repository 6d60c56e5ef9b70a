"""The training step, which is independent of the method.

A head gets h and the labels, returns the loss and its gradient with respect to h, and
then updates itself.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.data.batches import Batch
from largevocab.placement import placed, row_major
from largevocab.rows import accumulate, sq_norm
from largevocab.training.activations import activations
from largevocab.training.averages import settled, step_network
from largevocab.training.input_rows import gradients, look_up
from largevocab.training.settings import Experiment
from largevocab.training.sharding import by_examples, inputs_of, places
from largevocab.training.state import State


class _Gradients(NamedTuple):
  """The gradients and loss of a batch, and the squared norm of the head's gradient."""

  params: Any
  inputs: Any
  head: Any
  loss: jax.Array
  head_sq_norm: jax.Array


def train_step(
  state: State, batch: Batch | list[Batch], lr: jax.Array, *, exp: Experiment
) -> State:
  """Updates network, inputs and head once, clipped by their joint gradient norm.

  With several batches, the gradient is that of their mean loss at the same state.
  """
  k_net, k_head = jax.random.split(jax.random.fold_in(state.key, state.step))
  if isinstance(batch, Batch):
    grads, carry = _gradients(exp, state, batch, state.carry, k_net, k_head)
  else:
    grads, carry = _mean_gradients(exp, state, batch, k_net, k_head)
  norm = jnp.sqrt(sq_norm(grads.params) + sq_norm(grads.inputs) + grads.head_sq_norm)
  clip = exp.train.clip_norm
  scale = clip / jnp.maximum(norm, clip) if clip else jnp.float32(1)
  g_params = jax.tree.map(lambda g: scale * g, grads.params)
  params, opt = step_network(exp.optimizer, g_params, state.opt, state.params, lr)
  head_lr = lr * (exp.train.head_lr_factor or 1.0)
  is_new_bad = (state.bad_step < 0) & ~(jnp.isfinite(grads.loss) & jnp.isfinite(norm))
  return State(
    step=state.step + 1,
    key=state.key,
    params=params,
    opt=opt,
    inputs=inputs_of(exp).update(state.inputs, grads.inputs, lr, scale),
    head=exp.head.update(state.head, grads.head, head_lr, scale),
    carry=carry,
    loss_sum=state.loss_sum + grads.loss,
    bad_step=jnp.where(is_new_bad, state.step, state.bad_step),
  )


def _mean_gradients(exp, state, batches, k_net, k_head):
  """`_Gradients` of several batches in turn, and the recurrent state after them."""
  each, carry = [], state.carry
  for i, batch in enumerate(batches):
    keys = (jax.random.fold_in(key, i) for key in (k_net, k_head))
    grads, carry = _gradients(exp, state, batch, carry, *keys)
    each.append(grads)
  weights = jnp.stack([jnp.sum(batch.y.w_NP) for batch in batches])
  total = jnp.sum(weights)
  mean = accumulate(each, list(weights / jnp.where(total > 0, total, 1)))
  return mean._replace(head_sq_norm=exp.head.sq_norm(state.head, mean.head)), carry


def _gradients(exp, state, batch, carry, k_net, k_head):
  """`_Gradients` of one batch, and the recurrent state after it."""
  batch = by_examples(exp, batch)
  tables = state.inputs, state.head
  rows_BTE = look_up(exp, *tables, batch.x)

  def network(params, rows_BTE):
    how = {"train": True, "rngs": {"dropout": k_net}}
    return activations(exp, params, rows_BTE, carry, batch, **how)

  h_ND, pull_back, carry = jax.vjp(network, state.params, rows_BTE, has_aux=True)
  out = exp.head.backward(state.head, h_ND, batch.y, k_head)
  g_params, g_rows_BTE = pull_back(out.dh_ND)
  g_inputs, out = gradients(exp, *tables, batch.x, g_rows_BTE, out)
  return _Gradients(g_params, g_inputs, out.grads, out.loss, out.sq_norm), carry


def compiled_steps(exp: Experiment, state: State) -> tuple[State, Any, Any]:
  """Compiles `train_step` and the head's `refresh` for states like the given one.

  Both functions donate the state, so that tables are updated in place. Tables of which
  a step touches few rows are row-major.

  Returns:
    The state with the layouts of the compiled functions, and the two functions.
  """
  how = _formats(exp, state)
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


def compiled_settled(exp: Experiment, state: State) -> Callable[[State], State]:
  """Compiles `settled` for states like those of `compiled_steps`, which it donates.

  Without `optimizer.average`, the function returns its argument.
  """
  if not exp.optimizer.average:
    return lambda state: state
  how, settle = _formats(exp, state), functools.partial(settled, exp.optimizer)
  return jax.jit(settle, in_shardings=(how,), out_shardings=how, donate_argnums=0)


def _formats(exp: Experiment, state: State) -> State:
  """The sharding and the layout of each array of a state."""
  how, is_sparse = places(exp, state), getattr(exp.head, "row_sparse", False)
  return how._replace(
    inputs=row_major(state.inputs, how.inputs),
    head=row_major(state.head, how.head) if is_sparse else how.head,
  )


def monitor(state: State, batch: Batch, *, exp: Experiment) -> dict[str, jax.Array]:
  """The head's diagnostics on a batch that has not been trained on yet."""
  batch = by_examples(exp, batch)
  rows_BTE = look_up(exp, state.inputs, state.head, batch.x)
  h_ND, _ = activations(exp, state.params, rows_BTE, state.carry, batch)
  number = jnp.uint32(3 << 30) + state.step.astype(jnp.uint32)  # not used by steps
  key = jax.random.fold_in(state.key, number)
  return exp.head.monitor(state.head, h_ND, batch.y, key)
