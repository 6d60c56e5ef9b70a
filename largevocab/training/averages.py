"""Averages of the weights (`optimizer.average`), which are evaluated in their place.

The tables of any head hold the averages of their rows (`rows/lazy_average.py`). The
state of the network's optimiser holds the average of the network's parameters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from largevocab.rows import RowOptimizer, lazy_average

PyTree = Any


class Averaging(NamedTuple):
  """State of the network's optimiser, with an average of the parameters.

  Attributes:
    opt: the optimiser's own state.
    params: the average, as `largevocab.rows.lazy_average` defines it.
    count: i32[], number of steps in the average.
  """

  opt: PyTree
  params: PyTree
  count: jax.Array


def init_network(optimizer: RowOptimizer, params: PyTree) -> PyTree:
  """The initial state of the network's optimiser."""
  opt = optimizer.transformation().init(params)
  if not optimizer.average:
    return opt
  return Averaging(opt, jax.tree.map(jnp.copy, params), jnp.int32(0))


def step_network(
  optimizer: RowOptimizer, grads: PyTree, opt: PyTree, params: PyTree, lr: jax.Array
) -> tuple[PyTree, PyTree]:
  """The parameters and the state of their optimiser after a step.

  >>> from largevocab.rows import SGD
  >>> sgd, grads, w = SGD(average=0.5), {"w": jnp.ones(1)}, {"w": jnp.zeros(1)}
  >>> opt = init_network(sgd, w)
  >>> for lr in (3.0, 6.0):
  ...   w, opt = step_network(sgd, grads, opt, w, lr)
  >>> w["w"].tolist(), opt.params["w"].tolist()  # (-3/2 - 9) / (1/2 + 1)
  ([-9.0], [-7.0])
  """
  averaging, decay = opt, optimizer.average
  opt = averaging.opt if decay else averaging
  direction, opt = optimizer.transformation().update(grads, opt, params)
  params = jax.tree.map(lambda p, d: p - lr * d, params, direction)
  if not decay:
    return params, opt
  count = averaging.count + 1
  share = lazy_average.share(count - 1, count, decay)
  average = optax.incremental_update(params, averaging.params, share)
  return params, Averaging(opt, average, count)


def settled(optimizer: RowOptimizer, state: Any) -> Any:
  """Brings the averages of rows in a `State` up to date.

  Applying this twice gives the same bits as applying it once.
  """
  tables = lazy_average.settled((state.inputs, state.head), optimizer.average)
  return state._replace(inputs=tables[0], head=tables[1])


def averaged(optimizer: RowOptimizer, state: Any) -> Any:
  """Puts averages in place of the weights of a `settled` state, for evaluation.

  The result consists of the same arrays: nothing is computed or copied, and the given
  state is unchanged.

  Raises:
    UserError: a table has no averages.
  """
  if not optimizer.average:
    return state
  inputs, head = lazy_average.swapped((state.inputs, state.head))
  return state._replace(inputs=inputs, head=head, params=state.opt.params)


def for_evaluation(optimizer: RowOptimizer, state: Any) -> Any:
  """The state to evaluate, from one read from a checkpoint, which is donated."""
  settle = jax.jit(lambda state: settled(optimizer, state), donate_argnums=0)
  return averaged(optimizer, settle(state) if optimizer.average else state)
