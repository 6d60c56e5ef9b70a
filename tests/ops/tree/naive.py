"""The two-level softmax from all logits at once."""

import jax
import jax.numpy as jnp

from largevocab.ops.softmax.chunks import compute_dtype, logits, product
from largevocab.ops.tree.two_level import ClusterLayout


def log_p_naive(
  x_ND: jax.Array, clusters_KD: jax.Array, leaves_KSD: jax.Array, layout: ClusterLayout
) -> jax.Array:
  """Log-probabilities of all classes at once, f32[N, V]."""
  dtype = compute_dtype(x_ND, leaves_KSD)
  o_NKS = product("nd,ksd->nks", x_ND, leaves_KSD, dtype)
  is_class_KS = layout.members_KS < len(layout.cluster_V)
  log_p_NKS = jax.nn.log_softmax(jnp.where(is_class_KS[None], o_NKS, -jnp.inf))
  log_p_NKS += jax.nn.log_softmax(logits(x_ND, clusters_KD, dtype))[:, :, None]
  return log_p_NKS[:, layout.cluster_V, layout.slot_V]
