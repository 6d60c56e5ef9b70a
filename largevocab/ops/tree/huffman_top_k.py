"""Exact top k classes of a Huffman tree.

Here L is the depth of the tree.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards
from largevocab.ops.softmax.chunks import compute_dtype, logits, product
from largevocab.ops.softmax.top_k import of_all_devices
from largevocab.ops.tree.huffman import Tree, check_tree, links, side_log_p, ways

_LOGIT_BYTES = 32 * 2**20


def tree_top_k(
  x_ND: jax.Array,
  w_VD: jax.Array,
  tree: Tree,
  k: int,
  *,
  size: int | None = None,
  dtype=None,
) -> tuple[jax.Array, jax.Array]:
  """The k most probable classes, best first.

  Exact. Ties are by smaller class id.

  Args:
    x_ND: float[N, D], features.
    w_VD: float[V, D], a row per inner node; the last is unused.
    tree: the Huffman tree.
    k: number of classes.
    size: examples at a time; by default 32 MiB of logits.
    dtype: of the operands of the products, by default that of the arguments; logits
      are at least float32.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: a product of N V D, and N V log L sums with L the depth of the tree. A path has
    nodes anywhere in the table, so that no chunk of classes can be done alone: holds
    some arrays of [size, V], and reads the table N / size times.

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> tree = huffman(np.array([1, 5, 2]))
  >>> ids_NK, log_p_NK = tree_top_k(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree, 2)
  >>> ids_NK.tolist(), jnp.exp(log_p_NK).tolist()
  ([[1, 0]], [[0.5, 0.25]])
  """
  num_rows = check_tree(x_ND, w_VD, tree)
  V = shards.num_classes(num_rows)
  if not 1 <= k <= V:
    raise ValueError(f"k must be in 1 ... V = {V}, got {k}")
  size = size or max(_LOGIT_BYTES // (4 * num_rows), 1)
  dtype = compute_dtype(x_ND, w_VD, dtype)
  num = min(k, num_rows)

  def best(example):
    x_D, log_p_B = example
    log_p_K, rows_K = lax.top_k(_log_p(x_D, log_p_B, w_VD, tree, dtype), num)
    missing = (0, k - num)
    return (
      jnp.pad(rows_K, missing, constant_values=num_rows),
      jnp.pad(log_p_K, missing, constant_values=-jnp.inf),
    )

  examples = x_ND, _log_p_of_blocks(x_ND, w_VD, tree, dtype)
  each = lax.map(best, examples, batch_size=min(size, len(x_ND)))
  return of_all_devices(each, num_rows)


def _log_p_of_blocks(x_ND, w_VD, tree, dtype) -> jax.Array | None:
  """log p of all blocks, f32[N, B]; None: there is a single tree."""
  if tree.top is None:
    return None
  here_B = shards.blocks_here()
  rows_BD = w_VD.reshape(len(here_B), -1, w_VD.shape[1])[:, -1]
  num = len(tree.top.above_class_V)
  o_NB = jnp.zeros((len(x_ND), num)).at[:, here_B].set(logits(x_ND, rows_BD, dtype))
  o_NB = shards.total(o_NB)
  above_LB = ways(tree.top, jnp.arange(num))
  log_p_NLB = side_log_p(o_NB.at[:, above_LB // 2].get(mode="clip"), above_LB)
  return jnp.sum(log_p_NLB, axis=1)


def _log_p(x_D, log_p_B, w_VD, tree, dtype) -> jax.Array:
  """log p of all classes, f32[V]; of those on this device, with log p of all blocks.

  Pointer doubling: a node has the log-probability of the last step to it, then of the
  last two, four, ... steps, until all paths reach the root.
  """
  V, L = len(w_VD), len(tree.num_L)
  rows_V = jnp.arange(V, dtype=jnp.int32)
  above_node_V = links(tree, tree.above_node_V, rows_V)
  above_class_V = links(tree, tree.above_class_V, rows_V)
  o_V = product("vd,d->v", w_VD, x_D, dtype)

  def step_to(above_V):
    return side_log_p(o_V.at[above_V // 2].get(mode="clip"), above_V)

  log_p_V = step_to(above_node_V)
  over_V = jnp.where(above_node_V < 0, V, above_node_V // 2)
  for _ in range(math.ceil(math.log2(max(L - 1, 1)))):
    log_p_V += log_p_V.at[over_V].get(mode="fill", fill_value=0)
    over_V = over_V.at[over_V].get(mode="fill", fill_value=V)
  log_p_V = step_to(above_class_V) + log_p_V.at[above_class_V // 2].get(mode="clip")
  if log_p_B is None:
    return log_p_V
  here_B = shards.blocks_here()
  log_p_BS = log_p_V.reshape(len(here_B), -1) + log_p_B[here_B][:, None]
  return jnp.where(shards.used(rows_V, V, jnp.bool(True)), log_p_BS.ravel(), -jnp.inf)
