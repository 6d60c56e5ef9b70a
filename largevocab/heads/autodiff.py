"""Heads as losses under JAX's transformations: grad, vmap, scan, checkpoint.

A head computes its gradients itself, in its own format, and some heads use loops that
JAX cannot differentiate. This module hands the gradients to JAX with `jax.custom_vjp`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from largevocab.errors import UserError
from largevocab.heads.base import Head, HeadStep
from largevocab.heads.sharded import ShardedHead, ShardedState
from largevocab.labels import Targets
from largevocab.ops.activations import activations
from largevocab.ops.factored import steps
from largevocab.ops.factored.table import Factored, factor, implied
from largevocab.ops.softmax.chunks import wide
from largevocab.rows import SGD, Table

PyTree = Any
Params = dict[str, jax.Array]
Loss = Callable[[Params, PyTree, jax.Array, Targets, jax.Array], Any]


def head_loss(head: Head) -> Loss:
  """The loss of a head, f32[], as a function that JAX can differentiate.

    loss(params, rest, h_ND, y, key) with params, rest = split_state(state).

  The gradients with respect to `params` and `h_ND` are those of `Head.backward`. The
  gradients of `params` are arrays of the same shapes, for any optimiser; that of `h_ND`
  has the type of `h_ND`. The loss is the weighted mean over the examples of one call,
  also under `jax.vmap` and in a loop. For the mean over several batches, weight each
  loss by its batch's share.

  Args:
    head: any head, including `ShardedHead`; the optimiser of its rows is not used.

  Raises:
    UserError, when it is differentiated: with respect to the weights of the examples or
      to statistics, which are constants here, or twice.

  Cost: that of `backward`, and an array like the parameters for their gradient, which
    every dense optimiser reads. For heads that read few rows, this array is the larger
    part of the cost; `head_loss_and_grads` avoids it. Under `jax.vmap` there is one
    such array for each batch; a `jax.lax.scan`, or one batch of all examples, needs
    one. The `spherical` head computes W^T W, at O(V D^2) a step. If no gradient is
    taken, `jax.jit` leaves out what only the gradient needs, where the head allows it.

  >>> from largevocab.heads import Huffman
  >>> from largevocab.labels import single_targets
  >>> head, y, key = Huffman(), single_targets([2, 0]), jax.random.key(0)
  >>> params, rest = split_state(head.init(key, [3, 2, 1], dim=4))
  >>> grads = jax.grad(head_loss(head))(params, rest, jnp.ones((2, 4)), y, key)
  >>> jax.tree.map(jnp.shape, grads)
  {'nodes': (3, 8)}
  """
  run = _differentiable(head)

  def loss(params, rest, h_ND, y, key):
    return run(params, rest, wide(activations(h_ND)), y, key)[0]

  return loss


def head_loss_and_grads(head: Head) -> Loss:
  """`head_loss` that also returns the head's own gradients, for `Head.update`.

    loss, grads = loss_and_grads(params, rest, h_ND, y, key)

  The gradients are constants, in the head's own format: take them as the auxiliary
  output of `jax.value_and_grad` or `flax.nnx.value_and_grad` with `has_aux=True`. With
  params = {} and rest = state, the head's parameters are constants too: only `h_ND` is
  differentiated, and no dense gradient is made. The head's own optimiser then updates
  the rows that were read.

  The gradients are those of the loss itself. If the loss is multiplied before it is
  differentiated, by a loss scale or a batch's share, pass the factor to `Head.update`
  or `accumulate`.

  Args, raises: see `head_loss`.

  >>> from largevocab.heads import Sampled
  >>> from largevocab.labels import single_targets
  >>> head, y, key = Sampled(num_samples=2), single_targets([2, 0]), jax.random.key(0)
  >>> state = head.init(key, [3, 2, 1, 1], dim=4)
  >>> loss = lambda h_ND: head_loss_and_grads(head)({}, state, h_ND, y, key)
  >>> (_, grads), dh_ND = jax.value_and_grad(loss, has_aux=True)(jnp.ones((2, 4)))
  >>> state = head.update(state, grads, lr=0.1, scale=1.0)
  """
  run = _differentiable(head)

  def loss_and_grads(params, rest, h_ND, y, key):
    loss, grads = run(params, rest, wide(activations(h_ND)), y, key)
    return loss, jax.lax.stop_gradient(grads)

  return loss_and_grads


def split_state(state: PyTree) -> tuple[Params, PyTree]:
  """The trainable parameters of a head's state, and the rest of it.

  Args:
    state: state of any head. The parameter of `spherical` is W itself, f32[V, D].

  Returns:
    Parameters: a dict of arrays, keyed by the names of the tables, such as 'table' of
      `full` and `sampled`, or 'head', 'tails.0' and 'downs.0' of `adaptive`. Biases are
      a column of the table.
    The rest: the state without the parameters: statistics of samplers, the order of
      classes, and the state of the library's own optimisers.

  Raises:
    UserError: there is no table, or a factored table over several devices.

  >>> from largevocab.heads import Full
  >>> state = Full(bias=False).init(jax.random.key(0), [3, 2, 1], dim=4)
  >>> params, rest = split_state(state)
  >>> jax.tree.map(jnp.shape, params), jax.tree.map(jnp.shape, rest.table)
  ({'table': (3, 4)}, Table(w_VD=None, slots={}, count=()))
  """
  if isinstance(state, ShardedState) and isinstance(state.parts, Factored):
    raise UserError(
      "split_state: there is no dense W if its factors are on several devices: train "
      "this head with Head.backward and Head.update, or on one device"
    )
  params = {}

  def take(name, table):
    params[name] = implied(table) if isinstance(table, Factored) else table.w_VD
    return _with_rows(table, None)

  rest = _map_tables(take, state)
  if not params:
    raise UserError(
      f"a {type(state).__name__} has no table to train: pass split_state the state of "
      "a head whose rows are in a largevocab.rows.Table"
    )
  return params, rest


def merge_state(params: Params, rest: PyTree) -> PyTree:
  """The state of a head with these parameters; the inverse of `split_state`.

  Statistics are taken from `rest` and are as old as they are there. If the sampler
  follows the table, they then describe older rows: draws come from the older proposal
  distribution. The logQ correction is that of the distribution that was drawn from, so
  the estimate of the partition function stays unbiased, but its variance grows.
  `Head.refresh` of the merged state brings these statistics up to date. It does not do
  so for statistics that count updates: `sce` and `rece` keep one projection, and
  `in_batch` and `cbns` count no batch, unless `Head.update` is called with the
  gradients of `head_loss_and_grads` and lr=0.

  Args:
    params: from `split_state`, trained or not. A missing name must be in `rest`, so
      `merge_state({}, state)` is the state.
    rest: from `split_state`.

  Raises:
    UserError: a parameter is missing, is not one of this state, or is not a float
      matrix.

  >>> from largevocab.heads import Full
  >>> state = Full(bias=False).init(jax.random.key(0), [3, 2, 1], dim=4)
  >>> again = merge_state(*split_state(state))
  >>> jax.tree.all(jax.tree.map(jnp.array_equal, again, state))
  True
  """
  known = []

  def put(name, table):
    known.append(name)
    if name in params:
      _check_rows(name, params[name])
      return _with_rows(table, params[name])
    if table[0] is None:
      raise UserError(
        f"the parameter {name!r} is missing: pass all those that split_state returned"
      )
    return table

  state = _map_tables(put, rest)
  for name in params.keys() - set(known):
    raise UserError(
      f"{name!r} is not a parameter of a {type(rest).__name__}: pass those that "
      f"split_state returned, {', '.join(known)}"
    )
  return state


def _differentiable(head: Head) -> Callable:
  """The loss and the head's gradients, as a function that JAX differentiates."""

  @jax.custom_vjp
  def run(params, rest, h_ND, y, key):
    return _loss_and_grads(head.backward(merge_state(params, rest), h_ND, y, key))

  def forward(params, rest, h_ND, y, key):
    _check_constant("statistics of a head", rest)
    _check_constant("weights of examples", y)
    is_trained = any(x.perturbed for x in jax.tree.leaves(params))
    args = jax.tree.map(lambda x: x.value, (params, rest, h_ND, y, key))
    state = merge_state(*args[:2])
    step = head.backward(state, *args[2:])
    loss, dh_ND, grads = map(_once, (step.loss, step.dh_ND, step.grads))
    return (loss, grads), (dh_ND, (*args[:2], grads) if is_trained else None)

  def backward(kept, cotangents):
    dh_ND, of_params = kept
    by = cotangents[0]
    if isinstance(by, SymbolicZero):
      by = jnp.zeros(())
    dparams = None
    if of_params is not None:
      params, rest, grads = of_params
      dense = _dense(head, params, rest, grads)
      dparams = {n: (by * dense[n]).astype(w.dtype) for n, w in params.items()}
    return dparams, None, by * dh_ND, None, None

  run.defvjp(forward, backward, symbolic_zeros=True)
  return run


def _loss_and_grads(step: HeadStep) -> tuple[jax.Array, PyTree]:
  return step.loss, step.grads


def _dense(head: Head, params: Params, rest: PyTree, grads: PyTree) -> Params:
  """A head's gradient as arrays of the same shapes as its parameters.

  It is the result of one gradient descent step, at the rate -1, on tables of zeros.
  """
  if isinstance(rest, Factored):
    return {name: steps.dense(w_VD, grads) for name, w_VD in params.items()}
  zeros = {name: jnp.zeros_like(wide(w_VD)) for name, w_VD in params.items()}
  bare = _map_tables(lambda _, table: table._replace(slots={}), rest)
  moved = _by_gradient_descent(head).update(
    merge_state(zeros, bare), grads, lr=-1.0, scale=1.0
  )
  return split_state(moved)[0]


def _by_gradient_descent(head: Head) -> Head:
  if isinstance(head, ShardedHead):
    return dataclasses.replace(head, head=_by_gradient_descent(head.head))
  return dataclasses.replace(head, optimizer=SGD())  # pyrefly: ignore


def _map_tables(change: Callable[[str, Any], Any], state: PyTree) -> PyTree:
  """A state with `change(name, table)` in place of its tables."""
  is_table = lambda x: isinstance(x, Table | Factored)

  def changed(path, x):
    if not is_table(x):
      return x
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return change(name or "w_VD", x)

  return jax.tree_util.tree_map_with_path(changed, state, is_leaf=is_table)


def _check_rows(name: str, w_VD: jax.Array) -> None:
  if w_VD.ndim != 2 or not jnp.issubdtype(w_VD.dtype, jnp.floating):
    raise UserError(
      f"the parameter {name!r} is {w_VD.dtype}{list(w_VD.shape)}: pass float[V, D], as "
      "split_state returned"
    )


def _with_rows(table: Table | Factored, w_VD: Any) -> Table | Factored:
  """The table with other rows; None: without rows."""
  if isinstance(table, Table):
    return table._replace(w_VD=w_VD)
  if w_VD is None:
    return jax.tree.map(lambda _: None, table)
  return factor(w_VD, table.activations)


def _check_constant(what: str, tree: PyTree) -> None:
  for leaf in jax.tree.leaves(tree):
    if leaf.perturbed and jnp.issubdtype(leaf.value.dtype, jnp.inexact):
      raise UserError(
        f"a head's loss is not differentiable with respect to {what}: differentiate "
        "with respect to params and h_ND only, or pass other arguments through "
        "jax.lax.stop_gradient"
      )


@jax.custom_jvp
def _once(x: PyTree) -> PyTree:
  """x, as a value that cannot be differentiated."""
  return x


@_once.defjvp
def _refuse(primals, tangents):
  raise UserError(
    "a head's loss has no second derivatives, since heads compute first derivatives "
    "themselves: differentiate a function of largevocab.losses instead"
  )
