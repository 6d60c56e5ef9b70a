"""Sampling without replacement, with probability proportional to size (PPS)."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops.block_counts import for_each_block
from largevocab.ops.draws import strata
from largevocab.ops.draws.strata import Strata
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.base import Draw, NoUpkeep, Size, log_expected_at
from largevocab.samplers.inclusion import capped_probabilities, check_strata
from largevocab.samplers.static import Power, Smoothing, check_counts, count_weights


class PPSStats(NamedTuple):
  """Statistics of `PPS`.

  Attributes:
    strata: one stratum per drawn class.
    mask_M: bool[M], False beyond the number of strata.
    size: number of draws.
  """

  strata: Strata
  mask_M: jax.Array
  size: Size


@settings
class PPS(NoUpkeep):
  """m distinct classes for the batch: P(c is drawn) = min(1, lam * weight(c)).

  weight(c) = (count(c) + smoothing) ** power, and lam makes the probabilities sum to m.
  Frequent classes have probability 1: they are summed exactly and add no variance. The
  others are drawn by systematic sampling, without replacement. Estimates of sums over
  classes are unbiased. With m >= V every class is drawn.

  If class ids are ordered by count (as the data sets order them), the draw is
  stratified by frequency. Any order is correct.

  Source: Madow 1949 (systematic sampling); the cap at 1 is Hajek's.
  Cost: `init` O(V + m log m) on the host, 8 bytes of state a class; a draw O(m log V)
  and one random word.

  Attributes:
    power: exponent of the counts.
    smoothing: added to every count. With the default of 1, classes without counts can
      be drawn. With 0 they never are, and get no negative gradient from a sampled loss.
  """

  distinct: ClassVar[bool] = True

  power: Power = 1.0
  smoothing: Smoothing = 1.0

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> PPSStats:
    count_V, size = check_counts(counts, w_VD), Size(m)
    weight_V = count_weights(count_V, self.power, self.smoothing)
    drawn = self._num_drawn(counts, m)
    check_strata(drawn)
    pi_V = capped_probabilities(weight_V, drawn)
    return PPSStats(strata.build(pi_V, drawn), jnp.arange(m) < drawn, size)

  def _num_drawn(self, counts: Counts, m: int) -> int:
    """m, or the number of classes with a weight if that is smaller.

    Raises:
      UserError: blocks have fewer than m such classes, and their numbers differ.
    """
    weights = lambda counts: count_weights(counts.unigram_V, self.power, self.smoothing)
    num_weighed = lambda counts: int(np.count_nonzero(weights(counts)))
    numbers = for_each_block(as_counts(counts), num_weighed, self)
    least = min(numbers)
    if least < m and len({min(m, number) for number in numbers}) > 1:
      raise UserError(
        f"head.sampler.smoothing is 0, and one of {len(numbers)} blocks of classes has "
        f"only {least} that were counted, too few for {m} draws: set "
        "head.sampler.smoothing above 0, or head.num_samples to "
        f"{least * len(numbers)} or less"
      )
    return min(m, least)

  def sample(
    self,
    stats: PPSStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    check_shapes(w_VD=w_VD, start_V=stats.strata.start_V)
    drawn_K = strata.draw_systematic(stats.strata, key)
    ids_M = jnp.pad(drawn_K, (0, stats.size.m - len(drawn_K)), mode="edge")
    log_expected_M = self.log_expected(stats, w_VD, h_ND, y, ids_M)
    return Draw(ids_M, log_expected_M, stats.mask_M)

  def log_expected_of_all(self, stats: PPSStats) -> jax.Array:
    """`log_expected` of every class, f32[V]."""
    return stats.strata.log_expected_V

  def log_expected(
    self,
    stats: PPSStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    check_shapes(w_VD=w_VD, start_V=stats.strata.start_V)
    return log_expected_at(stats.strata.log_expected_V, ids)
