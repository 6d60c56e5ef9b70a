"""The likeliest k classes of a softmax over classes in parts, streamed over tables."""

import jax
import jax.numpy as jnp

from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax_parts import Parts, parts_nll
from largevocab.ops.top_k import best_of_both, none_best, top_k


def parts_top_k(
  parts: Parts, class_V: jax.Array, k: int, *, dtype=None
) -> tuple[jax.Array, jax.Array]:
  """The k classes of the largest probability, best first.

  Exact. Of classes that are equally likely the smaller id comes first.

  Args:
    parts: at least one.
    class_V: i32[V], the class at each place; those of one part ascend.
    k: how many.
    dtype: of the operands of the products.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: two products of N, V_i and D_i for each part i; memory of one chunk of logits.

  >>> from largevocab.ops.softmax_parts import Part
  >>> parts = (Part(jnp.ones((1, 1)), jnp.array([[1.0], [9.0]])),
  ...          Part(jnp.ones((1, 2)), jnp.array([[1.0, 8.0], [0.0, 1.0]])))
  >>> ids_NK, _ = parts_top_k(parts, jnp.array([1, 3, 0, 2]), 3)
  >>> ids_NK.tolist()
  [[0, 3, 1]]
  """
  V, N = check_shapes(class_V=class_V)["V"], len(parts[0].h_ND)
  if not 1 <= k <= V:
    raise ValueError(f"k must be in 1 ... V = {V}, got {k}")
  _, log_z_N = parts_nll(
    parts, jnp.zeros((N, 0), jnp.int32), jnp.zeros((N, 0)), dtype=dtype
  )
  best = none_best(N, k, V, log_z_N.dtype)
  start = 0
  for h_ND, w_VD in parts:
    at_NK, o_NK = top_k(h_ND, w_VD, min(k, len(w_VD)), dtype=dtype)
    best = best_of_both(best, (class_V[start + at_NK], o_NK))
    start += len(w_VD)
  ids_NK, o_NK = best
  return ids_NK, o_NK - log_z_N[:, None]
