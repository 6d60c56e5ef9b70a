"""Most common, or first distinct, ids of each row, without a sort."""

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.merge import first_occurrence
from largevocab.ops.shapes import check_shapes


def most_common(ids_NM: jax.Array, num_classes: int, size: int) -> jax.Array:
  """The `size` most common distinct ids of each row: i32[N, size].

  Ties are in order of occurrence; rows with fewer ids are padded with V.

  Args:
    ids_NM: i32; ids >= num_classes are padding.
    num_classes: V.
    size: number of ids.

  Cost: O(N M) for each round of hashing, usually two or three, and the selection of the
    largest of M counts.

  >>> most_common(jnp.array([[5, 2, 9, 2, 1]]), 9, 2).tolist()
  [[2, 5]]
  """
  N, M = (check_shapes(ids_NM=ids_NM)[x] for x in "NM")
  ids_NM = jnp.minimum(ids_NM, num_classes)
  first_NM = jax.vmap(first_occurrence)(ids_NM)
  row_N1 = jnp.arange(N, dtype=jnp.int32)[:, None]
  # float32, since top_k on CPU is ten times as fast as with integers.
  one_NM = (ids_NM < num_classes).astype(jnp.float32)
  votes_NM = jnp.zeros((N, M)).at[row_N1, first_NM].add(one_NM)
  votes_NS, at_NS = lax.top_k(votes_NM, min(size, M))
  ids_NS = jnp.take_along_axis(ids_NM, at_NS, axis=1)
  ids_NS = jnp.where(votes_NS > 0, ids_NS, num_classes)
  missing = max(size - M, 0)
  return jnp.pad(ids_NS, ((0, 0), (0, missing)), constant_values=num_classes)


def first_distinct(
  ids_NM: jax.Array, num_classes: int, size: int, *, without_NP: jax.Array
) -> jax.Array:
  """The first `size` distinct ids of each row, in order: i32[N, size].

  Rows with fewer are padded with V.

  Args:
    ids_NM: i32; ids >= num_classes are padding.
    num_classes: V.
    size: number of ids.
    without_NP: i32, ids to leave out in each row; ids outside 0 ... V - 1 are ignored.

  Cost: O(N (M + P)) for each round of hashing, usually two or three, and a scatter.

  >>> ids_NM, without_NP = jnp.array([[5, 9, 2, 5, 3, 1, 4]]), jnp.array([[3]])
  >>> first_distinct(ids_NM, 9, 3, without_NP=without_NP).tolist()
  [[5, 2, 1]]
  """
  N, M = (check_shapes(ids_NM=ids_NM, without_NP=without_NP)[x] for x in "NM")
  num = without_NP.shape[1]
  # The ids to leave out are prepended, so later occurrences are repetitions.
  all_NS = jnp.concatenate([without_NP.astype(ids_NM.dtype), ids_NM], axis=1)
  first_NS = jax.vmap(first_occurrence)(all_NS)
  is_first_NM = (first_NS == jnp.arange(num + M, dtype=jnp.int32)[None])[:, num:]
  is_taken_NM = is_first_NM & (ids_NM < num_classes)
  place_NM = jnp.cumsum(is_taken_NM, axis=1, dtype=jnp.int32) - 1
  place_NM = jnp.where(is_taken_NM, place_NM, size)
  row_N1 = jnp.arange(N, dtype=jnp.int32)[:, None]
  none_NS = jnp.full((N, size), num_classes, jnp.int32)
  return none_NS.at[row_N1, place_NM].set(ids_NM, mode="drop")
