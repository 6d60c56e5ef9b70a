"""Samplers with a fixed proposal distribution from class counts; independent draws.

Draws use the integer strata of ops/draws/strata.py: a draw costs O(log V), and the
reported probability is exactly that of the draw, which uses 42 random bits.
"""

import abc
import math
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.fields import Between, settings
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops.block_counts import whole_counts
from largevocab.ops.draws import strata
from largevocab.ops.draws.strata import Strata
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.base import Draw, NoUpkeep, Size, log_expected_at, own_ids

Power = Annotated[float, Between(0, 100)]
Smoothing = Annotated[float, Between(0, 10**9)]


def check_counts(counts: Counts, w_VD: jax.Array) -> np.ndarray:
  """The counts i64[V] of a table's classes, checked to be not all zero.

  For a block of classes, the check is on the counts of all blocks, since the block may
  have no class that was seen.

  Raises:
    UserError: all counts are zero, or the table has another number of classes.
  """
  counts = as_counts(counts)
  unigram_V = counts.unigram_V
  if len(unigram_V) != w_VD.shape[0]:
    raise UserError(
      f"counts of {len(unigram_V)} classes for a table of shape {w_VD.shape}: pass one "
      "count for each row"
    )
  every_V = whole_counts(counts).unigram_V
  if not every_V.any():
    raise UserError(
      f"counts of all {len(every_V)} classes are zero: count the classes of the "
      "training data, or choose the uniform sampler"
    )
  return unigram_V


def count_weights(count_V: np.ndarray, power: float, smoothing: float) -> np.ndarray:
  """(count + smoothing) ** power as f64[V], relative to the largest.

  Raises:
    UserError: all are 0, as in a block without a class that was seen.

  >>> count_weights(np.array([3, 1, 0]), power=1.0, smoothing=1.0).tolist()
  [1.0, 0.5, 0.25]
  """
  smooth_V = count_V + np.float64(smoothing)
  if not smooth_V.any():
    raise UserError(
      f"none of the {len(count_V)} classes of a block was counted: set "
      "head.sampler.smoothing above 0, or lower mesh.blocks"
    )
  weight_V = (smooth_V / smooth_V.max()) ** power
  # 0 ** 0 must not give a class weight, and underflow must not take weight from one.
  return np.where(smooth_V > 0, np.maximum(weight_V, 1e-100), 0.0)


class StaticStats(NamedTuple):
  """Statistics of the static samplers.

  Attributes:
    strata: integer lengths proportional to the probabilities.
    size: number of draws.
  """

  strata: Strata
  size: Size


@settings
class StaticLaw(abc.ABC):
  """Base of the static samplers; a subclass maps counts to weights.

  The draws are independent and with replacement. Estimates made from them are unbiased
  for sums over all classes of non-zero probability.

  Attributes:
    per_example: separate draws for each example instead of one for the batch.

  Cost: `init` O(V) on the host, 8 bytes of state a class; a draw O(log V).
  """

  # The value of `NoUpkeep`, taken over so that a subclass has one base.
  keeps_up: ClassVar[bool] = NoUpkeep.keeps_up
  update, refresh = NoUpkeep.update, NoUpkeep.refresh

  per_example: bool = False

  @property
  def independent(self) -> bool:
    return self.per_example

  @abc.abstractmethod
  def weights(self, counts: Counts, w_VD: jax.Array) -> np.ndarray:
    """f64[V], proportional to the probabilities."""

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> StaticStats:
    return StaticStats(strata.build_iid(self.weights(counts, w_VD)), Size(m))

  def sample(
    self,
    stats: StaticStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    check_shapes(w_VD=w_VD, h_ND=h_ND, start_V=stats.strata.start_V)
    m = stats.size.m
    shape = (h_ND.shape[0], m) if self.per_example else (m,)
    ids = strata.draw_iid(stats.strata, key, shape)
    log_expected = self.log_expected(stats, w_VD, h_ND, y, ids)
    return Draw(ids, log_expected, jnp.ones(shape, bool))

  def log_expected_of_all(self, stats: StaticStats) -> jax.Array:
    """`log_expected` of every class, f32[V]."""
    return stats.strata.log_expected_V + math.log(stats.size.m / strata.IID_STRATA)

  def log_expected(
    self,
    stats: StaticStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    check_shapes(w_VD=w_VD, h_ND=h_ND, start_V=stats.strata.start_V)
    ids = own_ids(ids, len(h_ND)) if self.per_example else ids
    log_strata = log_expected_at(stats.strata.log_expected_V, ids)
    return log_strata + math.log(stats.size.m / strata.IID_STRATA)


@settings
class Uniform(StaticLaw):
  """q(c) = 1 / V; counts are not used.

  Source: Blanc & Rendle 2018, section 4.1.2, where it is a baseline.
  """

  def weights(self, counts: Counts, w_VD: jax.Array) -> np.ndarray:
    return np.ones(w_VD.shape[0])


@settings
class LogUniform(StaticLaw):
  """q(c) = log((r + 2) / (r + 1)) / log(V + 1) for the class of rank r = 0, 1, ...

  Source: TensorFlow's log_uniform_candidate_sampler. Deviations: the rank is by
    decreasing count (ties by id), where TensorFlow takes the id as the rank; draws are
    independent, as in TensorFlow with unique=False, which is not the default of its
    losses.
  """

  def weights(self, counts: Counts, w_VD: jax.Array) -> np.ndarray:
    count_V = check_counts(counts, w_VD)
    weight_V = np.empty(len(count_V))
    weight_V[np.argsort(-count_V, kind="stable")] = np.log1p(
      1 / np.arange(1, len(count_V) + 1)
    )
    return weight_V


@settings
class Unigram(StaticLaw):
  """q(c) proportional to (count(c) + smoothing) ** power.

  Attributes:
    power: 1 for the unigram distribution, 0.75 for that of word2vec.
    smoothing: added to every count. With the default of 1, classes without counts can
      be drawn. With 0 they never are, and get no negative gradient from a sampled loss.

  Source: Mnih and Teh 2012 (power 1); Mikolov et al. 2013, section 2.2 (power 0.75).
    Deviation: `smoothing`, which is 0 there.
  """

  power: Power = 1.0
  smoothing: Smoothing = 1.0

  def weights(self, counts: Counts, w_VD: jax.Array) -> np.ndarray:
    return count_weights(check_counts(counts, w_VD), self.power, self.smoothing)
