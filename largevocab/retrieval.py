"""How high the true classes rank among all."""

import jax
import jax.numpy as jnp

from largevocab.labels import Targets
from largevocab.ops.shapes import check_shapes


def at_k(ids_NK: jax.Array, y: Targets) -> dict[str, jax.Array]:
  """Recall and reciprocal rank of the best K classes, for each example.

  recall_n = sum_p w_np [y_np is among the K] / sum_p w_np;  mrr_n = 1 / rank of the
  first of the K that is true, 0 if none is. With one true class mrr_n averages to the
  mean reciprocal rank, MRR@K.

  Args:
    ids_NK: i32[N, K], the best K classes, best first.
    y: the true classes; those of weight 0 are not looked at.

  Returns:
    {'recall@K': f32[N], 'mrr@K': f32[N]}.

  >>> y = Targets(jnp.array([[7], [5]]), jnp.ones((2, 1)), jnp.zeros(2, int))
  >>> metrics = at_k(jnp.array([[3, 7], [1, 2]]), y)
  >>> {name: values.tolist() for name, values in metrics.items()}
  {'recall@2': [1.0, 0.0], 'mrr@2': [0.5, 0.0]}
  """
  k = check_shapes(ids_NK=ids_NK, ids_NP=y.ids_NP, w_NP=y.w_NP)["K"]
  is_true_NPK = (y.ids_NP[:, :, None] == ids_NK[:, None]) & (y.w_NP > 0)[:, :, None]
  found_NP = jnp.any(is_true_NPK, axis=2)
  weight_N = jnp.sum(y.w_NP, axis=1)
  found_N = jnp.sum(y.w_NP * found_NP, axis=1)
  is_true_NK = jnp.any(is_true_NPK, axis=1)
  rank_N = 1 + jnp.argmax(is_true_NK, axis=1)
  return {
    f"recall@{k}": found_N / jnp.where(weight_N > 0, weight_N, 1),
    f"mrr@{k}": jnp.where(jnp.any(is_true_NK, axis=1), 1 / rank_N, 0),
  }
