"""Two-stage draws: a block by its approximate softmax mass, then a class by softmax.

The letters B and E stand for the number of blocks and of classes in a block.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.fields import OneOf, settings
from largevocab.labels import Counts
from largevocab.ops.draws import inverse_cdf
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import fold_rows, wide
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers.base import Size
from largevocab.samplers.static import Smoothing, check_counts, count_weights
from largevocab.samplers.two_stage import TwoStage, softmax_weights

MASSES = ("gaussian", "unigram")
_ROWS = 8_192  # number of rows that a refresh reads at a time
_LEAST = -40.0  # least log of the weight of a block, relative to the largest


class BlockStats(NamedTuple):
  """Sums over the rows of each block.

  Attributes:
    weight_B: f32[B], number of classes of each block, or sum of their counts.
    sum_BD: f32[B, D], sum of the rows of each block; None for `mass='unigram'`.
    square_BD: f32[B, D], sum of the squares of the rows; None for `mass='unigram'`.
    size: number of draws.
  """

  weight_B: jax.Array
  sum_BD: jax.Array | None
  square_BD: jax.Array | None
  size: Size


@settings
class Block(TwoStage):
  """q(c | h) = q(block | h) softmax(o)_c within the block.

  A block of E consecutive classes is drawn in proportion to an approximate mass. With
  'gaussian', it is the softmax mass that the block would have if its rows were normal
  with diagonal covariance:

    mass_B = size_B exp(mu + v / 2),  mu = <mean_B, h>,  v = <variance_B, h^2>

  (for |o|: size_B exp(v / 2) (exp(mu) Phi(s + mu / s) + exp(-mu) Phi(s - mu / s)) with
  s^2 = v and the normal distribution function Phi). With 'unigram', it is the sum of
  the counts of its classes, which needs no statistics of the rows.

  The approximation is best if similar classes share a block. Classes ordered by count,
  as in the data sets, already do.

  Attributes (besides those of `TwoStage`):
    mass: 'gaussian' or 'unigram'.
    smoothing: added to every count, for 'unigram'.

  Not in the papers. The moments are those of a log-normal sum.
  Cost: two products of N B D, and m E D numbers read for each example; `update` O(R D);
    `refresh` O(V D); 2 D numbers of state for each block.
  """

  mass: Annotated[str, OneOf(*MASSES)] = "gaussian"
  smoothing: Smoothing = 1.0

  @property
  def rebuilds(self) -> bool:
    return self.mass != "unigram"

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> BlockStats:
    V, D = check_shapes(w_VD=w_VD).values()
    layout = self.choose_layout(w_VD, 2 * D, m, dense_levels=64)
    blocks, size = layout.num_blocks, layout.size(V)
    weight_V = np.ones(V)
    if self.mass == "unigram":
      weight_V = count_weights(check_counts(counts, w_VD), 1.0, self.smoothing)
    weight_BE = np.pad(weight_V, (0, blocks * size - V)).reshape(blocks, size)
    weight_B = jnp.asarray(weight_BE.sum(axis=1), jnp.float32)
    stats = BlockStats(weight_B, None, None, Size(m))
    return self.refresh(stats, w_VD, jax.random.key(0))

  def refresh(self, stats: BlockStats, w_VD: jax.Array, key: jax.Array) -> BlockStats:
    if not self.rebuilds:
      return stats
    (V, D), blocks = w_VD.shape, self.num_blocks(stats)

    def add(sums, chunk):
      rows_CD = wide(chunk.rows(w_VD))
      block_C = chunk.ids_C // -(-V // blocks)
      block_C = jnp.where(chunk.is_new_C, block_C, blocks)
      put = lambda x_BD, x_CD: x_BD.at[block_C].add(x_CD, mode="drop")
      return put(sums[0], rows_CD), put(sums[1], jnp.square(rows_CD))

    # In chunks of rows: squares of all rows would take as much memory as the table.
    none_BD = jnp.zeros((blocks, D), wide(w_VD[:0]).dtype)
    sum_BD, square_BD = fold_rows(add, (none_BD, none_BD), V, _ROWS)
    return stats._replace(sum_BD=sum_BD, square_BD=square_BD)

  def update(
    self,
    stats: BlockStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> BlockStats:
    check_shapes(w_VD=w_VD, ids_R=ids_R, old_RD=old_RD, new_RD=new_RD)
    if stats.sum_BD is None or stats.square_BD is None:
      return stats
    blocks, V = self.num_blocks(stats), len(w_VD)
    block_R = jnp.where(ids_R < V, ids_R // -(-V // blocks), blocks)
    add = lambda x_BD, d_RD: x_BD.at[block_R].add(d_RD, mode="drop")
    return stats._replace(
      sum_BD=add(stats.sum_BD, new_RD - old_RD),
      square_BD=add(stats.square_BD, jnp.square(new_RD) - jnp.square(old_RD)),
    )

  def num_blocks(self, stats: BlockStats) -> int:
    return len(stats.weight_B)

  def draw_blocks(self, stats, key, h_ND, m):
    return inverse_cdf.draw(key, self._weights(stats, h_ND), m)

  def log_blocks(self, stats, h_ND, block_NM):
    return inverse_cdf.log_law(self._weights(stats, h_ND), block_NM)

  def leaf_weights(self, stats, h_ND, o_NKE, ids_NKE, mask_NKE):
    return softmax_weights(o_NKE, mask_NKE, score_of(self.absolute))

  def _weights(self, stats: BlockStats, h_ND: jax.Array) -> jax.Array:
    """Weights of the blocks, [N, B]."""
    if stats.sum_BD is None or stats.square_BD is None:
      return jnp.broadcast_to(stats.weight_B, (len(h_ND), len(stats.weight_B)))
    size_B1 = jnp.maximum(stats.weight_B, 1)[:, None]
    mean_BD = stats.sum_BD / size_B1
    variance_BD = jnp.maximum(stats.square_BD / size_B1 - jnp.square(mean_BD), 0)
    mean_NB = jnp.matmul(h_ND, mean_BD.T)
    variance_NB = jnp.matmul(jnp.square(h_ND), variance_BD.T)
    log_NB = mean_NB
    if self.absolute:
      deviation_NB = jnp.sqrt(jnp.maximum(variance_NB, 1e-12))
      tail = lambda sign: jax.scipy.special.log_ndtr(
        deviation_NB + sign * mean_NB / deviation_NB
      )
      log_NB = jnp.logaddexp(mean_NB + tail(1), -mean_NB + tail(-1))
    log_NB += variance_NB / 2
    # Bounded below, so that every block can be drawn however bad the approximation.
    log_NB = jnp.maximum(log_NB - log_NB.max(axis=-1, keepdims=True), _LEAST)
    return stats.weight_B[None] * jnp.exp(log_NB)
