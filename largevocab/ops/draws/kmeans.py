"""k-means over the rows of a class table, in chunks of classes."""

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


def random_rows(key: jax.Array, w_VD: jax.Array, num: int) -> jax.Array:
  """Initial centroids: `num` rows [K, D] of different classes.

  Raises:
    ValueError: there are fewer classes.

  >>> sorted(random_rows(jax.random.key(0), jnp.arange(3.0)[:, None], 3)[:, 0].tolist())
  [0.0, 1.0, 2.0]
  """
  return wide(w_VD[jax.random.choice(key, w_VD.shape[0], (num,), replace=False)])


def nearest(
  w_VD: jax.Array, centroids_KD: jax.Array, *, size: int | None = None
) -> jax.Array:
  """The centroid nearest to each row, i32[V].

  Args:
    w_VD: float[V, D], class table.
    centroids_KD: float[K, D].
    size: approximate classes per chunk; by default 8 MiB of scores.

  Cost: one product of V K D; holds [size, K].

  >>> nearest(jnp.array([[0.0], [7.0], [4.0]]), jnp.array([[1.0], [6.0]]), size=2)
  Array([0, 1, 1], dtype=int32)
  """
  V = check_shapes(w_VD=w_VD, centroids_KD=centroids_KD)["V"]
  dtype = compute_dtype(w_VD, centroids_KD)
  # The nearest centroid maximises <w, c> - |c|^2 / 2.
  half_K = jnp.sum(jnp.square(centroids_KD), axis=1) / 2
  size = size or _SCORE_BYTES // (4 * len(centroids_KD))

  def assign(cluster_V, chunk):
    score_CK = logits(chunk.rows(w_VD), centroids_KD, dtype) - half_K[None]
    chosen_C = jnp.argmax(score_CK, axis=1).astype(jnp.int32)
    return chunk.put(cluster_V, chosen_C)

  return fold_rows(assign, jnp.zeros(V, jnp.int32), V, size)


def lloyd_step(w_VD: jax.Array, centroids_KD: jax.Array, key: jax.Array) -> jax.Array:
  """Moves each centroid to the mean of the rows nearest to it, [K, D].

  A centroid without rows is replaced by a random row.

  Source: Lloyd 1982.
  Cost: that of `nearest`, and O(V D).

  >>> w_VD = jnp.array([[0.0], [1.0], [6.0]])
  >>> lloyd_step(w_VD, jnp.array([[2.0], [7.0]]), jax.random.key(0)).tolist()
  [[0.5], [6.0]]
  """
  V, K = (check_shapes(w_VD=w_VD, centroids_KD=centroids_KD)[x] for x in "VK")
  cluster_V = nearest(w_VD, centroids_KD)
  sum_KD = jax.ops.segment_sum(wide(w_VD), cluster_V, num_segments=K)
  one_V1 = jnp.ones((V, 1), sum_KD.dtype)
  num_K1 = jax.ops.segment_sum(one_V1, cluster_V, num_segments=K)
  other_KD = w_VD[jax.random.randint(key, (K,), 0, V)]
  return jnp.where(num_K1 > 0, sum_KD / jnp.maximum(num_K1, 1), other_KD)


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
