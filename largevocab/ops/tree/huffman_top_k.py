"""Exact top k classes of a Huffman tree.

Here n is the number of examples at a time, C the number of nodes at a time and A = 2 C
that of their links, S the number of rows of a block of classes, and L the number of
levels of the tree plus one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import log_sigmoid

from largevocab.ops import shards
from largevocab.ops.softmax.chunks import compute_dtype, fold_rows, logits, sum_dtype
from largevocab.ops.softmax.top_k import check_k, merge_best, none_best, of_all_devices
from largevocab.ops.tree.huffman import Tree, check_tree, side_log_p, ways

_EXAMPLES = 256
_NODES = 256

Best = tuple[jax.Array, jax.Array]  # ids and log p, as in `none_best`


def tree_top_k(
  x_ND: jax.Array,
  w_VD: jax.Array,
  tree: Tree,
  k: int,
  *,
  size: int = _EXAMPLES,
  nodes: int = _NODES,
  dtype=None,
) -> tuple[jax.Array, jax.Array]:
  """The k most probable classes, best first.

  Exact. Ties are broken by smaller class id, but on a device with several blocks by
  row.

  The search goes down the tree, from some nodes to all those below them and then to the
  next nodes. As nodes are numbered by depth, the nodes below consecutive nodes are
  consecutive. No class is more probable than a node above it. If, for none of the
  examples, any of the nodes is as probable as the k best classes so far, those below
  are left out.

  Args:
    x_ND: float[N, D], features.
    w_VD: float[V, D], a row per inner node; the last is unused.
    tree: the Huffman tree.
    k: number of classes.
    size: number of examples at a time.
    nodes: number of nodes of a level at a time.
    dtype: type of the operands of the products, by default that of the arguments;
      logits are at least float32.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: at most a product of N V D and N V sums, and less if classes differ much in
    probability; reads the table at most N / size times. Holds [2 nodes, size] for each
    level of the tree, and 12 bytes a class.

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> tree = huffman(np.array([1, 5, 2]))
  >>> ids_NK, log_p_NK = tree_top_k(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree, 2)
  >>> ids_NK.tolist(), jnp.exp(log_p_NK).tolist()
  ([[1, 0]], [[0.5, 0.25]])
  """
  num_rows, N = check_tree(x_ND, w_VD, tree), len(x_ND)
  check_k(k, shards.num_classes(num_rows))
  dtype = compute_dtype(x_ND, w_VD, dtype)
  log_p_NB = _log_p_of_blocks(x_ND, w_VD, tree, dtype)
  blocks = _blocks(tree, log_p_NB.shape[1])

  def of_some(found, chunk):
    x_nD, log_p_nB = chunk.rows(x_ND), chunk.rows(log_p_NB)

    def with_block(b, best):
      block = jax.tree.map(lambda x: x[b], blocks)
      return _with_block(
        best, x_nD, log_p_nB[:, b], w_VD, block, len(tree.num_L), nodes, dtype
      )

    best = none_best(len(x_nD), k, num_rows, log_p_nB.dtype)
    best = lax.fori_loop(0, log_p_nB.shape[1], with_block, best)
    return jax.tree.map(chunk.put, found, best)

  none = none_best(N, k, num_rows, log_p_NB.dtype)
  return of_all_devices(fold_rows(of_some, none, N, size), num_rows)


def _log_p_of_blocks(x_ND, w_VD, tree, dtype) -> jax.Array:
  """log p of the blocks on this device, f32[N, B]."""
  if tree.top is None:
    return jnp.zeros((len(x_ND), 1), sum_dtype(dtype))
  here_B = shards.blocks_here()
  rows_BD = w_VD.reshape(len(here_B), -1, w_VD.shape[1])[:, -1]
  num = len(tree.top.above_class_V)
  o_NB = jnp.zeros((len(x_ND), num)).at[:, here_B].set(logits(x_ND, rows_BD, dtype))
  o_NB = shards.psum(o_NB)
  above_LB = ways(tree.top, jnp.arange(num))
  log_p_NLB = side_log_p(o_NB.at[:, above_LB // 2].get(mode="clip"), above_LB)
  return jnp.sum(log_p_NLB, axis=1)[:, here_B]


class _Block(NamedTuple):
  """The tree of a block of classes.

  Attributes:
    first: i32[], the row of its root.
    above_S: i32[S], links above its nodes; -1 above the root and for unused rows.
    class_A: i32[2 S], the rows of the classes at links; V where there is none.
    is_class: bool[], whether the root is a class, which is then the only one.
  """

  first: jax.Array
  above_S: jax.Array
  class_A: jax.Array
  is_class: jax.Array


def _blocks(tree: Tree, B: int) -> _Block:
  """The trees of all blocks on this device, with a leading axis B."""
  V = len(tree.above_class_V)
  S = V // B
  row_BS = jnp.arange(V, dtype=jnp.int32).reshape(B, S)
  above_BS, link_BS = (
    x_V.reshape(B, S) for x_V in (tree.above_node_V, tree.above_class_V)
  )
  at_BS = jnp.where(link_BS < 0, 2 * S, link_BS)
  class_BA = jnp.full((B, 2 * S), V, jnp.int32)
  class_BA = class_BA.at[jnp.arange(B)[:, None], at_BS].set(row_BS, mode="drop")
  is_used_BS = shards.used(row_BS, V, jnp.ones((B, S), bool))
  return _Block(row_BS[:, 0], above_BS, class_BA, (is_used_BS & (link_BS < 0))[:, 0])


class _Frontier(NamedTuple):
  """Nodes to visit: at each level consecutive ones, below C nodes of the level above.

  Attributes:
    next_L: i32[L], the first node.
    end_L: i32[L], the node after the last.
    above_L: i32[L], the first of the C nodes above.
    log_p_LAn: [L, A, n], log p below each link of these C nodes.
  """

  next_L: jax.Array
  end_L: jax.Array
  above_L: jax.Array
  log_p_LAn: jax.Array


def _with_block(
  best: Best,
  x_nD: jax.Array,
  log_p_n: jax.Array,
  w_VD: jax.Array,
  block: _Block,
  levels: int,
  nodes: int,
  dtype,
) -> Best:
  """The best classes so far, merged with those of a block with these log p."""
  n, S, V, L = len(x_nD), len(block.above_S), len(w_VD), levels + 1
  C = min(nodes, S)
  # The root is below no node, and neither are the unused rows after all others.
  parent_S = jnp.where(block.above_S < 0, S, block.above_S // 2).at[0].set(-1)

  def go_below(best, start, is_here_C, log_p_Cn):
    """The best so far merged with the classes below C nodes, and log p below links."""
    rows_CD = lax.dynamic_slice_in_dim(w_VD, block.first + start, C)
    o_Cn = logits(rows_CD, x_nD, dtype)
    log_p_C2n = log_p_Cn[:, None] + log_sigmoid(jnp.stack([-o_Cn, o_Cn], axis=1))
    log_p_An = log_p_C2n.reshape(2 * C, n)
    class_A = lax.dynamic_slice_in_dim(block.class_A, 2 * start, 2 * C)
    class_A = jnp.where(jnp.repeat(is_here_C, 2), class_A, V)
    order_A = jnp.argsort(class_A)  # ties are broken by class
    class_A = class_A[order_A]
    of_class_An = jnp.where((class_A < V)[:, None], log_p_An[order_A], -jnp.inf)
    return merge_best(best, class_A, of_class_An.T), log_p_An

  def stay(best, start, is_here_C, log_p_Cn):
    return best, jnp.full((2 * C, n), -jnp.inf, log_p_n.dtype)

  def visit(carry):
    best, (next_L, end_L, above_L, log_p_LAn) = carry
    level = jnp.max(jnp.where(next_L < end_L, jnp.arange(L), 0))  # the lowest
    begin, end = next_L[level], jnp.minimum(next_L[level] + C, end_L[level])
    start = jnp.minimum(begin, S - C)
    node_C = start + jnp.arange(C)
    is_here_C = (node_C >= begin) & (node_C < end)
    link_C = lax.dynamic_slice_in_dim(block.above_S, start, C)
    at_C = jnp.clip(link_C - 2 * above_L[level], 0, 2 * C - 1)
    log_p_Cn = log_p_LAn[level, at_C]
    # True for NaN, so that NaN is not overlooked.
    may_be_better_Cn = ~(log_p_Cn < best[1][None, :, -1])
    goes = jnp.any(may_be_better_Cn & is_here_C[:, None])
    best, log_p_An = lax.cond(goes, go_below, stay, best, start, is_here_C, log_p_Cn)
    children = jnp.searchsorted(parent_S, jnp.stack([begin, end])).astype(jnp.int32)
    children = jnp.where(goes, children, 0)
    frontier = _Frontier(
      next_L.at[level].set(end).at[level + 1].set(children[0]),
      end_L.at[level + 1].set(children[1]),
      above_L.at[level + 1].set(start),
      log_p_LAn.at[level + 1].set(log_p_An),
    )
    return best, frontier

  root = jnp.where(block.is_class, block.first, V)
  of_root_n = jnp.where(block.is_class, log_p_n, -jnp.inf)
  best = merge_best(best, root[None], of_root_n[:, None])
  zeros_L = jnp.zeros(L, jnp.int32)
  has_node = jnp.any(block.class_A < V).astype(jnp.int32)
  log_p_LAn = jnp.zeros((L, 2 * C, n), log_p_n.dtype).at[0, 0].set(log_p_n)
  frontier = _Frontier(zeros_L, zeros_L.at[0].set(has_node), zeros_L, log_p_LAn)
  is_open = lambda carry: jnp.any(carry[1].next_L < carry[1].end_L)
  return lax.while_loop(is_open, visit, (best, frontier))[0]
