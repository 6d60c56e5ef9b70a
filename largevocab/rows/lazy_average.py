"""Averages of rows over the steps, each of which is brought up to date when touched.

The average after step t has weights that fall by a factor d a step, as in `optax.ema`
with `debias`, so that initial values do not count:

  a_t = sum over i = 1 ... t of d^(t - i) w_i / sum over i = 1 ... t of d^(t - i)

The steps after s have the share S(s, t) = (1 - d^(t - s)) / (1 - d^t) of these weights.
A row that does not change in these steps needs no work in the meantime, since then

  a_t = a_s + S(s, t) (w - a_s)

in one go. A step that changes the row is the case s = t - 1. For rows that few steps
touch, the average is therefore exact, up to rounding, and not a lazy approximation.

Rows count as they are stored, which is what readers of the rows see: rounded if they
are bfloat16, and with decoupled decay as they were left until they are touched.
Deviation from dense decay: the average over the steps in between is of the row before
the decay of these steps.

Cost: as many floats as the table, of at least float32, and an integer a row. A step
reads and writes the averages of the rows that it touches. `settled` passes over the
table, and is due before averages are read. `swapped` costs nothing.

Source: Polyak and Juditsky 1992, for the mean over all steps. Deviation: an exponential
average, which forgets the first steps.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.ops.softmax.chunks import wide
from largevocab.rows.grads import Table

_AVERAGE, _LAST = "average_VD", "average_last_V"


def init_slots(w_VD: jax.Array) -> dict[str, jax.Array]:
  """The average of each row, initially the row, and the step up to which it is valid.

  >>> {name: slot.shape for name, slot in init_slots(jnp.ones((3, 2))).items()}
  {'average_VD': (3, 2), 'average_last_V': (3,)}
  """
  return {_AVERAGE: jnp.copy(w_VD), _LAST: jnp.zeros(len(w_VD), jnp.int32)}


def share(since: ArrayLike, step: ArrayLike, decay: float) -> jax.Array:
  """S(s, t), the share of the steps after s in the weights up to t; 0 if s = t.

  >>> [round(float(share(s, 2, 0.5)), 6) for s in (0, 1, 2)]  # of 1/2 + 1
  [1.0, 0.666667, 0.0]
  """
  since, step = jnp.asarray(since), jnp.asarray(step)
  rate = math.log(decay)
  of = lambda num: jnp.expm1(rate * num.astype(jnp.float32))
  return of(step - since) / of(jnp.maximum(step, 1))


def after(
  decay: float,
  rows: dict[str, jax.Array],
  old_RD: jax.Array,
  new_RD: jax.Array,
  count: jax.Array,
) -> dict[str, jax.Array]:
  """The state of rows that a step has changed; {} if `decay` is 0.

  Args:
    decay: d.
    rows: the state of these rows, as in `init_slots`.
    old_RD, new_RD: the rows before and after the step.
    count: i32[], number of steps before this one.

  >>> rows, at = init_slots(jnp.array([[8.0]])), lambda x: jnp.array([[x]])
  >>> rows = after(0.5, rows, at(8.0), at(3.0), jnp.int32(0))
  >>> rows = after(0.5, rows, at(3.0), at(6.0), jnp.int32(1))
  >>> rows["average_VD"].tolist()  # (3/2 + 6) / (1/2 + 1)
  [[5.0]]
  """
  if not decay:
    return {}
  average_RD = _moved(rows, wide(old_RD), count, decay)
  average_RD += share(count, count + 1, decay) * (wide(new_RD) - average_RD)
  # The larger of the two is count + 1; see `Adam.direction`.
  return {_AVERAGE: average_RD, _LAST: jnp.maximum(rows[_LAST], count + 1)}


def settled(tree: Any, decay: float) -> Any:
  """A pytree, such as a head's state, with the averages of all rows up to now.

  Settling twice gives the same result as once, bit by bit.

  Cost: a pass over the tables, in place if they are donated.
  """
  return _with_tables(lambda table: _settled(table, decay), tree) if decay else tree


def _settled(table: Table, decay: float) -> Table:
  average_VD = _moved(table.slots, wide(table.w_VD), table.count, decay)
  last_V = jnp.full_like(table.slots[_LAST], table.count)
  return table._replace(slots=table.slots | {_AVERAGE: average_VD, _LAST: last_V})


def swapped(tree: Any) -> Any:
  """A pytree, such as a head's state, to evaluate: rows of its tables are the averages.

  Swapping again gives the original pytree. Rows and averages exchange their names, so
  that nothing is computed or copied. Do not update or donate the result.

  Raises:
    UserError: a table has no averages.

  >>> slots = {"average_VD": jnp.array([[5.0]])}
  >>> swapped(Table(jnp.array([[3.0]]), slots, jnp.int32(7))).w_VD.tolist()
  [[5.0]]
  """
  return _with_tables(_swapped, tree)


def _swapped(table: Table) -> Table:
  if _AVERAGE not in table.slots:
    raise UserError(
      "a table has no averages of its rows: give the head the optimizer of the "
      "network, with the same optimizer.average"
    )
  average_VD = table.slots[_AVERAGE]
  return table._replace(w_VD=average_VD, slots=table.slots | {_AVERAGE: table.w_VD})


def _with_tables(change: Callable[[Table], Table], tree: Any) -> Any:
  is_table = lambda x: isinstance(x, Table)
  return jax.tree.map(lambda x: change(x) if is_table(x) else x, tree, is_leaf=is_table)


def _moved(rows, w_RD, count, decay):
  """The average up to `count` of rows that have not changed since it was valid."""
  share_R = share(rows[_LAST], count, decay)
  return rows[_AVERAGE] + share_R[:, None] * (w_RD - rows[_AVERAGE])
