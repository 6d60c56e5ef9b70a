"""Huffman trees over classes: frequent classes are near the root.

Here L is the depth of the tree.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import log_sigmoid, sigmoid

from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype, product, sum_dtype, wide


class Tree(NamedTuple):
  """A binary tree whose leaves are the V classes; V - 1 inner nodes, the root is 0.

  The link above a class or node is `2 * parent + side`, side 0 or 1; -1 above the root.
  Arrays of inner nodes have V entries, the last unused, so that they shard like those
  of classes.

  Attributes:
    above_class_V: i32[V], links above classes.
    above_node_V: i32[V], links above inner nodes.
    num_L: i32[L], number of classes at depths 1 ... L; L is the largest depth.
  """

  above_class_V: jax.Array
  above_node_V: jax.Array
  num_L: jax.Array


def huffman(count_V: np.ndarray) -> Tree:
  """The tree with the smallest mean depth of a class, weighted by counts.

  Of equally good trees, one of least depth: with counts that sum to T it has at most
  about 1.44 log2 T levels.

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
  return Tree(*(jnp.array(a, jnp.int32) for a in (above_class_V, above_node_V, num_L)))


def _merges(counts: list[int]) -> list[int]:
  """The two nodes of each merge, concatenated; merge n makes node V + n.

  Counts ascend, and so do those of merged nodes, so the least two are at the heads of
  two queues. Of equal counts a class comes first, which keeps the tree flat.
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

  -1 after the root, and for ids >= V.

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> ways(huffman(np.array([1, 5, 2])), jnp.array([0, 1, 3])).tolist()
  [[2, 1, -1], [0, -1, -1]]
  """
  fill = {"mode": "fill", "fill_value": -1}

  def climb(above_M, _):
    node_M = _nodes(above_M, len(tree.above_node_V))
    return tree.above_node_V.at[node_M].get(**fill), above_M

  start_M = tree.above_class_V.at[ids_M].get(**fill)
  return lax.scan(climb, start_M, length=len(tree.num_L))[1]


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
    dtype: of the operands of the products, by default that of the arguments; logits,
      sums and gradients are at least float32.

  Returns:
    f32[N, P], nats.

  Source: Morin and Bengio 2005; Mikolov et al. 2013, section 2.1, for Huffman's tree.

  Cost: L products of N P D, L the depth of the tree; holds [N P, D].

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
    _, o_M = _logits(x_MD, w_VD, above_M, dtype)
    return nll_M - side_log_p(o_M, above_M), None

  nll_M = jnp.zeros(ids_NP.size, sum_dtype(dtype))
  nll_M, _ = lax.scan(add, nll_M, ways(tree, ids_NP.ravel()))
  return nll_M.reshape(ids_NP.shape)


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
    f32[], nats; its gradient with respect to x_ND; and that of w_VD as distinct ids
    i32[R], padded with ids >= V, and rows f32[R, D], zeros on padding; R =
    min(L N P, V).

  Cost: three times that of `tree_nll`, and a sort of L N P ids; holds [R, D].

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> tree, ids_NP = huffman(np.array([1, 5, 2])), jnp.array([[1, 3]])
  >>> loss, _, (ids_R, rows_RD) = tree_loss(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree,
  ...                                       ids_NP, jnp.array([[1.0, 0.0]]))
  >>> f"{loss:.4f}", ids_R.tolist(), rows_RD[0].tolist()  # log 2
  ('0.6931', [0, 4, 5], [-0.5, -0.5])
  """
  _check(x_ND, w_VD, tree, ids_NP=ids_NP, w_NP=w_NP)
  V, dtype = len(w_VD), compute_dtype(x_ND, w_VD, dtype)
  x_MD = jnp.repeat(x_ND, ids_NP.shape[1], axis=0)
  w_M = w_NP.ravel()
  above_LM = ways(tree, jnp.where(w_M > 0, ids_NP.ravel(), V))
  node_LM = _nodes(above_LM, V)
  ids_R, row_LM = jnp.unique(
    node_LM, size=min(node_LM.size, V), fill_value=V, return_inverse=True
  )
  R = len(ids_R)
  ids_R = jnp.where(ids_R < V, ids_R, V + jnp.arange(R, dtype=ids_R.dtype))

  def add(so_far, here):
    loss, dx_MD, rows_RD = so_far
    above_M, row_M = here
    rows_MD, o_M = _logits(x_MD, w_VD, above_M, dtype)
    loss -= jnp.sum(w_M * side_log_p(o_M, above_M))
    side_M = (above_M % 2).astype(o_M.dtype)
    do_M = jnp.where(above_M < 0, 0, w_M * (sigmoid(o_M) - side_M))
    dx_MD += product("m,md->md", do_M, rows_MD, dtype)
    drows_MD = product("m,md->md", do_M, x_MD, dtype)
    return (loss, dx_MD, rows_RD.at[row_M].add(drows_MD)), None

  zeros = lambda *shape: jnp.zeros(shape, sum_dtype(dtype))
  init = zeros(), zeros(*x_MD.shape), zeros(R, x_ND.shape[1])
  (loss, dx_MD, rows_RD), _ = lax.scan(add, init, (above_LM, row_LM))
  dx_NPD = dx_MD.reshape(*ids_NP.shape, -1)
  return loss, jnp.sum(dx_NPD, axis=1), (ids_R, rows_RD)


def _nodes(above, V):
  """Inner nodes of links, V where there is none."""
  return jnp.where(above < 0, V, above // 2)


def _logits(x_MD, w_VD, above_M, dtype):
  """Rows of nodes, one per example, and <row, x>; 0 where there is none."""
  rows_MD = wide(w_VD.at[_nodes(above_M, len(w_VD))].get(mode="fill", fill_value=0))
  return rows_MD, product("md,md->m", x_MD, rows_MD, dtype)


def _check(x_ND, w_VD, tree, **arrays):
  check_shapes(x_ND=x_ND, w_VD=w_VD, **tree._asdict())
  check_shapes(x_ND=x_ND, **arrays)


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

  Cost: a product of N V D, and N V log L sums with L the depth of the tree; holds some
    arrays of [size, V].

  >>> import numpy as np
  >>> from largevocab.ops.tree.huffman import huffman
  >>> tree = huffman(np.array([1, 5, 2]))
  >>> ids_NK, log_p_NK = tree_top_k(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree, 2)
  >>> ids_NK.tolist(), jnp.exp(log_p_NK).tolist()
  ([[1, 0]], [[0.5, 0.25]])
  """
  V = check_shapes(x_ND=x_ND, w_VD=w_VD, **tree._asdict())["V"]
  if not 1 <= k <= V:
    raise ValueError(f"k must be in 1 ... V = {V}, got {k}")
  size = size or max(_LOGIT_BYTES // (4 * V), 1)
  dtype = compute_dtype(x_ND, w_VD, dtype)

  def best(x_D):
    log_p_K, ids_K = lax.top_k(_log_p(x_D, w_VD, tree, dtype), k)
    return ids_K, log_p_K

  return lax.map(best, x_ND, batch_size=min(size, len(x_ND)))


def _log_p(x_D: jax.Array, w_VD: jax.Array, tree: Tree, dtype) -> jax.Array:
  """log p of all classes, f32[V].

  Pointer doubling: a node has the log-probability of the last step to it, then of the
  last two, four, ... steps, until all paths reach the root.
  """
  V, L = len(w_VD), len(tree.num_L)
  o_V = product("vd,d->v", w_VD, x_D, dtype)

  def step_to(above_V):
    return side_log_p(o_V.at[above_V // 2].get(mode="clip"), above_V)

  log_p_V = step_to(tree.above_node_V)
  over_V = jnp.where(tree.above_node_V < 0, V, tree.above_node_V // 2)
  for _ in range(math.ceil(math.log2(max(L - 1, 1)))):
    log_p_V += log_p_V.at[over_V].get(mode="fill", fill_value=0)
    over_V = over_V.at[over_V].get(mode="fill", fill_value=V)
  at_V = tree.above_class_V // 2
  return step_to(tree.above_class_V) + log_p_V.at[at_V].get(mode="clip")
