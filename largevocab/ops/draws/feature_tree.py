"""Draws of blocks down a sum tree, by products of a query with sums of features.

A kernel that is an inner product, K(h, w) = <phi(h), psi(w)>, has the sum <phi(h), z>
over a set of classes, with z = sum_c weight_c psi(w_c) computed beforehand (Blanc &
Rendle 2018, section 3.1). A node of the tree has z and, last, the sum of the weights.
Stale sums change the proposal distribution, but the reported distribution is still
that of the draws.

Here F is the number of features and weights summed per tree node, C the number of top
nodes, B the number of blocks, and E the number of classes in a block.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from largevocab.ops.draws import inverse_cdf, sumtree
from largevocab.ops.draws.sumtree import SumTree
from largevocab.ops.softmax.chunks import fold_rows
from largevocab.placement import in_rows

# Numbers read from nodes at once: few on a CPU, where they are copied before they are
# multiplied, and where few stay in the cache.
_PAIR_NUMBERS = {"cpu": 1 << 20}
_PAIR_NUMBERS_ELSEWHERE = 1 << 22
_BLOCK_NUMBERS = 1 << 18  # products held at once, so that they fit in a cache
_ROW_NUMBERS = 1 << 24  # features of changed rows held at once
# Correcting the sums for R = 2.5 V / sqrt(F) rows takes about as long as a rebuild, at
# any depth of the tree, on a CPU (`kernel_update` in benchmarks/kernel.py).
_REBUILD_AT = 2.5


class Features(NamedTuple):
  """The feature map of classes, and how it is summed.

  Attributes:
    of_rows: psi, from rows [R, D] to f32[R, F - 1].
    weight_V: f32[V], class weights; None: all are 1.
    total: function from rows [E, D] and their weights f32[E] to the weighted sum of
      their features, f32[F - 1]; None: computed by `of_rows`.
    held: approximate number of numbers that `total` holds at once; 0: F for each row.
  """

  of_rows: Callable[[jax.Array], jax.Array]
  weight_V: jax.Array | None = None
  total: Callable[[jax.Array, jax.Array], jax.Array] | None = None
  held: int = 0

  def weights(self, ids_R: jax.Array, num_classes: int) -> jax.Array:
    """Class weights f32[R], 0 for ids beyond the classes.

    >>> Features(jnp.square).weights(jnp.array([1, 5]), 5).tolist()
    [1.0, 0.0]
    """
    is_class_R = ids_R < num_classes
    if self.weight_V is None:
      return is_class_R.astype(jnp.float32)
    return jnp.where(is_class_R, self.weight_V.at[ids_R].get(mode="clip"), 0)

  def sum(self, rows_ED: jax.Array, weight_E: jax.Array) -> jax.Array:
    """Weighted sum of the features of rows, f32[F - 1].

    >>> Features(jnp.square).sum(jnp.array([[2.0], [3.0]]), jnp.array([1.0, 0.5]))
    Array([8.5], dtype=float32)
    """
    if self.total is not None:
      return self.total(rows_ED, weight_E)
    return jnp.matmul(weight_E, self.of_rows(rows_ED))


class Nodes(NamedTuple):
  """A tree with the queries of a batch.

  Attributes:
    tree: sums of features and, last, of class weights.
    query_NF: f32[N, F], phi(h), and 0 for the weight.
    mass: function from <phi(h), z> of nodes, which rounding may have made negative, and
      from their class weights, to their weights in a draw: at least 0, and positive
      where the class weights are.
  """

  tree: SumTree
  query_NF: jax.Array
  mass: Callable[[jax.Array, jax.Array], jax.Array]

  def masses(self, sums: jax.Array, query: jax.Array) -> jax.Array:
    """Masses of nodes [..., F], for a query [F] or for queries [F, N]."""
    dot = jnp.matmul(sums, query, precision=jax.lax.Precision.HIGHEST)
    weight = sums[..., -1].reshape(sums.shape[:-1] + (1,) * (query.ndim - 1))
    return self.mass(dot, weight)

  @property
  def top_NC(self) -> jax.Array:
    """Masses of the top nodes."""
    return self.masses(self.tree.top_CF, self.query_NF.T).T


def draw(nodes: Nodes, key: jax.Array, m: int) -> tuple[jax.Array, jax.Array]:
  """Blocks i32[N, M], and their log-probabilities in nats.

  Cost: one product with the top nodes for the batch, and 2 F numbers read a draw and a
  level below them.
  """
  k_top, k_way = jax.random.split(key)
  depth = sumtree.depth(nodes.tree)
  node_NM, log_top_NM = inverse_cdf.draw(k_top, nodes.top_NC, m)
  if not depth:
    return node_NM, log_top_NM
  shape = (len(nodes.query_NF), depth, m)
  u_NKM = (jax.random.bits(k_way, shape, jnp.uint32) >> 8).astype(jnp.int32)
  descend = lambda mass, node_M, u_KM: sumtree.descend(nodes.tree, mass, node_M, u_KM)
  block_NM, log_way_NM = _by_example(descend, nodes, node_NM, u_NKM)
  return block_NM, log_top_NM + log_way_NM


def log_law(nodes: Nodes, block_NM: jax.Array) -> jax.Array:
  """Log-probability f32[N, M] with which `draw` draws each block."""
  depth = sumtree.depth(nodes.tree)
  log_top_NM = inverse_cdf.log_law(nodes.top_NC, block_NM >> depth)
  if not depth:
    return log_top_NM
  path = lambda mass, block_M: sumtree.log_path(nodes.tree, mass, block_M)
  return log_top_NM + _by_example(path, nodes, block_NM)


def _by_example(function, nodes: Nodes, *args):
  """Maps `function` over examples, given the masses of nodes and `args` [..., M].

  Examples, or draws, are processed in chunks that read about _PAIR_NUMBERS numbers.
  """
  most = _PAIR_NUMBERS.get(jax.default_backend(), _PAIR_NUMBERS_ELSEWHERE)
  width, num_draws = nodes.query_NF.shape[1], args[0].shape[-1]
  draws = max(min(most // (2 * width), num_draws), 1)
  fill = -num_draws % draws

  def cut(x):
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)])
    return jnp.moveaxis(x.reshape(*x.shape[:-1], -1, draws), -2, 0)

  def call(example):
    query_F, *args = example
    some = lambda args: function(lambda sums: nodes.masses(sums, query_F), *args)
    cut_args = tuple(map(cut, args))
    return jax.tree.map(lambda x: x.ravel()[:num_draws], jax.lax.map(some, cut_args))

  at_once = max(most // (2 * width * draws), 1)
  return jax.lax.map(call, (nodes.query_NF, *args), batch_size=at_once)


def rebuilt(tree: SumTree, features: Features, w_VD: jax.Array) -> SumTree:
  """Recomputes all sums, some blocks at a time. Cost: O(V D F)."""
  (V, D), width = w_VD.shape, tree.top_CF.shape[1]
  size = -(-V // sumtree.num_blocks(tree))
  held = max(features.held or width * size, size * D)
  at_once = max(_BLOCK_NUMBERS // (2 * held), 1)

  def sums_of(ids_E, rows_ED):
    weight_E = features.weights(ids_E, V)
    sums_F = jnp.append(features.sum(rows_ED, weight_E), weight_E.sum())
    return sums_F.astype(tree.top_CF.dtype)

  def some(block_A):
    def put(sums_AF, chunk):
      num = len(chunk.ids_C) * size
      first = chunk.start * size + block_A[0] * size
      rows_CED = _rows_from(w_VD, first, num).reshape(-1, size, D)
      ids_CE = (first + jnp.arange(num)).reshape(-1, size)
      return chunk.put(sums_AF, jax.vmap(sums_of)(ids_CE, rows_CED))

    none_AF = jnp.zeros((len(block_A), width), tree.top_CF.dtype)
    return fold_rows(put, none_AF, len(block_A), at_once)

  return sumtree.rebuilt(tree, some)


def updated(
  tree: SumTree,
  features: Features,
  w_VD: jax.Array,
  ids_R: jax.Array,
  old_RD: jax.Array,
  new_RD: jax.Array,
) -> SumTree:
  """The sums after rows changed: corrected, or rebuilt where that is faster.

  Sums of a single block are not updated, since they are not used.

  Args:
    tree: sums of the table before the change.
    features: features of both tables.
    w_VD: the table after the change.
    ids_R: the classes that changed, without duplicates; other ids are padding.
    old_RD, new_RD: their rows before and after the change.
  """
  V = len(w_VD)
  if sumtree.num_blocks(tree) == 1:
    return tree
  if len(ids_R) * math.sqrt(tree.top_CF.shape[1]) > _REBUILD_AT * V:
    return rebuilt(tree, features, w_VD)
  return corrected(tree, features, V, ids_R, old_RD, new_RD)


def corrected(
  tree: SumTree,
  features: Features,
  num_classes: int,
  ids_R: jax.Array,
  old_RD: jax.Array,
  new_RD: jax.Array,
) -> SumTree:
  """Adds weight (psi(new) - psi(old)) to all nodes above the changed rows.

  Rows are processed in chunks; see `updated`. Cost: O(R F) a level.
  """
  V, blocks = num_classes, sumtree.num_blocks(tree)

  def add(tree, rows):
    ids_R, old_RD, new_RD = rows
    delta_RF = features.of_rows(new_RD) - features.of_rows(old_RD)
    delta_RF *= features.weights(ids_R, V)[:, None]
    delta_RF = jnp.pad(delta_RF, ((0, 0), (0, 1)))  # weights do not change
    block_R = jnp.where(ids_R < V, ids_R // -(-V // blocks), blocks)
    return sumtree.add(tree, block_R, delta_RF), None

  num_rows, width = len(ids_R), tree.top_CF.shape[1]
  size = max(min(_ROW_NUMBERS // width, num_rows), 1)
  fill = -num_rows % size
  ids_R = jnp.pad(ids_R, (0, fill), constant_values=V)
  cut = lambda x_RD: jnp.pad(x_RD, ((0, fill), (0, 0))).reshape(-1, size, x_RD.shape[1])
  chunks = (ids_R.reshape(-1, size), cut(old_RD), cut(new_RD))
  return jax.lax.scan(add, tree, chunks)[0]


def _rows_from(w_VD: jax.Array, first: jax.Array, num: int) -> jax.Array:
  """Rows first ... first + num - 1, f32[num, D]; arbitrary ones beyond the last row.

  >>> _rows_from(jnp.arange(5.0)[:, None], 3, 2).ravel().tolist()
  [3.0, 4.0]
  >>> _rows_from(jnp.arange(5.0)[:, None], 4, 3)[0].tolist()
  [4.0]
  """
  read = min(num, len(w_VD))
  start = jnp.minimum(first, len(w_VD) - read)
  rows_RD = in_rows(jax.lax.dynamic_slice_in_dim(w_VD, start, read))
  rows_RD = jnp.pad(rows_RD, ((0, num - read), (0, 0)))
  return jnp.roll(rows_RD, start - first, axis=0)
