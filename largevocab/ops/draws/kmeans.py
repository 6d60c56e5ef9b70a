"""k-means over the rows of a class table, in chunks of classes.

Points may be functions of the rows, (classes i32[C], their rows [C, D]) -> [C, E], such
as some of the columns, or residuals. No second table of them is made. Their centroids
are [K, E].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import (
  compute_dtype,
  fold_rows,
  logits,
  wide,
)

_SCORE_BYTES = 8 * 2**20
_ADDED = 1 << 14  # number of rows whose sum is added at a time

Points = Callable[[jax.Array, jax.Array], jax.Array]


def whole_rows(ids_C: jax.Array, w_CD: jax.Array) -> jax.Array:
  """The points that are the rows themselves."""
  return w_CD


def random_rows(
  key: jax.Array, w_VD: jax.Array, num: int, points: Points = whole_rows
) -> jax.Array:
  """Initial centroids [K, E]: the points of `num` different classes.

  Raises:
    ValueError: there are fewer classes.

  >>> sorted(random_rows(jax.random.key(0), jnp.arange(3.0)[:, None], 3)[:, 0].tolist())
  [0.0, 1.0, 2.0]
  """
  ids_K = jax.random.choice(key, w_VD.shape[0], (num,), replace=False)
  return wide(points(ids_K, w_VD[ids_K]))


def nearest(
  w_VD: jax.Array,
  centroids_KE: jax.Array,
  *,
  points: Points = whole_rows,
  size: int | None = None,
) -> jax.Array:
  """The centroid nearest to the point of each class, i32[V].

  Args:
    w_VD: float[V, D], class table.
    centroids_KE: float[K, E].
    points: points as a function of the rows.
    size: approximate number of classes per chunk; by default 8 MiB of points or scores.

  Cost: one product of V K E; holds [size, K].

  >>> nearest(jnp.array([[0.0], [7.0], [4.0]]), jnp.array([[1.0], [6.0]]), size=2)
  Array([0, 1, 1], dtype=int32)
  """
  V = check_shapes(w_VD=w_VD, centroids_KE=centroids_KE)["V"]
  dtype = compute_dtype(w_VD, centroids_KE)
  # The nearest centroid maximises <w, c> - |c|^2 / 2.
  half_K = jnp.sum(jnp.square(centroids_KE), axis=1) / 2
  size = size or _SCORE_BYTES // (4 * max(centroids_KE.shape))

  def assign(cluster_V, chunk):
    x_CE = points(chunk.ids_C, chunk.rows(w_VD))
    score_CK = logits(x_CE, centroids_KE, dtype) - half_K[None]
    chosen_C = jnp.argmax(score_CK, axis=1).astype(jnp.int32)
    return chunk.put(cluster_V, chosen_C)

  return fold_rows(assign, jnp.zeros(V, jnp.int32), V, size)


def lloyd_step(
  w_VD: jax.Array,
  centroids_KE: jax.Array,
  key: jax.Array,
  points: Points = whole_rows,
) -> jax.Array:
  """Moves each centroid to the mean of the points nearest to it, [K, E].

  A centroid without points is replaced by a random one.

  Source: Lloyd 1982.
  Cost: that of `nearest`, and O(V E).

  >>> w_VD = jnp.array([[0.0], [1.0], [6.0]])
  >>> lloyd_step(w_VD, jnp.array([[2.0], [7.0]]), jax.random.key(0)).tolist()
  [[0.5], [6.0]]
  """
  V, K = (check_shapes(w_VD=w_VD, centroids_KE=centroids_KE)[x] for x in "VK")
  cluster_V = nearest(w_VD, centroids_KE, points=points)

  def add(sums, chunk):
    at_C = jnp.where(chunk.is_new_C, chunk.rows(cluster_V), K)
    x_CE = wide(points(chunk.ids_C, chunk.rows(w_VD)))
    sum_KE, num_K = sums
    # Chunks are summed on their own, since a row added to a sum of millions is rounded.
    # Without the barrier the compiler would add each row to that sum after all.
    part_KE = jnp.zeros_like(sum_KE).at[at_C].add(x_CE, mode="drop")
    sum_KE += lax.optimization_barrier(part_KE)
    return sum_KE, num_K.at[at_C].add(1, mode="drop")

  sum_KE = jnp.zeros(centroids_KE.shape, wide(centroids_KE).dtype)
  zero = sum_KE, jnp.zeros(K, jnp.int32)
  size = max(K, min(_ADDED, _SCORE_BYTES // (4 * w_VD.shape[1])))
  sum_KE, num_K = fold_rows(add, zero, V, size)
  ids_K = jax.random.randint(key, (K,), 0, V)
  other_KE = wide(points(ids_K, w_VD[ids_K]))
  mean_KE = sum_KE / jnp.maximum(num_K, 1).astype(sum_KE.dtype)[:, None]
  return jnp.where(num_K[:, None] > 0, mean_KE, other_KE)


class Members(NamedTuple):
  """Members of clusters, in compressed rows.

  Attributes:
    class_V: i32[V], the classes of one cluster after another, ascending in each.
    first_K: i32[K + 1], start of each cluster in class_V.
  """

  class_V: jax.Array
  first_K: jax.Array


def members(cluster_V: jax.Array, num: int) -> Members:
  """The classes of each of `num` clusters.

  Cost: O(V log V).

  >>> found = members(jnp.array([1, 1, 0, 1]), 3)
  >>> found.class_V.tolist(), found.first_K.tolist()
  ([2, 0, 1, 3], [0, 1, 4, 4])
  """
  ids_V = jnp.arange(len(cluster_V), dtype=jnp.int32)
  cluster_V, class_V = lax.sort_key_val(cluster_V, ids_V)
  numbers = jnp.arange(num + 1, dtype=cluster_V.dtype)
  return Members(class_V, jnp.searchsorted(cluster_V, numbers).astype(jnp.int32))


def first_members(members: Members, order_K: jax.Array, num: int) -> jax.Array:
  """The first `num` classes of the clusters in the given order, i32[num].

  Args:
    order_K: i32[K], the clusters.
    num: up to V.

  Cost: O(K + num log K).

  >>> found = members(jnp.array([1, 1, 0, 1]), 3)
  >>> first_members(found, jnp.array([2, 1, 0]), 2).tolist()
  [0, 1]
  """
  first_K = members.first_K[order_K]
  end_K = jnp.cumsum(members.first_K[order_K + 1] - first_K)
  at_S = jnp.arange(num, dtype=end_K.dtype)
  i_S = jnp.searchsorted(end_K, at_S, side="right")
  # Position at_S in this order is member at_S - end_K[i - 1] of cluster i.
  before_K = jnp.concatenate([jnp.zeros(1, end_K.dtype), end_K[:-1]])
  return members.class_V[(first_K - before_K)[i_S] + at_S]
