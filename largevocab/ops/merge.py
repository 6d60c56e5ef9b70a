"""Merges row gradients of repeated ids, so that each id occurs once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largevocab.ops.shapes import check_shapes


def merge_rows(
  ids_R: jax.Array, rows_RD: jax.Array, num_rows: int
) -> tuple[jax.Array, jax.Array]:
  """Sums the rows of equal ids: out[i] = sum over {j : ids[j] = ids[i]} of rows[j].

  This is needed for the norm of a gradient and for optimisers that are not linear in
  it.
  The result keeps the static shape: unused entries have an id >= num_rows (all ids are
  distinct, so scatters may use `unique_indices` with mode 'drop') and a row of zeros.

  Args:
    ids_R: i32[R]; ids >= num_rows are padding.
    rows_RD: f32[R, D].
    num_rows: V, number of rows of the table.

  Returns:
    ids i32[R] and rows f32[R, D], in unspecified order.

  Cost: O(R D); independent of V. Hashing on CPU, a sort elsewhere.

  >>> ids, rows = merge_rows(jnp.array([7, 2, 7]), jnp.array([[1.], [2.], [4.]]), 9)
  >>> sorted((int(i), float(r)) for i, r in zip(ids, rows[:, 0]) if i < 9)
  [(2, 2.0), (7, 5.0)]
  """
  ids_R, rows_RD = jnp.asarray(ids_R), jnp.asarray(rows_RD)
  check_shapes(ids_R=ids_R, rows_RD=rows_RD)
  return lax.platform_dependent(
    ids_R,
    rows_RD,
    cpu=partial(merge_by_hash, num_rows=num_rows),
    default=partial(merge_by_sort, num_rows=num_rows),
  )


def sums_of_equals(ids_R: jax.Array, rows_RD: jax.Array, num_rows: int) -> jax.Array:
  """For each row the sum over all rows of its id.

  out[i] = sum over {j : ids[j] = ids[i]} of rows[j].

  Args:
    ids_R: i32[R]; ids >= num_rows are padding.
    rows_RD: f32[R, D].
    num_rows: V, number of rows of the table.

  Returns:
    f32[R, D], in the order of the ids; zeros on padding.

  Cost: O(R D); independent of V. Hashing on CPU, a sort elsewhere.

  >>> sums_of_equals(jnp.array([7, 2, 7]), jnp.array([[1.], [2.], [4.]]), 9).tolist()
  [[5.0], [2.0], [5.0]]
  """
  check_shapes(ids_R=ids_R, rows_RD=rows_RD)
  live_R = ids_R < num_rows
  first_R = lax.platform_dependent(
    ids_R, cpu=first_occurrence, default=_first_occurrence_by_sort
  )
  rows_RD = jnp.where(live_R[:, None], rows_RD, 0)
  summed_RD = jax.ops.segment_sum(rows_RD, first_R, num_segments=len(ids_R))
  return jnp.where(live_R[:, None], summed_RD[first_R], 0)


def shared_slots(ids_R: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
  """Where to sum the rows of equal ids, if rows are made a few at a time.

  Args:
    ids_R: i32[R]; ids >= num_rows are padding.
    num_rows: V, number of rows of the table.

  Returns:
    i32[R], the first index with the same id, R on padding; and the ids of these sums,
    i32[R], as in `merge_rows`.

  Cost: O(R). Hashing on CPU, a sort elsewhere.

  >>> slots_R, ids_R = shared_slots(jnp.array([7, 2, 7, 9]), 9)
  >>> slots_R.tolist(), ids_R.tolist()
  ([0, 1, 0, 4], [7, 2, 11, 12])
  """
  first_R = lax.platform_dependent(
    ids_R, cpu=first_occurrence, default=_first_occurrence_by_sort
  )
  num, live_R = len(ids_R), ids_R < num_rows
  index_R = jnp.arange(num, dtype=ids_R.dtype)
  kept_R = live_R & (first_R == index_R)
  slots_R = jnp.where(live_R, first_R, num)
  return slots_R, jnp.where(kept_R, ids_R, num_rows + index_R)


def merge_by_hash(ids_R, rows_RD, num_rows):
  """`merge_rows` by hashing; a sort costs 2-20 times as much on CPU."""
  first_R = first_occurrence(ids_R)
  index_R = jnp.arange(ids_R.shape[0], dtype=ids_R.dtype)
  live_R = ids_R < num_rows
  rows_RD = jnp.where(live_R[:, None], rows_RD, 0)
  summed_RD = jnp.zeros_like(rows_RD).at[first_R].add(rows_RD)
  kept_R = live_R & (first_R == index_R)
  return jnp.where(kept_R, ids_R, num_rows + index_R), summed_RD


def merge_by_sort(ids_R, rows_RD, num_rows):
  """`merge_rows` by sorting: rounds of hashing are slow on accelerators."""
  index_R = jnp.arange(ids_R.shape[0], dtype=ids_R.dtype)
  ids_R, order_R = lax.sort_key_val(jnp.minimum(ids_R, num_rows), index_R)
  rows_RD = jnp.where((ids_R < num_rows)[:, None], rows_RD[order_R], 0)
  starts_R = _starts(ids_R)
  segment_R = jnp.cumsum(starts_R) - 1
  summed_RD = jax.ops.segment_sum(
    rows_RD, segment_R, num_segments=len(index_R), indices_are_sorted=True
  )
  head_R = jnp.full_like(ids_R, num_rows).at[segment_R].set(ids_R)
  return jnp.where(head_R < num_rows, head_R, num_rows + index_R), summed_RD


def first_occurrence(ids_R: jax.Array) -> jax.Array:
  """Index of the first occurrence of each id, by rounds of hashing.

  In each round every unresolved id claims a slot of a small table; the smallest index
  wins the slot and resolves all copies of its id. Ids that lose a slot to another id
  enter the next round with another hash. Each round resolves at least one id; two or
  three rounds are usual.

  Args:
    ids_R: i32[R].

  Returns:
    i32[R].

  Cost: O(R) per round.

  >>> first_occurrence(jnp.array([7, 2, 7, 2, 5]))
  Array([0, 1, 0, 1, 4], dtype=int32)
  """
  num_ids = ids_R.shape[0]
  bits = int(np.ceil(np.log2(4 * max(num_ids, 1))))
  index_R = jnp.arange(num_ids, dtype=jnp.int32)

  def play_round(carry):
    first_R, salt = carry
    open_R = first_R == num_ids
    slot_R = jnp.where(open_R, _hash(ids_R, salt, bits), 1 << bits)
    table_K = jnp.full(1 << bits, num_ids, jnp.int32)
    table_K = table_K.at[slot_R].min(index_R, mode="drop")
    winner_R = table_K.at[slot_R].get(mode="fill", fill_value=num_ids)
    won_R = open_R & (ids_R.at[winner_R].get(mode="clip") == ids_R)
    return jnp.where(won_R, winner_R, first_R), salt + 1

  undecided = lambda carry: jnp.any(carry[0] == num_ids)
  start = (jnp.full(num_ids, num_ids, jnp.int32), jnp.uint32(0))
  first_R, _ = lax.while_loop(undecided, play_round, start)
  return first_R


def _first_occurrence_by_sort(ids_R):
  """`first_occurrence` by a stable sort: the index of the first in each run of ids."""
  index_R = jnp.arange(ids_R.shape[0], dtype=jnp.int32)
  sorted_R, order_R = lax.sort_key_val(ids_R, index_R)
  starts_R = _starts(sorted_R)
  first_R = order_R[lax.cummax(jnp.where(starts_R, index_R, 0))]
  return jnp.zeros_like(index_R).at[order_R].set(first_R, unique_indices=True)


def _starts(sorted_R: jax.Array) -> jax.Array:
  """Where a run of equal ids begins."""
  first = jnp.ones(min(1, len(sorted_R)), bool)
  return jnp.append(first, sorted_R[1:] != sorted_R[:-1])


def _hash(ids_R, salt, bits):
  """Multiplicative hash of ids to `bits` bits, a different one for every salt."""
  mixed_R = ids_R.astype(jnp.uint32) ^ (salt * jnp.uint32(0x85EBCA6B))
  mixed_R = mixed_R * jnp.uint32(0x9E3779B1)
  mixed_R = (mixed_R ^ (mixed_R >> 15)) * jnp.uint32(0x2C1B3C6D)
  return (mixed_R >> (32 - bits)).astype(jnp.int32)
