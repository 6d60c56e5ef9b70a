"""Draws of a block by a cheap guess of its share, and in it by the exact softmax."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.labels import Counts
from largevocab.ops import inverse_cdf
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.static import check_counts, count_weights
from largevocab.samplers.tree_plan import choose_layout
from largevocab.samplers.two_stage import TwoStage, check_whole_leaves, softmax_weights

MASSES = ("gaussian", "unigram")


class BlockStats(NamedTuple):
  """What is known of blocks.

  Attributes:
    log_weight_B: f32[B], log of the number of classes, or of the sum of their counts.
    mean_BD: f32[B, D], mean of their rows; zeros for `mass='unigram'`.
    variance_BD: f32[B, D], variance of each coordinate of their rows; zeros likewise.
  """

  log_weight_B: jax.Array
  mean_BD: jax.Array
  variance_BD: jax.Array


@dataclass(frozen=True)
class Block(TwoStage):
  """q(c | h) = q(block | h) softmax(o)_c within the block.

  A block of E consecutive classes is drawn by what a softmax would give it if its rows
  were normal with a diagonal covariance ('gaussian'):

    mass_B = size_B exp(<mean_B, h> + <variance_B, h^2> / 2),

  or by the counts of its classes ('unigram'), which takes no statistics of the rows.
  The second stage follows the model as it is, so moments may be many steps old:
  `update` leaves them alone, `refresh` takes them anew.

  Blocks of alike classes are told apart best: classes ordered by count, as the data
  sets order them, already are.

  Attributes (besides those of `TwoStage`):
    mass: 'gaussian' or 'unigram'.
    smoothing: added to every count, for 'unigram'.

  Not in the papers. The moments are those of a log-normal sum.
  Cost: two products of N B D and m E D numbers read an example; `refresh` O(V D); 2 D
    numbers of state a block.
  """

  mass: str = "gaussian"
  smoothing: float = 1.0

  def __post_init__(self):
    super().__post_init__()
    if self.mass not in MASSES:
      raise UserError(f"sampler.mass is {self.mass!r}; use 'gaussian' or 'unigram'")

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> BlockStats:
    V, D = check_shapes(w_VD=w_VD).values()
    leaf_size = self.leaf_size
    if self.whole_leaves and not leaf_size:
      leaf_size = min(max(D // 2, 1), m)
    layout = choose_layout(V, D, 2 * D, m, min(leaf_size, V), dense_levels=64)
    blocks, size = layout.num_blocks, layout.size(V)
    if self.whole_leaves:
      check_whole_leaves(size, m)
    weight_V = np.ones(V)
    if self.mass == "unigram":
      weight_V = count_weights(check_counts(counts, w_VD), 1.0, self.smoothing)
    weight_BE = np.pad(weight_V, (0, blocks * size - V)).reshape(blocks, size)
    with np.errstate(divide="ignore"):
      log_weight_B = jnp.asarray(np.log(weight_BE.sum(axis=1)), jnp.float32)
    stats = BlockStats(log_weight_B, jnp.zeros((blocks, D)), jnp.zeros((blocks, D)))
    return self.refresh(stats, w_VD, jax.random.key(0))

  def update(self, stats, w_VD, ids_R, old_RD, new_RD):
    return stats

  def refresh(self, stats: BlockStats, w_VD: jax.Array, key: jax.Array) -> BlockStats:
    if self.mass == "unigram":
      return stats
    (V, D), blocks = w_VD.shape, self.num_blocks(stats)
    fill = blocks * -(-V // blocks) - V
    rows_BED = jnp.pad(w_VD, ((0, fill), (0, 0))).reshape(blocks, -1, D)
    size_B1 = jnp.exp(stats.log_weight_B)[:, None]
    mean_BD = rows_BED.sum(axis=1) / jnp.maximum(size_B1, 1)
    square_BD = jnp.square(rows_BED).sum(axis=1) / jnp.maximum(size_B1, 1)
    variance_BD = jnp.maximum(square_BD - jnp.square(mean_BD), 0)
    return stats._replace(mean_BD=mean_BD, variance_BD=variance_BD)

  def num_blocks(self, stats: BlockStats) -> int:
    return len(stats.log_weight_B)

  def draw_blocks(self, stats, key, h_ND, m):
    return inverse_cdf.draw(key, self._weights(stats, h_ND), m)

  def log_blocks(self, stats, h_ND, block_NM):
    return inverse_cdf.log_law(self._weights(stats, h_ND), block_NM)

  def leaf_weights(self, stats, h_ND, o_NKE, ids_NKE, mask_NKE):
    return softmax_weights(o_NKE, mask_NKE, self.absolute)

  def _weights(self, stats: BlockStats, h_ND: jax.Array) -> jax.Array:
    """Weights of the blocks, [N, B]."""
    mean_NB = jnp.matmul(h_ND, stats.mean_BD.T)
    if self.absolute:
      mean_NB = jnp.logaddexp(mean_NB, -mean_NB)  # exp(|o|) is nearly 2 cosh(o)
    half_variance_NB = jnp.matmul(jnp.square(h_ND), stats.variance_BD.T) / 2
    log_NB = stats.log_weight_B[None] + mean_NB + half_variance_NB
    return jnp.exp(log_NB - log_NB.max(axis=-1, keepdims=True))
