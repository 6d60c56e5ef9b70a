"""Draws from the buckets of a query, with an exactly known law.

A table whose bucket has members is chosen, all with the same probability, then one of
the members. Over L' such tables

  q(i) = (1 / L') sum over l of [i in bucket_l] / |bucket_l|.

This is the law for the tables as they are, whatever they have forgotten.
"""

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.shapes import check_shapes
from largevocab.ops.slot_tables import SlotTables, slot


def sizes(members_NLE: jax.Array, num_classes: int) -> jax.Array:
  """|bucket_l|, i32[N, L].

  >>> sizes(jnp.array([[[0, 2], [2, 2]]]), 2).tolist()
  [[1, 0]]
  """
  return jnp.sum(members_NLE < num_classes, axis=2, dtype=jnp.int32)


def draw(key: jax.Array, members_NLE: jax.Array, num_classes: int, m: int) -> jax.Array:
  """m independent draws for each query: i32[N, M]; 0 where it has no members.

  Args:
    key: PRNG key.
    members_NLE: i32, of `look_up`.
    num_classes: V.
    m: M.

  Cost: O(N (L E + M E)). Each draw is one random word: every member of every bucket has
    its share of the 2^32 words, to within one word.

  >>> draw(jax.random.key(0), jnp.array([[[3, 1], [3, 3]]]), 3, 2).tolist()
  [[1, 1]]
  """
  N, L = (check_shapes(members_NLE=members_NLE)[x] for x in "NL")
  size_NL = sizes(members_NLE, num_classes)
  u_NM = jax.random.bits(key, (N, m), jnp.uint32)
  # Tables with members, in front.
  has_NL = size_NL > 0
  rank_NL = _prefix_sums(has_NL)
  number_NL = jnp.broadcast_to(jnp.arange(L, dtype=jnp.int32)[None], has_NL.shape)
  row_N1 = jnp.arange(N, dtype=jnp.int32)[:, None]
  at_NL = jnp.where(has_NL, rank_NL - 1, L)
  table_NL = jnp.zeros((N, L), jnp.int32).at[row_N1, at_NL].set(number_NL, mode="drop")
  which_NM, u_NM = _split(u_NM, rank_NL[:, -1:])
  table_NM = jnp.take_along_axis(table_NL, which_NM, axis=1)
  which_NM, _ = _split(u_NM, jnp.take_along_axis(size_NL, table_NM, axis=1))
  bucket_NME = members_NLE.at[row_N1, table_NM].get(mode="promise_in_bounds")
  is_member_NME = bucket_NME < num_classes
  is_it_NME = is_member_NME & (_prefix_sums(is_member_NME) == which_NM[:, :, None] + 1)
  return jnp.sum(jnp.where(is_it_NME, bucket_NME, 0), axis=2)


def law(
  tables: SlotTables, bucket_NL: jax.Array, size_NL: jax.Array, ids_NM: jax.Array
) -> jax.Array:
  """Probability f32[N, M] of each class in a draw; 0 where a query has no members.

  Args:
    tables: L tables.
    bucket_NL: i32, those of the queries; K: none.
    size_NL: i32, of `sizes`.
    ids_NM: i32, classes, below V.

  Cost: one gather of N M L.

  >>> tables = SlotTables(jnp.array([[[0], [1]]]), jnp.ones(1, jnp.uint32))
  >>> law(tables, jnp.array([[1]]), jnp.array([[1]]), jnp.array([[0, 1]])).tolist()
  [[0.0, 1.0]]
  """
  check_shapes(bucket_NL=bucket_NL, size_NL=size_NL, ids_NM=ids_NM, **tables._asdict())
  slots = tables.ids_LKE.shape[2]
  share_NL = shares(size_NL)

  def add(i, q_NM):
    slot_NM = slot(tables.factor_L[i], ids_NM, slots)
    found_NM = tables.ids_LKE.at[i, bucket_NL[:, i][:, None], slot_NM].get(mode="clip")
    return q_NM + jnp.where(found_NM == ids_NM, share_NL[:, i][:, None], 0)

  return lax.fori_loop(0, size_NL.shape[1], add, jnp.zeros(ids_NM.shape))


def shares(size_NL: jax.Array) -> jax.Array:
  """Probability f32[N, L] of a member of each bucket: 1 / (L' |bucket_l|), or 0.

  >>> shares(jnp.array([[2, 0, 1]])).tolist()
  [[0.25, 0.0, 0.5]]
  """
  num_N1 = jnp.sum(size_NL > 0, axis=1, keepdims=True)
  share_NL = 1 / jnp.maximum(num_N1 * size_NL, 1).astype(jnp.float32)
  return jnp.where(size_NL > 0, share_NL, 0)


def _prefix_sums(is_in: jax.Array) -> jax.Array:
  """How many are in up to each place of the last axis: i32; by a product, which is fast
  and, of sums of ones, exact."""
  size = is_in.shape[-1]
  upper = jnp.triu(jnp.ones((size, size), jnp.float32))
  return jnp.matmul(is_in.astype(jnp.float32), upper).astype(jnp.int32)


def _split(u: jax.Array, num: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Which of `num` equal parts of the 32-bit words a word lies in, i32, and how far in
  it, as a 32-bit word again. num < 2^16."""
  num = num.astype(jnp.uint32)
  which = ((u >> 16) * num + ((u & 0xFFFF) * num >> 16)) >> 16
  return which.astype(jnp.int32), u * num
