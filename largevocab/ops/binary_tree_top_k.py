"""The likeliest k classes of a binary tree, a few examples at a time."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.binary_tree_loss import side_log_p
from largevocab.ops.class_chunks import compute_dtype, product
from largevocab.ops.huffman import Tree
from largevocab.ops.shapes import check_shapes

_LOGIT_BYTES = 32 * 2**20


def tree_top_k(
  x_ND: jax.Array, w_VD: jax.Array, tree: Tree, k: int, *, size: int | None = None
) -> tuple[jax.Array, jax.Array]:
  """The k classes of the largest probability, best first.

  Exact. Of classes that are equally likely the smaller id comes first.

  Args:
    x_ND: float[N, D], features.
    w_VD: float[V, D], a row per inner node; the last is not read.
    tree: what is above what.
    k: how many.
    size: examples at a time; by default 32 MiB of logits.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: a product of N V D, and N V log L sums with L the depth of the tree; holds some
    arrays of [size, V].

  >>> import numpy as np
  >>> from largevocab.ops.huffman import huffman
  >>> tree = huffman(np.array([1, 5, 2]))
  >>> ids_NK, log_p_NK = tree_top_k(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree, 2)
  >>> ids_NK.tolist(), jnp.exp(log_p_NK).tolist()
  ([[1, 0]], [[0.5, 0.25]])
  """
  V = check_shapes(x_ND=x_ND, w_VD=w_VD, **tree._asdict())["V"]
  if not 1 <= k <= V:
    raise ValueError(f"k must be in 1 ... V = {V}, got {k}")
  size = size or max(_LOGIT_BYTES // (4 * V), 1)

  def best(x_D):
    log_p_K, ids_K = lax.top_k(_log_p(x_D, w_VD, tree), k)
    return ids_K, log_p_K

  return lax.map(best, x_ND, batch_size=min(size, len(x_ND)))


def _log_p(x_D: jax.Array, w_VD: jax.Array, tree: Tree) -> jax.Array:
  """log p of all classes, f32[V].

  A node first has the log-probability of the step to it; then that of twice as many
  steps, and so on, until all reach the root.
  """
  V, L = len(w_VD), len(tree.num_L)
  o_V = product("vd,d->v", w_VD, x_D, compute_dtype(x_D, w_VD))

  def step_to(above_V):
    return side_log_p(o_V.at[above_V // 2].get(mode="clip"), above_V)

  log_p_V = step_to(tree.above_node_V)
  over_V = jnp.where(tree.above_node_V < 0, V, tree.above_node_V // 2)
  for _ in range(math.ceil(math.log2(max(L - 1, 1)))):
    log_p_V += log_p_V.at[over_V].get(mode="fill", fill_value=0)
    over_V = over_V.at[over_V].get(mode="fill", fill_value=V)
  at_V = tree.above_class_V // 2
  return step_to(tree.above_class_V) + log_p_V.at[at_V].get(mode="clip")
