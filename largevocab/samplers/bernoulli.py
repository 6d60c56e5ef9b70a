"""Bernoulli sampling: random sets of classes, weighted by 1 / inclusion probability.

The letter C stands for the number of classes of inclusion probability 1.
"""

from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.fields import OneOf, settings
from largevocab.labels import Counts, Targets
from largevocab.ops.block_counts import for_each_block
from largevocab.ops.draws import random_sets
from largevocab.ops.draws.random_sets import Extent, RandomSets
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.base import Draw, NoUpkeep, Size, log_expected_at, own_ids
from largevocab.samplers.inclusion import (
  capped_probabilities,
  check_strata,
  power_probabilities,
)
from largevocab.samplers.static import Smoothing, check_counts, count_weights

INCLUSIONS = ("capped", "power")


class BernoulliStats(NamedTuple):
  """Statistics of `Bernoulli`.

  Attributes:
    log_expected_V: f32[V], log of the inclusion probabilities.
    certain_C: i32[C], the classes of probability 1, padded with V if other blocks of
      classes have more of them; None if there are none.
    others: sampler of the other classes; None if there are none.
    size: expected number of negatives.
  """

  log_expected_V: jax.Array
  certain_C: jax.Array | None
  others: RandomSets | None
  size: Size


@settings
class Bernoulli(NoUpkeep):
  """A random set of classes, each included independently with probability b(c).

  With f(c) the share of class c in all counts (after smoothing),

    b(c) = min(1, lam f(c))  ('capped'), or  b(c) = f(c)^alpha  ('power'),

  where lam or alpha is chosen so that the set has m expected negatives, i.e. classes
  other than a label drawn from f: sum over c of (1 - f(c)) b(c) = m. With m >= V - 1
  every class is included (alpha = 0), and the loss is exact. Estimates of sums of z
  over the classes are unbiased, with variance sum over c of (1 / b(c) - 1) z(c)^2.

  The set size is random, with variance sum over c of b(c) (1 - b(c)), so draws have a
  capacity above m and a mask. Even if all logits are equal, an estimate varies with the
  set size; `systematic` avoids this.

  Attributes:
    inclusion: 'capped', which includes the most frequent classes with certainty, or
      'power', as in the paper, which spends most of the set on rare classes.
    smoothing: added to every count. With the default of 1, classes without counts can
      be drawn. With 0 they never are, and get no negative gradient from a sampled loss.
    per_example: draw a set for each example instead of one for the batch.
    systematic: use the same inclusion probabilities, but not independently: one draw
      from each stratum (see `ops/draws/random_sets.py`), so that sizes vary by one at
      most.

  Source: Barber & Botev 2016, section 2.1.2. Deviations: 'capped'; the expected size is
    the mean over labels of the size in the paper, so that a batch can share a set;
    smoothing.
  Cost: `init` O(V log V) on the host, 12 bytes of state a class; a draw O(m log V), or
    O(V) where that is less.
  """

  distinct: ClassVar[bool] = True

  inclusion: Annotated[str, OneOf(*INCLUSIONS)] = "capped"
  smoothing: Smoothing = 1.0
  per_example: bool = False
  systematic: bool = False

  def probabilities(self, counts: Counts, w_VD: jax.Array, m: int) -> np.ndarray:
    """The inclusion probabilities b, f64[V]."""
    weight_V = count_weights(check_counts(counts, w_VD), 1.0, self.smoothing)
    label_V = weight_V / weight_V.sum()
    if self.inclusion == "power":
      return power_probabilities(label_V, m)
    return capped_probabilities(weight_V, m, label_V)

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> BernoulliStats:
    sizes = lambda counts: _sizes(self.probabilities(counts, w_VD, m))
    num_certain, rooms = zip(*for_each_block(counts, sizes, (self, m)), strict=True)
    most, room = max(num_certain), random_sets.largest(rooms)
    b_V = self.probabilities(counts, w_VD, m)
    certain_V = b_V == 1
    certain_C = others = None
    if most:
      certain_C = np.full(most, len(b_V), np.int32)
      certain_C[: certain_V.sum()] = np.flatnonzero(certain_V)
      certain_C = jnp.asarray(certain_C)
    if room.num:
      build = random_sets.build_independent
      if self.systematic:
        check_strata(room.strata)
        build = random_sets.build_systematic
      others, realised_V = build(np.where(certain_V, 0, b_V), room)
      b_V = np.where(certain_V, 1, realised_V)
    with np.errstate(divide="ignore"):
      log_expected_V = jnp.asarray(np.log(b_V), jnp.float32)
    return BernoulliStats(log_expected_V, certain_C, others, Size(m))

  def sample(
    self,
    stats: BernoulliStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    check_shapes(w_VD=w_VD, h_ND=h_ND, log_expected_V=stats.log_expected_V)
    lead = (h_ND.shape[0],) if self.per_example else ()
    parts = []
    if stats.certain_C is not None:
      V, shape = len(w_VD), (*lead, len(stats.certain_C))
      certain = jnp.broadcast_to(stats.certain_C, shape)
      parts.append((jnp.minimum(certain, V - 1), certain < V))
    if stats.others is not None:
      parts.append(stats.others.draw(key, lead))
    ids, mask = (jnp.concatenate(x, axis=-1) for x in zip(*parts, strict=True))
    return Draw(ids, self.log_expected(stats, w_VD, h_ND, y, ids), mask)

  def log_expected_of_all(self, stats: BernoulliStats) -> jax.Array:
    """`log_expected` of every class, f32[V]."""
    return stats.log_expected_V

  def log_expected(
    self,
    stats: BernoulliStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    check_shapes(w_VD=w_VD, h_ND=h_ND, log_expected_V=stats.log_expected_V)
    ids = own_ids(ids, len(h_ND)) if self.per_example else ids
    return log_expected_at(stats.log_expected_V, ids)


def _sizes(b_V: np.ndarray) -> tuple[int, Extent]:
  """The number of classes of probability 1, and the extent of the others."""
  return int((b_V == 1).sum()), random_sets.extent(np.where(b_V == 1, 0, b_V))
