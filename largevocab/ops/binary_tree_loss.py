"""A binary decision at each node on the way to a class: loss and gradients.

  p(c | h) = prod over the nodes on the way of sigma(+-<w_node, x>)

+ where the way to c goes to side 1, - where to side 0. The two sides of a node share
what it has, and so all classes together have 1, whatever the rows are.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import log_sigmoid, sigmoid

from largevocab.ops.class_chunks import compute_dtype, product, sum_dtype
from largevocab.ops.huffman import Tree
from largevocab.ops.shapes import check_shapes


def ways(tree: Tree, ids_M: jax.Array) -> jax.Array:
  """What is above each class, above that, and so on: 2 * node + side, i32[L, M].

  -1 after the root, and for ids >= V.

  >>> import numpy as np
  >>> from largevocab.ops.huffman import huffman
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
  """log sigma(+-o) of nodes with these logits; 0 where `above` is negative."""
  return jnp.where(above < 0, 0, log_sigmoid(jnp.where(above % 2 == 1, o, -o)))


def tree_nll(
  x_ND: jax.Array, w_VD: jax.Array, tree: Tree, ids_NP: jax.Array
) -> jax.Array:
  """-log p of the given classes, exact; 0 on padding.

  Args:
    x_ND: float[N, D], features.
    w_VD: float[V, D], a row per inner node; the last is not read.
    tree: what is above what.
    ids_NP: i32[N, P], padded with V.

  Returns:
    f32[N, P], nats.

  Source: Morin and Bengio 2005; Mikolov et al. 2013, section 2.1, for Huffman's tree.

  Cost: L products of N P D, L the depth of the tree; holds [N P, D].

  >>> import numpy as np
  >>> from largevocab.ops.huffman import huffman
  >>> tree, ids_NP = huffman(np.array([1, 5, 2])), jnp.array([[0, 1, 3]])
  >>> nll_NP = tree_nll(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree, ids_NP)
  >>> jnp.exp(-nll_NP).tolist()
  [[0.25, 0.5, 1.0]]
  """
  _check(x_ND, w_VD, tree, ids_NP=ids_NP)
  x_MD = jnp.repeat(x_ND, ids_NP.shape[1], axis=0)

  def add(nll_M, above_M):
    _, o_M = _logits(x_MD, w_VD, above_M)
    return nll_M - side_log_p(o_M, above_M), None

  nll_M = jnp.zeros(ids_NP.size, sum_dtype(compute_dtype(x_ND, w_VD)))
  nll_M, _ = lax.scan(add, nll_M, ways(tree, ids_NP.ravel()))
  return nll_M.reshape(ids_NP.shape)


def tree_loss(
  x_ND: jax.Array, w_VD: jax.Array, tree: Tree, ids_NP: jax.Array, w_NP: jax.Array
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array]]:
  """loss = sum_np w_NP nll_NP, see `tree_nll`, and its gradients.

  Args:
    w_NP: f32[N, P], weights, 0 on padding. Divide them by their sum for a mean. What
      has no weight touches no row.
    The others: see `tree_nll`.

  Returns:
    f32[], nats; its gradient to x_ND; and that to w_VD as distinct ids i32[R], padding
    is >= V, and rows f32[R, D], zeros on padding; R = min(L N P, V).

  Cost: three times that of `tree_nll`, and a sort of L N P ids; holds [R, D].

  >>> import numpy as np
  >>> from largevocab.ops.huffman import huffman
  >>> tree, ids_NP = huffman(np.array([1, 5, 2])), jnp.array([[1, 3]])
  >>> loss, _, (ids_R, rows_RD) = tree_loss(jnp.ones((1, 2)), jnp.zeros((3, 2)), tree,
  ...                                       ids_NP, jnp.array([[1.0, 0.0]]))
  >>> f"{loss:.4f}", ids_R.tolist(), rows_RD[0].tolist()  # log 2
  ('0.6931', [0, 4, 5], [-0.5, -0.5])
  """
  _check(x_ND, w_VD, tree, ids_NP=ids_NP, w_NP=w_NP)
  V, dtype = len(w_VD), sum_dtype(compute_dtype(x_ND, w_VD))
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
    rows_MD, o_M = _logits(x_MD, w_VD, above_M)
    loss -= jnp.sum(w_M * side_log_p(o_M, above_M))
    side_M = (above_M % 2).astype(dtype)
    do_M = jnp.where(above_M < 0, 0, w_M * (sigmoid(o_M) - side_M))
    dx_MD += do_M[:, None] * rows_MD
    return (loss, dx_MD, rows_RD.at[row_M].add(do_M[:, None] * x_MD)), None

  zeros = lambda *shape: jnp.zeros(shape, dtype)
  init = zeros(), zeros(*x_MD.shape), zeros(R, x_ND.shape[1])
  (loss, dx_MD, rows_RD), _ = lax.scan(add, init, (above_LM, row_LM))
  dx_NPD = dx_MD.reshape(*ids_NP.shape, -1)
  return loss, jnp.sum(dx_NPD, axis=1), (ids_R, rows_RD)


def _nodes(above, V):
  """The nodes that stand above, V where there is none."""
  return jnp.where(above < 0, V, above // 2)


def _logits(x_MD, w_VD, above_M):
  """Rows of nodes, one for each example, and <row, x>; 0 where there is none."""
  rows_MD = w_VD.at[_nodes(above_M, len(w_VD))].get(mode="fill", fill_value=0)
  return rows_MD, product("md,md->m", x_MD, rows_MD, compute_dtype(x_MD, w_VD))


def _check(x_ND, w_VD, tree, **arrays):
  check_shapes(x_ND=x_ND, w_VD=w_VD, **tree._asdict())
  check_shapes(x_ND=x_ND, **arrays)
