"""Carries rows, and their optimiser state, over to a table with other rows."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.rows import lazy_decay
from largevocab.rows.grads import Table, rows_and_scalars


def carry_rows(fresh: Table, old: Table, was: ArrayLike) -> Table:
  """A new table in which former rows keep their values and optimiser state.

  Args:
    fresh: V rows with initial state.
    old: the former table.
    was: int[V], the former number of each row, -1 for a new one.

  Raises:
    UserError: a number is that of no row, or occurs twice; or rows have another width.

  Cost: O(V D). Both tables are held.

  >>> fresh = Table(jnp.zeros((3, 1)), {}, jnp.int32(0))
  >>> old = Table(jnp.array([[5.0], [6.0]]), {}, jnp.int32(9))
  >>> table = carry_rows(fresh, old, [1, -1, 0])
  >>> table.w_VD.tolist(), int(table.count)
  ([[6.0], [0.0], [5.0]], 9)
  """
  if fresh.w_VD.shape[1] != old.w_VD.shape[1]:
    raise UserError(
      f"former rows have {old.w_VD.shape[1]} columns, but new ones have "
      f"{fresh.w_VD.shape[1]}: make the new table as wide as the former"
    )
  was_V = np.asarray(was)
  kept = was_V[was_V >= 0]
  if was_V.shape != fresh.w_VD.shape[:1] or was_V.min() < -1:
    raise UserError(
      f"former numbers have shape {was_V.shape} and minimum {was_V.min()}: pass one "
      f"for each of the {len(fresh.w_VD)} rows, -1 for a new row"
    )
  if len(np.unique(kept)) < len(kept) or kept.max(initial=-1) >= len(old.w_VD):
    raise UserError(
      f"former numbers of rows are repeated or are not below {len(old.w_VD)}: pass "
      "each former row at most once"
    )
  put = lambda new, row: jnp.where(
    (was_V >= 0).reshape(-1, *[1] * (new.ndim - 1)), row[np.maximum(was_V, 0)], new
  )
  rows, _ = rows_and_scalars(fresh.slots)
  old_rows, shared = rows_and_scalars(old.slots)
  rows |= lazy_decay.up_to_date(len(was_V), shared)  # as for new rows
  slots = jax.tree.map(put, rows, old_rows)
  # Copies, so that a step on one of the tables can donate its arrays.
  shared, count = jax.tree.map(jnp.copy, (shared, old.count))
  return Table(put(fresh.w_VD, old.w_VD), slots | shared, count)
