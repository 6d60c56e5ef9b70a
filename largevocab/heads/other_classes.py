"""Carries the state of a head over to other classes than those it was trained with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.heads.full import Full, FullState
from largevocab.heads.sampled import Sampled
from largevocab.heads.sampled_state import SampledState
from largevocab.labels import Counts, as_counts
from largevocab.rows import Table, carry_rows


def carry_classes(
  head: Any,
  state: FullState | SampledState,
  counts: Counts | ArrayLike,
  dim: int,
  was: ArrayLike,
  key: jax.Array,
  new_KD: jax.Array | None = None,
) -> FullState | SampledState:
  """The state with classes added, left out or renumbered.

  Former classes keep their rows and the optimiser's state. New classes start like those
  of `Head.init`, or with the given vectors. Statistics of the sampler are rebuilt from
  the counts and the rows; what `in_batch` has seen of the stream is forgotten.

  Args:
    head: `Full` or `Sampled`. Other heads have rows of several tables or of clusters.
    state: the state for the former classes.
    counts: counts of the V classes.
    dim: the width of h.
    was: int[V], the former id of each class, -1 for a new one.
    key: for new rows and statistics.
    new_KD: f32[K, D], rows of the K new classes, in order of id, without bias.

  Raises:
    UserError: the head is of another kind, `dim` is not the width in the state, or see
      `carry_rows`.

  Cost: O(V D), once.

  >>> head = Full(bias=False)
  >>> state = head.init(jax.random.key(0), [2, 1], 2)
  >>> later = carry_classes(
  ...   head, state, [5, 2, 1], 2, [-1, 0, 1], jax.random.key(1), jnp.ones((1, 2)))
  >>> bool((later.table.w_VD[1:] == state.table.w_VD).all())
  True
  >>> later.table.w_VD[0].tolist()
  [1.0, 1.0]
  """
  if not isinstance(head, Full | Sampled):
    raise UserError(
      f"{type(head).__name__} has no single table of class rows on one device: add "
      "classes to a head of full or sampled, or train from scratch"
    )
  given = state.activations
  if given is not None and given.dim != dim:
    raise UserError(
      f"dim={dim}, but the state is for activations of width {given.dim}: pass "
      f"dim={given.dim}, or train from scratch"
    )
  counts = as_counts(counts)
  fresh = head.init(key, counts, dim)
  table = carry_rows(fresh.table, state.table, was)
  if new_KD is not None:
    table = _with_rows(table, was, new_KD, dim)
  if isinstance(head, Full):
    return fresh._replace(table=table)
  later = head.init_state(table, counts)
  log_z = _log_z(later, state, was)
  later = later._replace(log_z=log_z, activations=fresh.activations)
  return head.refresh(later, jax.random.fold_in(key, 1))


def _with_rows(table: Table, was: ArrayLike, new_KD: jax.Array, dim: int) -> Table:
  """The table with given rows of new classes."""
  (ids_K,) = np.nonzero(np.asarray(was) < 0)
  if len(new_KD) != len(ids_K):
    raise UserError(
      f"{len(new_KD)} rows were passed for {len(ids_K)} new classes: pass one for each"
    )
  if new_KD.shape[1] != dim:
    raise UserError(
      f"rows of {new_KD.shape[1]} numbers were passed for new classes: pass rows of "
      f"{dim}, the width of h"
    )
  dtype = table.w_VD.dtype
  rows_KD = jnp.asarray(new_KD, dtype)
  w_VD = table.w_VD.at[ids_K, : rows_KD.shape[1]].set(rows_KD)
  return table._replace(w_VD=w_VD)


def _log_z(later: SampledState, state: Any, was: ArrayLike) -> Table | None:
  """Learned log-partition functions: by class, or kept if no context is renumbered."""
  new, old = later.log_z, state.log_z
  if new is None or old is None:
    return new
  is_by_class = lambda state: len(state.log_z.w_VD) == len(state.table.w_VD)
  if is_by_class(state) and is_by_class(later):
    return carry_rows(new, old, was)
  own = len(old.w_VD) - 1  # all further contexts share the last one
  is_kept = np.array_equal(np.asarray(was)[:own], np.arange(own))
  return jax.tree.map(jnp.copy, old) if is_kept else new
