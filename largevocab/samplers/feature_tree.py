"""Draws of blocks by a tree over sums of features of the rows, for any feature map.

Here F is the number of features and weights summed per tree node, C the number of top
nodes, and E the number of classes in a block.
"""

import abc
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from largevocab.fields import Between, settings
from largevocab.ops.draws import inverse_cdf, sumtree
from largevocab.ops.softmax.chunks import fold_rows
from largevocab.placement import in_rows
from largevocab.samplers.two_stage import TwoStage

# Numbers read from nodes at once: on CPU few, since they are copied before they are
# multiplied, and few stay in the cache.
_PAIR_NUMBERS = {"cpu": 1 << 20}
_PAIR_NUMBERS_ELSEWHERE = 1 << 22
_BLOCK_NUMBERS = 1 << 18  # products held at once, so that they fit in a cache
_ROW_NUMBERS = 1 << 24  # features of changed rows held at once
# Measured at D = 64: updating R rows takes as long as a rebuild at R = 2.5 % of V; at
# D = 16 the ratio is higher.
_REBUILD_AT = 0.04

Stats = Any  # a NamedTuple with a `tree` and a `size`


@settings
class FeatureTree(TwoStage):
  """Blocks by the inner product of a query with sums of features, down a binary tree.

  A kernel that is an inner product, K(h, w) = <phi(h), psi(w)>, has the sum
  <phi(h), z> over a set of classes, with a precomputed z (Blanc & Rendle 2018, section
  3.1). Stale sums change the proposal distribution; the reported one is still exact.

  Attributes (besides those of `TwoStage`):
    incremental: update the sums in every step. Otherwise only `refresh` updates them.
    dense_levels: levels of the binary tree over the blocks that are one matrix product
      for the whole batch; the levels below are descended draw by draw. 0 is the tree of
      the paper; -1: chosen by predicted time (`choose_layout`).
  """

  incremental: bool = True
  dense_levels: Annotated[int, Between(-1, 100)] = -1

  @abc.abstractmethod
  def features(self, stats: Stats, rows_RD: jax.Array) -> jax.Array:
    """psi of rows, f32[R, F - 1]."""

  @abc.abstractmethod
  def query(self, stats: Stats, h_ND: jax.Array) -> jax.Array:
    """phi(h), padded with a 0 for the weight, f32[N, F]."""

  @abc.abstractmethod
  def node_mass(self, stats: Stats, dot: jax.Array, weight: jax.Array) -> jax.Array:
    """The weight of a node in a draw, at least 0; positive where `weight` is.

    Args:
      stats: of this sampler.
      dot: <phi(h), z> for a node, which rounding may have made negative.
      weight: sum of the class weights.
    """

  @abc.abstractmethod
  def weights(self, stats: Stats, ids_R: jax.Array, mask_R: jax.Array) -> jax.Array:
    """Class weights f32[R], 0 where not in `mask_R`."""

  def sums(self, stats: Stats, rows_ED: jax.Array, weight_E: jax.Array) -> jax.Array:
    """Weighted sum of the features of a block, f32[F - 1]."""
    return jnp.matmul(weight_E, self.features(stats, rows_ED))

  def products(self, stats: Stats, size: int) -> int:
    """Numbers held to sum the features of a block of `size` classes, about."""
    return stats.tree.top_CF.shape[1] * size

  def changed(
    self,
    stats: Stats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> Stats:
    """Statistics with the sums after rows changed: corrected, or rebuilt where that is
    faster; none where there is a single block, or they are not `incremental`."""
    V = len(w_VD)
    if self.num_blocks(stats) == 1 or not self.incremental:
      return stats
    if len(ids_R) * (1 + sumtree.depth(stats.tree)) > _REBUILD_AT * V:
      return self.rebuild(stats, w_VD)
    return self.add_changes(stats, V, ids_R, old_RD, new_RD)

  def add_changes(
    self, stats: Stats, V: int, ids_R: jax.Array, old_RD: jax.Array, new_RD: jax.Array
  ) -> Stats:
    """Adds psi(new) - psi(old) to all nodes above the changed rows, in chunks of rows.

    Cost: O(R F) a level.
    """
    blocks = self.num_blocks(stats)

    def add(tree, rows):
      ids_R, old_RD, new_RD = rows
      weight_R = self.weights(stats, ids_R, ids_R < V)
      delta_RF = self.features(stats, new_RD) - self.features(stats, old_RD)
      delta_RF *= weight_R[:, None]
      delta_RF = jnp.pad(delta_RF, ((0, 0), (0, 1)))  # weights do not change
      block_R = jnp.where(ids_R < V, ids_R // -(-V // blocks), blocks)
      return sumtree.add(tree, block_R, delta_RF), None

    num_rows, width = len(ids_R), stats.tree.top_CF.shape[1]
    size = max(min(_ROW_NUMBERS // width, num_rows), 1)
    fill = -num_rows % size
    ids_R = jnp.pad(ids_R, (0, fill), constant_values=V)
    cut = lambda x_RD: jnp.pad(x_RD, ((0, fill), (0, 0))).reshape(
      -1, size, x_RD.shape[1]
    )
    chunks = (ids_R.reshape(-1, size), cut(old_RD), cut(new_RD))
    return stats._replace(tree=jax.lax.scan(add, stats.tree, chunks)[0])

  def num_blocks(self, stats: Stats) -> int:
    return sumtree.num_blocks(stats.tree)

  def draw_blocks(self, stats, key, h_ND, m):
    k_top, k_way = jax.random.split(key)
    tree = stats.tree
    node_NM, log_top_NM = inverse_cdf.draw(k_top, self._top(stats, h_ND), m)
    if not sumtree.depth(tree):
      return node_NM, log_top_NM
    shape = (len(h_ND), sumtree.depth(tree), m)
    u_NKM = (jax.random.bits(k_way, shape, jnp.uint32) >> 8).astype(jnp.int32)
    descend = lambda mass, node_M, u_KM: sumtree.descend(tree, mass, node_M, u_KM)
    block_NM, log_way_NM = self._by_example(descend, stats, h_ND, node_NM, u_NKM)
    return block_NM, log_top_NM + log_way_NM

  def log_blocks(self, stats, h_ND, block_NM):
    tree = stats.tree
    node_NM = block_NM >> sumtree.depth(tree)
    log_top_NM = inverse_cdf.log_law(self._top(stats, h_ND), node_NM)
    if not sumtree.depth(tree):
      return log_top_NM
    path = lambda mass, block_M: sumtree.log_path(tree, mass, block_M)
    return log_top_NM + self._by_example(path, stats, h_ND, block_NM)

  def _top(self, stats: Stats, h_ND: jax.Array) -> jax.Array:
    """Masses of the top nodes, [N, C]."""
    return self._mass(stats, stats.tree.top_CF, self.query(stats, h_ND).T).T

  def _mass(self, stats: Stats, sums: jax.Array, query: jax.Array) -> jax.Array:
    """Masses of nodes [..., F], for a query [F] or for queries [F, N]."""
    dot = jnp.matmul(sums, query, precision=jax.lax.Precision.HIGHEST)
    weight = sums[..., -1].reshape(sums.shape[:-1] + (1,) * (query.ndim - 1))
    return self.node_mass(stats, dot, weight)

  def _by_example(self, function, stats: Stats, h_ND: jax.Array, *args):
    """Maps `function` over examples, given the masses of nodes and `args` [..., M], in
    chunks of examples, or of draws, that read about _PAIR_NUMBERS numbers."""
    most = _PAIR_NUMBERS.get(jax.default_backend(), _PAIR_NUMBERS_ELSEWHERE)
    query_NF = self.query(stats, h_ND)
    width, num_draws = query_NF.shape[1], args[0].shape[-1]
    draws = max(min(most // (2 * width), num_draws), 1)
    fill = -num_draws % draws

    def cut(x):
      x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)])
      return jnp.moveaxis(x.reshape(*x.shape[:-1], -1, draws), -2, 0)

    def call(example):
      query_F, *args = example
      some = lambda args: function(lambda sums: self._mass(stats, sums, query_F), *args)
      cut_args = tuple(map(cut, args))
      return jax.tree.map(lambda x: x.ravel()[:num_draws], jax.lax.map(some, cut_args))

    at_once = max(most // (2 * width * draws), 1)
    return jax.lax.map(call, (query_NF, *args), batch_size=at_once)

  def rebuild(self, stats: Stats, w_VD: jax.Array) -> Stats:
    """Recomputes all sums, some blocks at a time. Cost: O(V D F)."""
    V, D = w_VD.shape
    size = -(-V // self.num_blocks(stats))
    at_once = max(_BLOCK_NUMBERS // (2 * max(self.products(stats, size), size * D)), 1)

    def sums_of(ids_E, rows_ED):
      weight_E = self.weights(stats, ids_E, ids_E < V)
      return jnp.append(self.sums(stats, rows_ED, weight_E), weight_E.sum())

    def some(block_A):
      def put(sums_AF, chunk):
        num = len(chunk.ids_C) * size
        first = chunk.start * size + block_A[0] * size
        rows_CED = _rows_from(w_VD, first, num).reshape(-1, size, D)
        ids_CE = (first + jnp.arange(num)).reshape(-1, size)
        return chunk.put(sums_AF, jax.vmap(sums_of)(ids_CE, rows_CED))

      none_AF = jnp.zeros((len(block_A), stats.tree.top_CF.shape[1]))
      return fold_rows(put, none_AF, len(block_A), at_once)

    return stats._replace(tree=sumtree.rebuilt(stats.tree, some))


def _rows_from(w_VD: jax.Array, first: jax.Array, num: int) -> jax.Array:
  """Rows first ... first + num - 1, f32[num, D]; some others for those beyond the last.

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
