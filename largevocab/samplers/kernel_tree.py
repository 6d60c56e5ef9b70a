"""Kernel-based sampling: draws proportional to a polynomial kernel of the logit.

Here F is the number of features and weights summed per tree node, p the degree of the
kernel, and C(n, k) a binomial coefficient.
"""

import abc
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.fields import Between, CountOrNone, OneOf, settings
from largevocab.labels import Counts
from largevocab.ops.draws import feature_tree, sumtree, symmetric_power
from largevocab.ops.draws.feature_tree import Features, Nodes
from largevocab.ops.draws.sumtree import SumTree
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers import sketch
from largevocab.samplers.base import Size
from largevocab.samplers.kernels import FourthPower, Kernel, Square
from largevocab.samplers.sketch import Sketch
from largevocab.samplers.static import Power, Smoothing, check_counts, count_weights
from largevocab.samplers.two_stage import DenseLevels, TwoStage, softmax_weights

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
class KernelTree(abc.ABC):
  """Base, beside `TwoStage`, of q(c | h) proportional to weight_c K(o_c), K a kernel.

  weight_c = (count_c + smoothing)^power, and o_c = <w_c - centre, h> + shift. The
  kernel is an inner product, K(o) = <phi(h), psi(w_c)>. A block of classes can
  therefore be drawn by sums of psi down a tree (`ops/draws/feature_tree.py`), and a
  class in the block by K itself (Blanc & Rendle 2018, sections 3.1 and 3.2.2).

  Attributes (besides those of `TwoStage`):
    incremental: update the sums in every step. Otherwise only `refresh` updates them.
    dense_levels: levels of the binary tree over the blocks that are computed as one
      matrix product for the whole batch; the levels below are descended draw by draw. 0
      is the tree of the paper; -1: chosen by predicted time (`choose_layout`).
    shift: added to the logit.
    power: exponent of the counts in the class weights; 0: all weights are 1.
    smoothing: added to every count.
    centred: subtract the weighted mean row, as of the last refresh.
    leaf: distribution of a class within its block: 'kernel', or 'softmax', by exp(o).
    rank: dimension of a low-rank sketch (`samplers/sketch.py`, as of the last refresh)
      that is used to draw blocks in place of all D coordinates. 0: none.

  Source: Blanc & Rendle 2018, sections 3.1 to 3.3.
  Deviations: levels above the cut are summed for all draws at once; where a single
    block is faster, classes are drawn from all logits. The distribution is that of the
    paper if sums are exact and up to date, without `rank` and with the leaf 'kernel'.
  Cost: F = C(D + p - 1, p) + 1 sums a node, in all at most 1.5 times the table unless
    `leaf_size` asks for more. A draw: see `block_layout.seconds`. `update`: O(R F) a
    level for R changed rows, or a rebuild, O(V D F), where that is faster.
  """

  incremental: bool = True
  dense_levels: DenseLevels = -1
  shift: Shift = 0.0
  power: Power = 0.0
  smoothing: Smoothing = 1.0
  centred: bool = False
  leaf: Annotated[str, OneOf("kernel", "softmax")] = "kernel"
  rank: CountOrNone = 0

  @property
  @abc.abstractmethod
  def kernel(self) -> Kernel:
    """K, of centred and shifted logits."""

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> KernelStats:
    assert isinstance(self, TwoStage)
    V, D = check_shapes(w_VD=w_VD).values()
    weight_V = np.ones(V)
    if self.power:
      count_V = check_counts(counts, w_VD)
      weight_V = count_weights(count_V, self.power, self.smoothing)
    coordinates = min(self.rank, D) or D
    degree = self.kernel.degree(coordinates)
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
    tree = feature_tree.rebuilt(stats.tree, self.features(stats), w_VD)
    return stats._replace(tree=tree)

  def update(
    self,
    stats: KernelStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> KernelStats:
    check_shapes(w_VD=w_VD, ids_R=ids_R, old_RD=old_RD, new_RD=new_RD)
    if stats.sketch is not None:
      change_RD = jnp.where((ids_R < len(w_VD))[:, None], new_RD - old_RD, 0)
      stats = stats._replace(sketch=sketch.observe(stats.sketch, change_RD))
    if not self.incremental:
      return stats
    features, rows = self.features(stats), (ids_R, old_RD, new_RD)
    return stats._replace(tree=feature_tree.updated(stats.tree, features, w_VD, *rows))

  def num_blocks(self, stats: KernelStats) -> int:
    return sumtree.num_blocks(stats.tree)

  def draw_blocks(self, stats, key, h_ND, m):
    return feature_tree.draw(self.nodes(stats, h_ND), key, m)

  def log_blocks(self, stats, h_ND, block_NM):
    return feature_tree.log_law(self.nodes(stats, h_ND), block_NM)

  def leaf_weights(self, stats, h_ND, o_NKE, ids_NKE, mask_NKE):
    assert isinstance(self, TwoStage)
    if self.leaf == "softmax":
      return softmax_weights(o_NKE, mask_NKE, score_of(self.absolute))
    offset_N = self.shift - jnp.matmul(h_ND, stats.centre_D)
    weight_NKE = self.kernel(o_NKE + offset_N[:, None, None]) * stats.weight_V[ids_NKE]
    return jnp.where(mask_NKE, weight_NKE, 0)

  def features(self, stats: KernelStats) -> Features:
    """psi: all products of p coordinates of a row."""
    degree = self._degree(stats)

    def total(rows_ED, weight_E):
      v_ED = self._coordinates(stats, rows_ED)
      return symmetric_power.moments(v_ED, weight_E, degree)

    return Features(
      lambda rows_RD: symmetric_power.features(
        self._coordinates(stats, rows_RD), degree
      ),
      stats.weight_V,
      total,
      held=stats.tree.top_CF.shape[1] * degree,  # of the half features
    )

  def nodes(self, stats: KernelStats, h_ND: jax.Array) -> Nodes:
    """The tree, with nodes weighted for a batch by the mass of the kernel."""
    degree = self._degree(stats)
    if stats.sketch is not None:
      h_ND = jnp.matmul(h_ND, stats.sketch.query_DR)
    widths = ((0, 0), (0, bool(self.shift)))
    query_ND = jnp.pad(h_ND, widths, constant_values=self.shift)
    query_NF = jnp.pad(symmetric_power.query(query_ND, degree), ((0, 0), (0, 1)))
    mass = lambda dot, weight: self.kernel.mass(jnp.maximum(dot, 0), weight, degree)
    return Nodes(stats.tree, query_NF, mass)

  def _degree(self, stats: KernelStats) -> int:
    dim = len(stats.centre_D) if stats.sketch is None else stats.sketch.row_DR.shape[1]
    return self.kernel.degree(dim)

  def _coordinates(self, stats: KernelStats, rows_RD: jax.Array) -> jax.Array:
    """Rows as used to draw blocks: centred, sketched, with a 1 for the shift."""
    rows = rows_RD - stats.centre_D[None]
    if stats.sketch is not None:
      rows = jnp.matmul(rows, stats.sketch.row_DR)
    return jnp.pad(rows, ((0, 0), (0, bool(self.shift))), constant_values=1)


_Alpha = Annotated[float, Between(0, 10**9, excluding=(0,))]


@settings
class Quadratic(KernelTree, TwoStage):
  """K(o) = alpha o^2 + 1: even in o, so meant for models with |o| as logits.

  With an ordinary softmax it would mostly draw the least likely classes, whose logits
  are large and negative. Set `absolute=False` to do this anyway, or if a shift has
  moved the logits to where the kernel increases.

  Attributes (besides those of `KernelTree`):
    alpha: weight of the square.

  Source: Blanc & Rendle 2018, section 3.3; alpha = 100: section 4.1.2.

  >>> Quadratic().kernel(jnp.array([0.0, -1.0])).tolist()
  [1.0, 101.0]
  """

  absolute: bool = True
  alpha: _Alpha = 100.0

  @property
  def kernel(self) -> Kernel:
    return Square(self.alpha)


@settings
class QuadraticPrior(KernelTree, TwoStage):
  """weight_c (alpha (o - mean + shift)^2 + 1), weight_c = (count_c + smoothing)^power.

  The logit is taken relative to the mean class, and shifted to where the square
  increases; the weight adds the class frequency. It therefore suits an ordinary
  softmax, at the cost of the plain kernel. For flatter or steeper models, shift = s and
  alpha = 10 / s^2 give the same kernel of o / s.

  Attributes (besides those of `KernelTree`):
    alpha: weight of the square.

  Not in the paper.

  >>> QuadraticPrior().kernel(jnp.array([0.0, 1.0])).tolist()
  [1.0, 11.0]
  """

  alpha: _Alpha = 10.0
  shift: Shift = 1.0
  power: Power = 0.5
  centred: bool = True

  @property
  def kernel(self) -> Kernel:
    return Square(self.alpha)


@settings
class Quartic(KernelTree, TwoStage):
  """K(o) = o^4 + 1: closer to exp(|o|) than a square.

  For blocks whose rows have more than 16 numbers, the mass of a block is approximated,
  see `kernels.FourthPower`. The class within the block is still drawn by the quartic,
  and the reported distribution is that of both stages together.

  Source: Blanc & Rendle 2018, section 4.2.

  >>> Quartic().kernel(jnp.array([0.0, -2.0])).tolist()
  [1.0, 17.0]
  """

  absolute: bool = True

  @property
  def kernel(self) -> Kernel:
    return FourthPower()
