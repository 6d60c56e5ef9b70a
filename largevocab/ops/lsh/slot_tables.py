"""Hash tables with a fixed number of slots per bucket, read in one gather.

A table has K buckets of E slots. In a bucket a class can occupy only one slot, given by
a hash of its id. Each slot holds one class; colliding classes are dropped. Different
classes are dropped in each table, since each table has its own hash of ids. A table can
therefore be built by one scatter, and membership in a bucket is tested by reading one
slot.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.shapes import check_shapes


class SlotTables(NamedTuple):
  """L tables.

  Attributes:
    ids_LKE: i32, the class in each slot of each bucket; V: empty.
    factor_L: u32, odd, multipliers of the hash from ids to slots.
  """

  ids_LKE: jax.Array
  factor_L: jax.Array


def slots_of(factor_L: jax.Array, ids_R: jax.Array, slots: int) -> jax.Array:
  """The slot i32[L, R] of each class in each table.

  >>> slots_of(jnp.array([1 << 31], jnp.uint32), jnp.array([0, 1]), 4).tolist()
  [[0, 2]]
  """
  check_shapes(factor_L=factor_L, ids_R=ids_R)
  return slot(factor_L[:, None], ids_R[None], slots)


def slot(factor: jax.Array, ids: jax.Array, slots: int) -> jax.Array:
  """The slot of each id by each factor; their shapes broadcast.

  Source: Dietzfelbinger et al. 1997 (multiplicative hashing).

  >>> int(slot(jnp.uint32(1 << 31), jnp.int32(1), 4))
  2
  """
  mixed = ids.astype(jnp.uint32) * factor >> 16
  return (mixed * jnp.uint32(slots) >> 16).astype(jnp.int32)


def new_factors(key: jax.Array, tables: int) -> jax.Array:
  """Random odd numbers u32[L].

  >>> (new_factors(jax.random.key(0), 3) % 2).tolist()
  [1, 1, 1]
  """
  return jax.random.bits(key, (tables,), jnp.uint32) | 1


def build(
  factor_L: jax.Array, bucket_LV: jax.Array, buckets: int, slots: int
) -> SlotTables:
  """Tables of all classes.

  If classes collide in a slot, the last one is kept, in a cyclic order of ids that
  starts at factor mod V, so that no class is last in every table. The result is the
  same on all devices.

  Args:
    factor_L: u32, from `new_factors`.
    bucket_LV: i32, the bucket of each class in each table.
    buckets: K.
    slots: E, up to 2^16, since `slot` multiplies it by 16 bits in 32.

  Cost: one scatter of L V, one table at a time.

  >>> bucket_LV, factor_L = jnp.array([[0, 1, 1]] * 2), jnp.array([3, 5], jnp.uint32)
  >>> build(factor_L, bucket_LV, 2, 1).ids_LKE.tolist()
  [[[0], [2]], [[0], [1]]]
  """
  V = check_shapes(factor_L=factor_L, bucket_LV=bucket_LV)["V"]

  def one(args):
    factor, bucket_V = args
    first = (factor % jnp.uint32(V)).astype(jnp.int32)
    ids_V = jnp.arange(V, dtype=jnp.int32)
    at_V = bucket_V * slots + slot(factor, ids_V, slots)
    place_V = jnp.where(ids_V < first, ids_V + V, ids_V)  # in the cyclic order
    last_K = jnp.full(buckets * slots, -1, jnp.int32).at[at_V].max(place_V)
    ids_K = jnp.where(last_K < V, last_K, last_K - V)
    return jnp.where(last_K < 0, V, ids_K).reshape(buckets, slots)

  return SlotTables(lax.map(one, (factor_L, bucket_LV)), factor_L)


def insert(
  tables: SlotTables, ids_R: jax.Array, bucket_LR: jax.Array, num_classes: int
) -> SlotTables:
  """Inserts classes into these buckets, replacing the classes in their slots.

  If several of `ids_R` collide in a slot, the last is kept on CPU. On other devices any
  of them is kept, not always the same one: a deterministic choice would cost a second
  scatter.

  Args:
    tables: L tables.
    ids_R: i32, distinct; ids >= num_classes are padding.
    bucket_LR: i32, the bucket of each class in each table.
    num_classes: V.

  Cost: one scatter of L R.

  >>> tables = build(jnp.ones(1, jnp.uint32), jnp.array([[0, 0]]), 2, 1)
  >>> insert(tables, jnp.array([1]), jnp.array([[1]]), 2).ids_LKE.tolist()
  [[[0], [1]]]
  """
  at = _places(tables, ids_R, bucket_LR, ids_R[None] < num_classes)
  ids_LR = jnp.broadcast_to(ids_R.astype(jnp.int32)[None], bucket_LR.shape)
  return tables._replace(ids_LKE=tables.ids_LKE.at[at].set(ids_LR, mode="drop"))


def remove(
  tables: SlotTables, ids_R: jax.Array, bucket_LR: jax.Array, num_classes: int
) -> SlotTables:
  """Removes classes from these buckets; slots that hold another class are unchanged.

  Args: as in `insert`.

  Cost: one gather and one scatter of L R.

  >>> tables = build(jnp.ones(1, jnp.uint32), jnp.array([[0, 0]]), 1, 1)
  >>> first = remove(tables, jnp.array([1]), jnp.array([[0]]), 2)
  >>> second = remove(first, jnp.array([0]), jnp.array([[0]]), 2)
  >>> first.ids_LKE.tolist(), second.ids_LKE.tolist()
  ([[[0]]], [[[2]]])
  """
  everywhere = _places(tables, ids_R, bucket_LR, jnp.ones((1, 1), bool))
  is_there_LR = tables.ids_LKE.at[everywhere].get(mode="clip") == ids_R[None]
  at = _places(tables, ids_R, bucket_LR, is_there_LR)
  none = jnp.int32(num_classes)
  return tables._replace(ids_LKE=tables.ids_LKE.at[at].set(none, mode="drop"))


def _places(tables, ids_R, bucket_LR, keep_LR):
  """Index of the slots of classes; out of range where `keep_LR` is False."""
  check_shapes(ids_LKE=tables.ids_LKE, ids_R=ids_R, bucket_LR=bucket_LR)
  L, K, E = tables.ids_LKE.shape
  number_LR = jnp.broadcast_to(jnp.arange(L, dtype=jnp.int32)[:, None], bucket_LR.shape)
  bucket_LR = jnp.where(keep_LR, bucket_LR, K)
  return number_LR, bucket_LR, slots_of(tables.factor_L, ids_R, E)


def look_up(tables: SlotTables, bucket_NL: jax.Array, num_classes: int) -> jax.Array:
  """The classes i32[N, L, E] in the buckets of queries; V in empty slots.

  Args:
    tables: L tables.
    bucket_NL: i32, a bucket in each table; K: no bucket.
    num_classes: V.

  Cost: N L reads of E.

  >>> tables = build(jnp.ones(1, jnp.uint32), jnp.array([[0, 0]]), 2, 1)
  >>> look_up(tables, jnp.array([[0], [1], [2]]), 2).tolist()
  [[[0]], [[2]], [[2]]]
  """
  L = check_shapes(bucket_NL=bucket_NL, **tables._asdict())["L"]
  number_1L = jnp.arange(L, dtype=jnp.int32)[None]
  return tables.ids_LKE.at[number_1L, bucket_NL].get(
    mode="fill", fill_value=num_classes
  )


def sizes(members_NLE: jax.Array, num_classes: int) -> jax.Array:
  """|bucket_l|, i32[N, L].

  >>> sizes(jnp.array([[[0, 2], [2, 2]]]), 2).tolist()
  [[1, 0]]
  """
  return jnp.sum(members_NLE < num_classes, axis=2, dtype=jnp.int32)


def draw(key: jax.Array, members_NLE: jax.Array, num_classes: int, m: int) -> jax.Array:
  """m independent draws for each query: i32[N, M]; 0 where all its buckets are empty.

  Args:
    key: PRNG key.
    members_NLE: i32, from `look_up`.
    num_classes: V.
    m: M.

  Cost: O(N (L E + M E)). Each draw is one random word: the 2^32 words are divided among
    the members in proportion to their probabilities, to within one word.

  >>> draw(jax.random.key(0), jnp.array([[[3, 1], [3, 3]]]), 3, 2).tolist()
  [[1, 1]]
  """
  N, L = (check_shapes(members_NLE=members_NLE)[x] for x in "NL")
  size_NL = sizes(members_NLE, num_classes)
  u_NM = jax.random.bits(key, (N, m), jnp.uint32)
  # Non-empty tables first.
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
  """Probability f32[N, M] of each class in a draw; 0 if all buckets are empty.

  Args:
    tables: L tables.
    bucket_NL: i32, the buckets of the queries; K: no bucket.
    size_NL: i32, from `sizes`.
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
  """Probability f32[N, L] of each member of a bucket: 1 / (L' |bucket_l|), or 0.

  >>> shares(jnp.array([[2, 0, 1]])).tolist()
  [[0.25, 0.0, 0.5]]
  """
  num_N1 = jnp.sum(size_NL > 0, axis=1, keepdims=True)
  share_NL = 1 / jnp.maximum(num_N1 * size_NL, 1).astype(jnp.float32)
  return jnp.where(size_NL > 0, share_NL, 0)


def _prefix_sums(is_in: jax.Array) -> jax.Array:
  """Inclusive prefix sums of booleans along the last axis: i32.

  Computed by a matrix product, which is fast and exact for ones.
  """
  size = is_in.shape[-1]
  upper = jnp.triu(jnp.ones((size, size), jnp.float32))
  return jnp.matmul(is_in.astype(jnp.float32), upper).astype(jnp.int32)


def _split(u: jax.Array, num: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Splits the 32-bit words into `num` equal parts.

  Returns the part of each word, i32, and its offset in the part, rescaled to 32 bits.
  num < 2^16.
  """
  num = num.astype(jnp.uint32)
  which = ((u >> 16) * num + ((u & 0xFFFF) * num >> 16)) >> 16
  return which.astype(jnp.int32), u * num
