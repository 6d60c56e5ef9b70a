"""Huffman trees over classes: frequent classes are near the root.

Classes in blocks (`largevocab.ops.shards`) have one tree for each block, and one whose
leaves are the blocks, so that a device needs links of its own classes only:

  log p(c | h) = log p(block of c | h) + log p(c | its block, h)

Here L is the depth of the tree.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import log_sigmoid, sigmoid

from largevocab.ops import shards
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype, product, sum_dtype, wide


class Tree(NamedTuple):
  """A binary tree whose leaves are the V classes; V - 1 inner nodes, the root is 0.

  The link above a class or node is `2 * parent + side`, where side is 0 or 1; it is -1
  above the root. Parents of nodes ascend, so that nodes are numbered by depth and the
  nodes below consecutive nodes are consecutive. Arrays of inner nodes have V entries,
  the last unused, so that they shard like those of classes.

  Attributes:
    above_class_V: i32[V], links above classes.
    above_node_V: i32[V], links above inner nodes.
    num_L: i32[L], number of classes at depths 1 ... L; L is the largest depth.
    top: the tree over blocks, whose inner node i has the last row of block i; None: a
      single tree. If there is such a tree, the other fields belong to trees side by
      side: links in a block count its own nodes, and depths begin at its root.
  """

  above_class_V: jax.Array
  above_node_V: jax.Array
  num_L: jax.Array
  top: "Tree | None" = None


def huffman(count_V: np.ndarray) -> Tree:
  """The tree with the smallest mean depth of a class, weighted by counts.

  If several trees are equally good, the result is one of least depth. With positive
  counts that sum to T it has at most about 1.44 log2 T levels, and Z classes of count 0
  add at most 1 + log2 Z to these, rounded up.

  Args:
    count_V: int[V] on the host, not negative.

  Source: Huffman 1952, with two queues in place of a heap: van Leeuwen 1976.

  Cost: a sort and O(V), 2 s for a million classes.

  >>> tree = huffman(np.array([1, 5, 1, 1]))
  >>> tree.num_L.tolist(), tree.above_class_V.tolist(), tree.above_node_V.tolist()
  ([1, 1, 2], [4, 1, 5, 2], [-1, 0, 3, -1])
  """
  V = len(count_V)
  order_V = np.argsort(count_V, kind="stable")
  below = np.array(_merges(count_V[order_V].tolist()), np.int64)  # two per merge
  above = 2 * (V - 2 - np.arange(2 * V - 2) // 2) + np.arange(2 * V - 2) % 2
  above_class_V, above_node_V = np.full(V, -1), np.full(V, -1)
  is_class = below < V
  above_class_V[order_V[below[is_class]]] = above[is_class]
  above_node_V[V - 2 - (below[~is_class] - V)] = above[~is_class]
  depths = [0]
  for parent in (above_node_V[1 : V - 1] // 2).tolist():
    depths.append(depths[parent] + 1)
  num_L = np.bincount(np.array(depths)[above_class_V // 2]) if V > 1 else [0]
  array = lambda x: jnp.array(x, jnp.int32)
  return Tree(array(above_class_V), array(above_node_V), array(num_L))


def huffman_blocks(count_V: np.ndarray, blocks: Blocks) -> list[Tree]:
  """The trees of all blocks, each with the one above them, on the host.

  Source: as for `huffman`. Deviation: classes are divided into blocks first, which
    makes the mean path longer, by less than two levels.

  >>> tree, other = huffman_blocks(np.array([5, 2, 1, 1, 1]), Blocks(5, 2))
  >>> tree.above_class_V.tolist(), other.above_class_V.tolist()  # 0 2 4, and 1 3
  ([1, 2, 3], [1, 0, -1])
  >>> tree.top.above_class_V.tolist()
  [1, 0]
  """
  count_BS = [count_V[blocks.classes(b)] for b in range(blocks.num)]
  top = jax.device_get(huffman(np.array([count_S.sum() for count_S in count_BS])))
  trees = [jax.device_get(huffman(count_S)) for count_S in count_BS]
  num_L = np.zeros(max(len(tree.num_L) for tree in trees), np.int32)
  for tree in trees:
    num_L[: len(tree.num_L)] += tree.num_L
  filled = lambda x: np.pad(x, (0, blocks.size - len(x)), constant_values=-1)
  return [
    Tree(filled(tree.above_class_V), filled(tree.above_node_V), num_L, top)  # pyrefly: ignore
    for tree in trees
  ]


def _merges(counts: list[int]) -> list[int]:
  """The two nodes of each merge, concatenated; merge n makes node V + n.

  Counts ascend, and so do those of merged nodes, so the least two are at the heads of
  two queues. If counts are equal a class comes first, which keeps the tree flat.
  """
  V, sums, taken = len(counts), [], []
  leaf = inner = 0
  for _ in range(V - 1):
    total = 0
    for _ in range(2):
      if leaf < V and (inner == len(sums) or counts[leaf] <= sums[inner]):
        total += counts[leaf]
        taken.append(leaf)
        leaf += 1
      else:
        total += sums[inner]
        taken.append(V + inner)
        inner += 1
    sums.append(total)
  return taken


def ways(tree: Tree, ids_M: jax.Array) -> jax.Array:
  """Path from each class to the root as links 2 * node + side, i32[L, M].

  The link is -1 after the root, and for ids >= V. Nodes are rows of the table. With
  blocks on several devices, paths have the nodes on this device, also for classes on
  other devices, and L is the depth of both trees.

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> ways(huffman(np.array([1, 5, 2])), jnp.array([0, 1, 3])).tolist()
  [[2, 1, -1], [0, -1, -1]]
  """
  num_rows, fill = len(tree.above_node_V), {"mode": "fill", "fill_value": -1}

  def climb(above_M, _):
    node_M = _nodes(above_M, num_rows)
    above_next_M = tree.above_node_V.at[node_M].get(**fill)
    return links(tree, above_next_M, ids_M), above_M

  start_M = links(tree, tree.above_class_V.at[ids_M].get(**fill), ids_M)
  ways_LM = lax.scan(climb, start_M, length=len(tree.num_L))[1]
  if tree.top is None:
    return ways_LM
  return jnp.concatenate([ways_LM, _ways_of_blocks(tree.top, ids_M, num_rows)])


def links(tree: Tree, above_M: jax.Array, rows_M: jax.Array) -> jax.Array:
  """Links within the blocks of these rows, converted to links to rows of the table."""
  if tree.top is None:
    return above_M
  size = len(tree.above_node_V) // len(shards.blocks_here())
  return jnp.where(above_M < 0, -1, above_M + 2 * (rows_M // size * size))


def _ways_of_blocks(top: Tree, ids_M: jax.Array, num_rows: int) -> jax.Array:
  """The part of the paths above blocks, limited to nodes with rows on this device."""
  here_B = shards.blocks_here()
  size = num_rows // len(here_B)
  block_M = here_B.at[ids_M // size].get(mode="fill", fill_value=-1)
  block_M = shards.pmax(block_M)  # from the owner
  above_LM = ways(top, jnp.where(block_M < 0, len(top.above_class_V), block_M))
  row_LM = shards.rows_here(above_LM // 2 * size + size - 1, num_rows)
  is_here_LM = (above_LM >= 0) & (row_LM < num_rows)
  return jnp.where(is_here_LM, 2 * row_LM + above_LM % 2, -1)


def side_log_p(o: jax.Array, above: jax.Array) -> jax.Array:
  """log sigma(+-o) of steps to `above` with logits o; 0 where `above` is negative."""
  return jnp.where(above < 0, 0, log_sigmoid(jnp.where(above % 2 == 1, o, -o)))


def tree_nll(
  x_ND: jax.Array, w_VD: jax.Array, tree: Tree, ids_NP: jax.Array, *, dtype=None
) -> jax.Array:
  """-log p of the given classes, exact; 0 on padding.

  Args:
    x_ND: float[N, D], features.
    w_VD: float[V, D], a row per inner node; the last is unused.
    tree: the Huffman tree.
    ids_NP: i32[N, P], padded with V.
    dtype: type of the operands of the products, by default that of the arguments;
      logits, sums and gradients are at least float32.

  Returns:
    f32[N, P], nats.

  Source: Morin and Bengio 2005; Mikolov et al. 2013, section 2.1, for Huffman's tree.

  Cost: L products of N P D, where L is the depth of the tree; holds [N P, D].

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> tree, ids_NP = huffman(np.array([1, 5, 2])), jnp.array([[0, 1, 3]])
  >>> nll_NP = tree_nll(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree, ids_NP)
  >>> jnp.exp(-nll_NP).tolist()
  [[0.25, 0.5, 1.0]]
  """
  _check(x_ND, w_VD, tree, ids_NP=ids_NP)
  dtype = compute_dtype(x_ND, w_VD, dtype)
  x_MD = jnp.repeat(x_ND, ids_NP.shape[1], axis=0)

  def add(nll_M, above_M):
    _, o_M = _logits(x_MD, w_VD, _nodes(above_M, len(w_VD)), dtype)
    return nll_M - side_log_p(o_M, above_M), None

  nll_M = jnp.zeros(ids_NP.size, sum_dtype(dtype))
  nll_M, _ = lax.scan(add, nll_M, ways(tree, ids_NP.ravel()))
  return shards.psum(nll_M.reshape(ids_NP.shape))


def tree_loss(
  x_ND: jax.Array,
  w_VD: jax.Array,
  tree: Tree,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  dtype=None,
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array]]:
  """loss = sum_np w_NP nll_NP, see `tree_nll`, and its gradients.

  Args:
    w_NP: f32[N, P], weights, 0 on padding. Divide them by their sum for a mean. Classes
      of weight 0 update no row.
    The others: see `tree_nll`.

  Returns:
    f32[], nats; its gradient with respect to x_ND, on several devices by the rows of
    this device; and that of w_VD as distinct ids i32[R], padded with ids >= V, and rows
    f32[R, D], zeros on padding; R = min(L N P, V).

  Cost: three times that of `tree_nll`, and a sort of L N P ids; holds [R, D],
    on a TPU twice.

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> tree, ids_NP = huffman(np.array([1, 5, 2])), jnp.array([[1, 3]])
  >>> loss, _, (ids_R, rows_RD) = tree_loss(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree,
  ...                                       ids_NP, jnp.array([[1.0, 0.0]]))
  >>> f"{loss:.4f}", ids_R.tolist(), rows_RD[0].tolist()  # log 2
  ('0.6931', [0, 4, 5], [-0.5, -0.5])
  """
  _check(x_ND, w_VD, tree, ids_NP=ids_NP, w_NP=w_NP)
  dtype = compute_dtype(x_ND, w_VD, dtype)
  x_MD = jnp.repeat(x_ND, ids_NP.shape[1], axis=0)
  w_M = w_NP.ravel()
  steps = level_steps(tree, ids_NP.ravel(), w_M)
  # A TPU would copy a whole narrow table for a loop that reads its rows.
  loss, dx_MD, rows_RD = lax.platform_dependent(
    w_VD,
    tpu=partial(over_read_rows, x_MD, w_M=w_M, steps=steps, dtype=dtype),
    default=partial(over_table, x_MD, w_M=w_M, steps=steps, dtype=dtype),
  )
  dx_NPD = dx_MD.reshape(*ids_NP.shape, -1)
  return shards.psum(loss), jnp.sum(dx_NPD, axis=1), (steps.ids_R, rows_RD)


class Steps(NamedTuple):
  """The paths from some classes to the root, level by level.

  Attributes:
    above_LM: i32[L, M], links, see `ways`; none from classes of weight 0.
    node_LM: i32[L, M], the nodes of these links, V where there is none.
    row_LM: i32[L, M], where these nodes are in `ids_R`.
    ids_R: i32[R], the distinct nodes, and other ids >= V.
  """

  above_LM: jax.Array
  node_LM: jax.Array
  row_LM: jax.Array
  ids_R: jax.Array


def level_steps(tree: Tree, ids_M: jax.Array, w_M: jax.Array) -> Steps:
  """The paths of classes with these weights."""
  V = len(tree.above_class_V)
  above_LM = ways(tree, jnp.where(w_M != 0, ids_M, V))
  node_LM = _nodes(above_LM, V)
  ids_R, row_LM = jnp.unique(
    node_LM, size=min(node_LM.size, V), fill_value=V, return_inverse=True
  )
  ids_R = jnp.where(ids_R < V, ids_R, V + jnp.arange(len(ids_R), dtype=ids_R.dtype))
  return Steps(above_LM, node_LM, row_LM, ids_R)


def over_table(x_MD, w_VD, w_M, steps, dtype):
  """Loss and gradients of `tree_loss`; each level reads its rows from the table."""
  return _over_levels(x_MD, w_VD, w_M, steps, steps.node_LM, dtype)


def over_read_rows(x_MD, w_VD, w_M, steps, dtype):
  """`over_table` with each row read once, before the first level."""
  rows_RD = w_VD.at[steps.ids_R].get(mode="fill", fill_value=0)
  return _over_levels(x_MD, rows_RD, w_M, steps, steps.row_LM, dtype)


def _over_levels(x_MD, w_KD, w_M, steps, at_LM, dtype):
  """Loss and gradients with the rows at_LM of w_KD."""

  def add(so_far, here):
    loss, dx_MD, rows_RD = so_far
    above_M, row_M, at_M = here
    rows_MD, o_M = _logits(x_MD, w_KD, at_M, dtype)
    loss -= jnp.sum(w_M * side_log_p(o_M, above_M))
    side_M = (above_M % 2).astype(o_M.dtype)
    do_M = jnp.where(above_M < 0, 0, w_M * (sigmoid(o_M) - side_M))
    dx_MD += product("m,md->md", do_M, rows_MD, dtype)
    drows_MD = product("m,md->md", do_M, x_MD, dtype)
    return (loss, dx_MD, rows_RD.at[row_M].add(drows_MD)), None

  zeros = lambda *shape: jnp.zeros(shape, sum_dtype(dtype))
  init = zeros(), zeros(*x_MD.shape), zeros(len(steps.ids_R), x_MD.shape[1])
  return lax.scan(add, init, (steps.above_LM, steps.row_LM, at_LM))[0]


def _nodes(above, V):
  """Inner nodes of links, V where there is none."""
  return jnp.where(above < 0, V, above // 2)


def _logits(x_MD, w_RD, row_M, dtype):
  """Rows, one per example, and <row, x>; 0 beyond the last row."""
  rows_MD = wide(w_RD.at[row_M].get(mode="fill", fill_value=0))
  return rows_MD, product("md,md->m", x_MD, rows_MD, dtype)


def check_tree(x_ND: jax.Array, w_VD: jax.Array, tree: Tree) -> int:
  """The number of rows V; raises ValueError if shapes disagree."""
  arrays = tree._replace(top=None)._asdict()
  del arrays["top"]
  return check_shapes(x_ND=x_ND, w_VD=w_VD, **arrays)["V"]


def _check(x_ND, w_VD, tree, **arrays):
  check_tree(x_ND, w_VD, tree)
  check_shapes(x_ND=x_ND, **arrays)
