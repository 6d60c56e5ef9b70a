"""Exact top k classes of a two-level softmax, in chunks of clusters."""

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards
from largevocab.ops.softmax.chunks import (
  compute_dtype,
  fold_rows,
  logits,
  sum_dtype,
)
from largevocab.ops.softmax.top_k import best_of_devices, check_k, merge_best, none_best
from largevocab.ops.tree.two_level import (
  ClusterLayout,
  check_two_level,
  log_p_of_clusters,
)

_LOGIT_BYTES = 8 * 2**20


def two_level_top_k(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  k: int,
  *,
  size: int | None = None,
  dtype=None,
) -> tuple[jax.Array, jax.Array]:
  """The k most probable classes, best first.

  Exact. Ties are broken by smaller class id.

  Args:
    x_ND: float[N, D], features.
    clusters_KD: float[K, D], a row per cluster.
    leaves_KSD: float[K, S, D], the block of each cluster, a row per slot.
    layout: clusters and slots of classes.
    k: number of classes.
    size: approximate number of clusters per chunk; by default 8 MiB of logits.
    dtype: type of the operands of the products, by default that of the arguments;
      logits are at least float32.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: products of N K D and N K S D; holds [N, K] and [N, size S].

  >>> from largevocab.ops.tree.two_level import layout
  >>> import numpy as np
  >>> clusters_KD, leaves_KSD = jnp.zeros((2, 3)), jnp.zeros((2, 2, 3))
  >>> where = layout(np.array([0, 0, 1]))
  >>> ids_NK, _ = two_level_top_k(jnp.ones((1, 3)), clusters_KD, leaves_KSD, where, 2)
  >>> ids_NK.tolist()
  [[2, 0]]
  """
  check_two_level(x_ND, clusters_KD, leaves_KSD, layout)
  N, (K, S, D) = len(x_ND), leaves_KSD.shape
  V = shards.num_classes(len(layout.cluster_V))
  check_k(k, V)
  dtype = compute_dtype(x_ND, leaves_KSD, dtype)
  log_p_NK = log_p_of_clusters(x_ND, clusters_KD, layout, dtype)
  size = size or max(_LOGIT_BYTES // (4 * N * S), 1)
  # As they are stored: otherwise compilers for TPU copy all blocks to slice a few.
  leaves_KE = leaves_KSD.reshape(K, -1)

  def merge(best, chunk):
    """`chunk` is of clusters."""
    rows_RD = chunk.rows(leaves_KE).reshape(-1, D)
    ids_K, is_new_K = chunk.ids_C, chunk.is_new_C
    members_KS = layout.members_KS[ids_K]
    is_class_KS = members_KS < V
    o_NKS = logits(x_ND, rows_RD, dtype).reshape(N, -1, S)
    log_q_NKS = jax.nn.log_softmax(jnp.where(is_class_KS[None], o_NKS, -jnp.inf))
    log_q_NKS += log_p_NK[:, ids_K, None]
    counts_KS = is_class_KS & is_new_K[:, None]  # also if everything is NaN
    log_q_NKS = jnp.where(counts_KS[None], log_q_NKS, -jnp.inf)
    ids_V, order_V = lax.sort_key_val(
      members_KS.ravel(), jnp.arange(members_KS.size, dtype=jnp.int32)
    )
    log_q_NV = jnp.take(log_q_NKS.reshape(N, -1), order_V, axis=1, mode="clip")
    return merge_best(best, ids_V, log_q_NV)

  best = fold_rows(merge, none_best(N, k, V, sum_dtype(dtype)), K, size)
  return best_of_devices(best)
