"""Kernel-based sampling: draws proportional to a polynomial kernel of the logit.

Here F is the number of features and weights summed per tree node, C the number of top
nodes, E the number of classes in a block, and p the degree of the kernel.
"""

import abc
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.fields import Between, CountOrNone, OneOf, settings
from largevocab.labels import Counts
from largevocab.ops.draws import inverse_cdf, sumtree, symmetric_power
from largevocab.ops.draws.blocks import block_ids
from largevocab.ops.draws.sumtree import SumTree
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers import sketch
from largevocab.samplers.base import Size
from largevocab.samplers.sketch import Sketch
from largevocab.samplers.static import Power, Smoothing, check_counts, count_weights
from largevocab.samplers.two_stage import TwoStage, softmax_weights

_PAIR_NUMBERS = 1 << 22  # numbers read from nodes at once
_BLOCK_NUMBERS = 1 << 18  # products held at once, so that they fit in a cache
_ROW_NUMBERS = 1 << 24  # features of changed rows held at once
# Measured at D = 64: updating R rows takes as long as a rebuild at R = 2.5 % of V; at
# D = 16 the ratio is higher.
_REBUILD_AT = 0.04

Shift = Annotated[float, Between(-1000, 1000)]


class KernelStats(NamedTuple):
  """Sums over classes, by tree node.

  Attributes:
    tree: for each node the sums of the features and, last, of the class weights.
    weight_V: f32[V], class weights, at most 1.
    centre_D: f32[D], subtracted from every row.
    sketch: low-rank sketch of the logits, or None.
    size: number of draws.
  """

  tree: SumTree
  weight_V: jax.Array
  centre_D: jax.Array
  sketch: Sketch | None
  size: Size


@settings
class KernelTree(TwoStage):
  """q(c | h) proportional to weight_c K(o_c), K a polynomial kernel of the logit.

  weight_c = (count_c + smoothing)^power, o_c = <w_c - centre, h> + shift. The kernel is
  an inner product, K(o) = <phi(h), psi(w_c)>, so its sum over a set of classes is
  <phi(h), z> with a precomputed z (Blanc & Rendle 2018, section 3.1). A block of
  classes is drawn by these sums, and a class in the block by K itself (section 3.2.2).
  Stale sums change the proposal distribution; the reported one is still exact.

  Attributes (besides those of `TwoStage`):
    shift: added to the logit.
    power: exponent of the counts in the class weights; 0: all weights are 1.
    smoothing: added to every count.
    centred: subtract the weighted mean row, as of the last refresh.
    leaf: distribution of a class within its block: 'kernel', or 'softmax', by exp(o).
    rank: dimension of a low-rank sketch (`samplers/sketch.py`, as of the last refresh)
      used to draw blocks in place of all D coordinates. 0: none.
    incremental: update the sums in every step. Otherwise only `refresh` updates them.
    dense_levels: levels of the binary tree over the blocks that are one matrix product
      for the whole batch; the levels below are descended draw by draw. 0 is the tree of
      the paper; -1: chosen by predicted time (`choose_layout`).

  Source: Blanc & Rendle 2018, sections 3.1 to 3.3.
  Deviations: levels above the cut are summed for all draws at once; where a single
    block is faster, classes are drawn from all logits. The distribution is the same.
  Cost: F = C(D + p - 1, p) + 1 sums (a binomial coefficient) a node, in all at most 1.5
    times the table unless `leaf_size` asks for more. A draw: see `two_stage.seconds`.
    `update`: O(R F) a level for R changed rows, or a rebuild, O(V D F), where that is
    faster.
  """

  shift: Shift = 0.0
  power: Power = 0.0
  smoothing: Smoothing = 1.0
  centred: bool = False
  leaf: Annotated[str, OneOf("kernel", "softmax")] = "kernel"
  rank: CountOrNone = 0
  incremental: bool = True
  dense_levels: Annotated[int, Between(-1, 100)] = -1

  @abc.abstractmethod
  def kernel(self, o: jax.Array) -> jax.Array:
    """K, applied to centred and shifted logits."""

  @abc.abstractmethod
  def degree(self, dim: int) -> int:
    """p, the even power whose sums are kept, for `dim` coordinates."""

  @abc.abstractmethod
  def mass(self, power_sum: jax.Array, weight: jax.Array, degree: int) -> jax.Array:
    """Sum of weight_c K(o_c) over a set of classes, or an approximation of it.

    Args:
      power_sum: sum of weight_c o_c^p, not negative.
      weight: sum of weight_c; where it is positive the result must be.
      degree: p.
    """

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> KernelStats:
    V, D = check_shapes(w_VD=w_VD).values()
    weight_V = np.ones(V)
    if self.power:
      count_V = check_counts(counts, w_VD)
      weight_V = count_weights(count_V, self.power, self.smoothing)
    coordinates = min(self.rank, D) or D
    degree = self.degree(coordinates)
    width = symmetric_power.num_features(coordinates + bool(self.shift), degree) + 1
    layout = self.choose_layout(w_VD, width, m, self.dense_levels)
    tree = sumtree.build(jnp.zeros((layout.num_blocks, width)), layout.num_top)
    drawing = sketch.init(D, coordinates) if self.rank else None
    # Positive weights must not underflow to 0 in float32.
    weight_V = jnp.asarray(np.where(weight_V > 0, np.maximum(weight_V, 1e-30), 0), "f")
    stats = KernelStats(tree, weight_V, jnp.zeros(D), drawing, Size(m))
    return self.refresh(stats, w_VD, jax.random.key(0))

  def refresh(self, stats: KernelStats, w_VD: jax.Array, key: jax.Array) -> KernelStats:
    if self.centred:
      mean_D = jnp.matmul(stats.weight_V, w_VD) / stats.weight_V.sum()
      stats = stats._replace(centre_D=mean_D)
    if stats.sketch is not None:
      rows_VD = w_VD - stats.centre_D[None]
      moment_DD = jnp.matmul((stats.weight_V[:, None] * rows_VD).T, rows_VD)
      stats = stats._replace(sketch=sketch.fit(stats.sketch, moment_DD))
    return self.rebuild(stats, w_VD)

  def update(
    self,
    stats: KernelStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> KernelStats:
    check_shapes(w_VD=w_VD, ids_R=ids_R, old_RD=old_RD, new_RD=new_RD)
    blocks, V = self.num_blocks(stats), len(w_VD)
    if stats.sketch is not None:
      change_RD = jnp.where((ids_R < V)[:, None], new_RD - old_RD, 0)
      stats = stats._replace(sketch=sketch.observe(stats.sketch, change_RD))
    if blocks == 1 or not self.incremental:
      return stats
    if len(ids_R) * (1 + sumtree.depth(stats.tree)) > _REBUILD_AT * V:
      return self.rebuild(stats, w_VD)
    return self.add_changes(stats, ids_R, old_RD, new_RD)

  def add_changes(
    self, stats: KernelStats, ids_R: jax.Array, old_RD: jax.Array, new_RD: jax.Array
  ) -> KernelStats:
    """Adds psi(new) - psi(old) to all nodes above the changed rows, in chunks of rows.

    Cost: O(R F) a level.
    """
    blocks, V = self.num_blocks(stats), len(stats.weight_V)
    features = lambda rows_RD: symmetric_power.features(
      self._coordinates(stats, rows_RD), self._degree(stats)
    )

    def add(tree, rows):
      ids_R, old_RD, new_RD = rows
      weight_R = stats.weight_V.at[ids_R].get(mode="fill", fill_value=0)
      delta_RF = weight_R[:, None] * (features(new_RD) - features(old_RD))
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

  def num_blocks(self, stats: KernelStats) -> int:
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

  def leaf_weights(self, stats, h_ND, o_NKE, ids_NKE, mask_NKE):
    if self.leaf == "softmax":
      return softmax_weights(o_NKE, mask_NKE, score_of(self.absolute))
    offset_N = self.shift - jnp.matmul(h_ND, stats.centre_D)
    weight_NKE = self.kernel(o_NKE + offset_N[:, None, None]) * stats.weight_V[ids_NKE]
    return jnp.where(mask_NKE, weight_NKE, 0)

  def _degree(self, stats: KernelStats) -> int:
    dim = len(stats.centre_D) if stats.sketch is None else stats.sketch.row_DR.shape[1]
    return self.degree(dim)

  def _coordinates(self, stats: KernelStats, rows_RD: jax.Array) -> jax.Array:
    """Rows as used for drawing blocks: centred, sketched, with a 1 for the shift."""
    rows = rows_RD - stats.centre_D[None]
    if stats.sketch is not None:
      rows = jnp.matmul(rows, stats.sketch.row_DR)
    return jnp.pad(rows, ((0, 0), (0, bool(self.shift))), constant_values=1)

  def _query(self, stats: KernelStats, h_ND: jax.Array) -> jax.Array:
    """phi(h), padded with a 0 for the weight, f32[N, F]: <phi(h), sums> = sum c o^p."""
    if stats.sketch is not None:
      h_ND = jnp.matmul(h_ND, stats.sketch.query_DR)
    widths = ((0, 0), (0, bool(self.shift)))
    query_ND = jnp.pad(h_ND, widths, constant_values=self.shift)
    query_NF = symmetric_power.query(query_ND, self._degree(stats))
    return jnp.pad(query_NF, ((0, 0), (0, 1)))

  def _top(self, stats: KernelStats, h_ND: jax.Array) -> jax.Array:
    """Masses of the top nodes, [N, C]."""
    return self._mass(stats, stats.tree.top_CF, self._query(stats, h_ND).T).T

  def _mass(self, stats: KernelStats, sums: jax.Array, query: jax.Array) -> jax.Array:
    """Masses of nodes [..., F], for a query [F] or for queries [F, N]."""
    dot = jnp.matmul(sums, query, precision=jax.lax.Precision.HIGHEST)
    weight = sums[..., -1].reshape(sums.shape[:-1] + (1,) * (query.ndim - 1))
    return self.mass(jnp.maximum(dot, 0), weight, self._degree(stats))

  def _by_example(self, function, stats: KernelStats, h_ND: jax.Array, *args):
    """Maps `function` over examples, given the masses of nodes and `args` [..., M], in
    chunks of examples, or of draws, that read about _PAIR_NUMBERS numbers."""
    query_NF = self._query(stats, h_ND)
    width, num_draws = query_NF.shape[1], args[0].shape[-1]
    draws = max(min(_PAIR_NUMBERS // (2 * width), num_draws), 1)
    fill = -num_draws % draws

    def cut(x):
      x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)])
      return jnp.moveaxis(x.reshape(*x.shape[:-1], -1, draws), -2, 0)

    def call(example):
      query_F, *args = example
      some = lambda args: function(lambda sums: self._mass(stats, sums, query_F), *args)
      cut_args = tuple(map(cut, args))
      return jax.tree.map(lambda x: x.ravel()[:num_draws], jax.lax.map(some, cut_args))

    at_once = max(_PAIR_NUMBERS // (2 * width * draws), 1)
    return jax.lax.map(call, (query_NF, *args), batch_size=at_once)

  def rebuild(self, stats: KernelStats, w_VD: jax.Array) -> KernelStats:
    """Recomputes all sums, some blocks at a time. Cost: O(V D F)."""
    (V, D), blocks = w_VD.shape, self.num_blocks(stats)
    size, degree = -(-V // blocks), self._degree(stats)

    def sums(block):
      (ids_E,), (mask_E,) = (x[0] for x in block_ids(block[None, None], size, V))
      weight_E = jnp.where(mask_E, stats.weight_V[ids_E], 0)
      rows_ED = jax.lax.dynamic_slice_in_dim(w_VD, ids_E[0], size)
      v_1ED, weight_1E = self._coordinates(stats, rows_ED)[None], weight_E[None]
      moments_F = symmetric_power.moments(v_1ED, weight_1E, degree)[0]
      return jnp.append(moments_F, weight_E.sum())

    products = stats.tree.top_CF.shape[1] * degree  # about those of the half features
    at_once = max(_BLOCK_NUMBERS // (2 * max(products, size * D)), 1)
    numbers_B = jnp.arange(blocks, dtype=jnp.int32)
    block_BF = jax.lax.map(sums, numbers_B, batch_size=min(at_once, blocks))
    return stats._replace(tree=sumtree.build(block_BF, len(stats.tree.top_CF)))


QUARTIC_DIM = 16  # the largest width of rows whose fourth powers are summed
_Alpha = Annotated[float, Between(0, 10**9, excluding=(0,))]


@settings
class Quadratic(KernelTree):
  """K(o) = alpha o^2 + 1: even in o, so meant for models with |o| as logits.

  With an ordinary softmax it would mostly draw the least likely classes, whose logits
  are large and negative. Set `absolute=False` to do this anyway, or if a shift has
  moved the logits to where the kernel increases.

  Attributes (besides those of `KernelTree`):
    alpha: weight of the square.

  Source: Blanc & Rendle 2018, section 3.3, alpha = 100.

  >>> Quadratic().kernel(jnp.array([0.0, -1.0])).tolist()
  [1.0, 101.0]
  """

  absolute: bool = True
  alpha: _Alpha = 100.0

  def kernel(self, o):
    return self.alpha * jnp.square(o) + 1

  def degree(self, dim):
    return 2

  def mass(self, power_sum, weight, degree):
    return self.alpha * power_sum + weight


@settings
class QuadraticPrior(Quadratic):
  """weight_c (alpha (o - mean + shift)^2 + 1), weight_c = (count_c + smoothing)^power.

  The logit is taken relative to the mean class, and shifted to where the square
  increases; the weight adds the class frequency. So it suits an ordinary softmax, at
  the cost of the plain kernel. For flatter or steeper models: shift = s and alpha =
  10 / s^2 is the same kernel of o / s.

  Not in the paper.

  >>> QuadraticPrior().kernel(jnp.array([0.0, 1.0])).tolist()
  [1.0, 11.0]
  """

  absolute: bool = False
  alpha: _Alpha = 10.0
  shift: Shift = 1.0
  power: Power = 0.5
  centred: bool = True


@settings
class Quartic(KernelTree):
  """K(o) = o^4 + 1: closer to exp(|o|) than a square.

  For rows of up to 16 numbers (including the constant feature of a bias, padded to a
  multiple of 8) fourth powers are summed: 3,876 features. For wider rows the block mass
  is approximated from sums of squares: (sum c o^2)^2 / sum c, which equals the sum of
  fourth powers if |o| is constant within the block. The class within the block is still
  drawn by the quartic, and the reported distribution is that of both stages together.

  Source: Blanc & Rendle 2018, section 4.2.

  >>> Quartic().kernel(jnp.array([0.0, -2.0])).tolist()
  [1.0, 17.0]
  """

  absolute: bool = True

  def kernel(self, o):
    return jnp.square(jnp.square(o)) + 1

  def degree(self, dim):
    return 4 if dim <= QUARTIC_DIM else 2

  def mass(self, power_sum, weight, degree):
    if degree == 4:
      return power_sum + weight
    return jnp.square(power_sum) / jnp.where(weight > 0, weight, 1) + weight
