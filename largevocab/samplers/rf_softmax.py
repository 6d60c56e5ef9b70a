"""Random Fourier softmax: a tree over sums of random features of normalised rows.

Here F is the number of features and weights summed per tree node.
"""

import math
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.fields import Between, OneOf, settings
from largevocab.labels import Counts
from largevocab.ops.draws import feature_tree, sumtree
from largevocab.ops.draws.feature_tree import Features, Nodes
from largevocab.ops.draws.sumtree import SumTree
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers.base import Size
from largevocab.samplers.two_stage import DenseLevels, TwoStage, softmax_weights

_SEED = 0x3C6EF372  # for the features; unlikely as the seed of a training run


class RFStats(NamedTuple):
  """Statistics of `RFSoftmax`.

  Attributes:
    tree: for each node the sums of the features and, last, the number of classes.
    direction_DK: f32[D, K], directions of the random features.
    norm_V: f32[V], lengths of the class rows.
    size: number of draws.
  """

  tree: SumTree
  direction_DK: jax.Array
  norm_V: jax.Array
  size: Size


@settings
class RFSoftmax(TwoStage):
  """q(c | h) about proportional to exp(nu cos(h, w_c)), by random features.

  With u = h / |h| and v_c = w_c / |w_c|, the Gaussian kernel

    K(h, w_c) = exp(-nu |u - v_c|^2 / 2) = exp(nu (cos(h, w_c) - 1))

  is the mean of <phi(u), phi(v_c)> over random vectors r_k, standard normal:

    'fourier':  phi(u) = (cos(sqrt(nu) <r_k, u>), sin(sqrt(nu) <r_k, u>)) / sqrt(K),
    'positive': phi(u) = exp(sqrt(nu) <r_k, u> - nu) / sqrt(K).

  A block of classes is drawn down a tree of sums of phi(v_c), and a class in it in
  proportion to K. Sums of cosines and sines may be negative. A node of n classes
  therefore counts at least n exp(-2 nu) and at most n, which are bounds of its sum of
  K. The distribution is the product of the probabilities of the branches that are then
  taken. It is positive for all classes and reported exactly. It is not proportional to
  <phi(u), phi(v_c)>, and it is different if the same classes are in other blocks.

  The bias of a head is a coordinate of h and w_c like any other. For a model whose
  logits are nu' cos(h, w_c), set nu to nu' or less. A model with logits <h, w_c> has
  lengths that this proposal distribution does not follow, which costs variance.

  Attributes (besides those of `TwoStage`):
    incremental, dense_levels: as in `KernelTree`.
    nu: inverse temperature. Features of a large nu vary more.
    kind: kind of the features, 'fourier' or 'positive'.
    num_features: number of features.

  Source: Rawat et al. 2019, 'fourier'; Choromanski et al. 2021, lemma 1, 'positive'.
    Deviations: negative sums, as above, and a class in its block is drawn by K, not by
    its features. With `absolute`, phi(u) + phi(-u) in place of phi(u), and |cos|.
  Cost: F = num_features + 1 sums a node; a draw: see `block_layout.seconds`; `update`
    as in `KernelTree`, and 4 bytes a class.
  """

  follows_products: ClassVar[bool] = False  # it follows directions

  incremental: bool = True
  dense_levels: DenseLevels = -1
  nu: Annotated[float, Between(0, 30, excluding=(0,))] = 4.0
  kind: Annotated[str, OneOf("fourier", "positive")] = "fourier"
  num_features: Annotated[int, Between(2, 2**16)] = 128

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> RFStats:
    D = check_shapes(w_VD=w_VD)["D"]
    num = self.num_features
    if self.kind == "fourier":
      num = -(-num // 2)
    direction_DK = jax.random.normal(jax.random.key(_SEED), (D, num))
    width = (2 * num if self.kind == "fourier" else num) + 1
    layout = self.choose_layout(w_VD, width, m, self.dense_levels)
    tree = sumtree.build(jnp.zeros((layout.num_blocks, width)), layout.num_top)
    stats = RFStats(tree, direction_DK, _lengths(w_VD), Size(m))
    return self.refresh(stats, w_VD, jax.random.key(0))

  def refresh(self, stats: RFStats, w_VD: jax.Array, key: jax.Array) -> RFStats:
    tree = feature_tree.rebuilt(stats.tree, self.features(stats), w_VD)
    return stats._replace(tree=tree, norm_V=_lengths(w_VD))

  def update(
    self,
    stats: RFStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> RFStats:
    check_shapes(w_VD=w_VD, ids_R=ids_R, old_RD=old_RD, new_RD=new_RD)
    norm_V = stats.norm_V.at[ids_R].set(_lengths(new_RD), mode="drop")
    stats = stats._replace(norm_V=norm_V)
    if not self.incremental:
      return stats
    features, rows = self.features(stats), (ids_R, old_RD, new_RD)
    return stats._replace(tree=feature_tree.updated(stats.tree, features, w_VD, *rows))

  def num_blocks(self, stats: RFStats) -> int:
    return sumtree.num_blocks(stats.tree)

  def draw_blocks(self, stats, key, h_ND, m):
    return feature_tree.draw(self.nodes(stats, h_ND), key, m)

  def log_blocks(self, stats, h_ND, block_NM):
    return feature_tree.log_law(self.nodes(stats, h_ND), block_NM)

  def features(self, stats: RFStats) -> Features:
    """phi(v_c); all class weights are 1."""
    return Features(lambda rows_RD: self._features(stats, rows_RD))

  def nodes(self, stats: RFStats, h_ND: jax.Array) -> Nodes:
    """The tree, weighted for a batch by phi(u), within the bounds of the kernel."""
    query_NF = self._features(stats, h_ND)
    if self.absolute:
      query_NF += self._features(stats, -h_ND)
    least, most = math.exp(-2 * self.nu), 2 if self.absolute else 1
    mass = lambda dot, weight: jnp.clip(dot, least * weight, most * weight)
    return Nodes(stats.tree, jnp.pad(query_NF, ((0, 0), (0, 1))), mass)

  def leaf_weights(self, stats, h_ND, o_NKE, ids_NKE, mask_NKE):
    length = stats.norm_V[ids_NKE] * _lengths(h_ND)[:, None, None]
    cos_NKE = o_NKE / jnp.where(length > 0, length, 1)
    score = score_of(self.absolute)
    return softmax_weights(cos_NKE, mask_NKE, lambda cos: self.nu * score(cos))

  def _features(self, stats: RFStats, rows_RD: jax.Array) -> jax.Array:
    """phi of rows, or of activations, f32[R, F - 1]."""
    turn_RK = math.sqrt(self.nu) * jnp.matmul(
      _unit(rows_RD), stats.direction_DK, precision=jax.lax.Precision.HIGHEST
    )
    if self.kind == "fourier":
      features_RF = jnp.concatenate([jnp.cos(turn_RK), jnp.sin(turn_RK)], axis=1)
    else:
      features_RF = jnp.exp(turn_RK - self.nu)
    return features_RF / math.sqrt(turn_RK.shape[1])


def _lengths(rows_RD: jax.Array) -> jax.Array:
  """Euclidean norms of rows, f32[R]."""
  squares_R = jnp.einsum(
    "rd,rd->r", rows_RD, rows_RD, preferred_element_type=jnp.float32
  )
  return jnp.sqrt(squares_R)


def _unit(rows_RD: jax.Array) -> jax.Array:
  """Rows scaled to length 1; rows of zeros stay as they are."""
  length_R1 = _lengths(rows_RD)[:, None]
  return rows_RD / jnp.where(length_R1 > 0, length_R1, 1)
