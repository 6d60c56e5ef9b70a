"""Two samplers at once: a share of the draws by the first, the rest by the second."""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab import samplers  # for its registry; that module imports this file
from largevocab.errors import UserError
from largevocab.fields import ProperShare, settings
from largevocab.labels import Counts, Targets
from largevocab.samplers.base import (
  Draw,
  Sampler,
  Size,
  follows_labels,
  has_fixed_law,
  is_choice,
  keeps_up,
  rebuilds,
)

PyTree = Any


class MixtureStats(NamedTuple):
  """Statistics of `Mixture`.

  Attributes:
    size: number of draws of both parts together.
    parts: statistics of each part that draws.
  """

  size: Size
  parts: tuple[PyTree, ...]


@settings
class Mixture:
  """round(share m) draws by one sampler and the rest of m by another.

  The draw is the union of both parts, with multiplicity. Each of its entries has the
  expected count of its class in the union,

    expected(c) = expected_1(c) + expected_2(c),

  whichever part drew it. Estimates are therefore unbiased for sums over the classes
  that either part can draw, and the weight 1 / expected(c) is at most what the draws of
  one part alone would give it. A part that can draw every class, such as 'uniform',
  thus bounds the weights. In mixed negative sampling, one part follows the data, and
  the other is uniform.

  Each part has its default settings. With m >= 2, each part draws at least once. A
  single draw is that of the part with the larger share, or of the second if they are
  equal. If one part draws for each example, so does the mixture.

  Attributes:
    first, second: names of two different samplers. Not allowed are this one, those that
      look up examples by rows of the table ('lsh_label') and those that count the rows
      that change ('in_batch', 'cbns').
    share: share of the draws by `first`.
    absolute: value of `absolute` for the parts that have it, which then follow |o|
      instead of o.

  Source: Yang et al. 2020, who mix negatives from the batch with uniform ones; the
    balance heuristic of Veach and Guibas 1995. Deviation: any two samplers, but none
    that draws from the batch. 'unigram' stands in for such a sampler: it has the
    distribution of independent labels.
  Cost: the draws of both parts, and both distributions at all draws. Statistics of
    both.

  >>> sampler = Mixture()
  >>> stats = sampler.init([2, 0], jnp.zeros((2, 4)), 4)
  >>> law_V = jnp.exp(sampler.log_expected_of_all(stats))
  >>> law_V.round(4).tolist()  # 2 (3/4 + 1/2), 2 (1/4 + 1/2)
  [2.5, 1.5]
  """

  first: str = "unigram"
  second: str = "uniform"
  share: ProperShare = 0.5
  absolute: bool = False

  def __post_init__(self):
    allowed = [name for name, cls in samplers.SAMPLERS.items() if _may_be_part(cls)]
    for key, name in (("first", self.first), ("second", self.second)):
      if name not in allowed:
        raise UserError(
          f"head.sampler.{key} is {name!r:.99}; it must be one of {', '.join(allowed)}"
        )
    if self.first == self.second:
      raise UserError(
        f"head.sampler.first and head.sampler.second are both {self.first!r}: name two "
        "different samplers, or use this one alone"
      )

  @property
  def parts(self) -> tuple[Sampler, Sampler]:
    return self._part(self.first), self._part(self.second)

  @property
  def of_batches(self) -> bool:
    return any(getattr(part, "of_batches", False) for part in self.parts)

  @property
  def is_choice(self) -> bool:
    return all(map(is_choice, self.parts))

  @property
  def is_fixed(self) -> bool:
    return all(map(has_fixed_law, self.parts))

  @property
  def keeps_up(self) -> bool:
    return any(map(keeps_up, self.parts))

  @property
  def rebuilds(self) -> bool:
    return any(map(rebuilds, self.parts))

  def sizes(self, m: int) -> tuple[int, int]:
    """The number of draws by each part.

    >>> Mixture(share=0.9).sizes(20), Mixture(share=0.9).sizes(2)
    ((18, 2), (1, 1))
    """
    first = round(self.share * m)
    if m > 1:
      first = min(max(first, 1), m - 1)
    return first, m - first

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> MixtureStats:
    drawing = [(p, k) for p, k in zip(self.parts, self.sizes(m), strict=True) if k]
    return MixtureStats(Size(m), tuple(p.init(counts, w_VD, k) for p, k in drawing))

  def sample(
    self,
    stats: MixtureStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    draws = [
      part.sample(of_part, w_VD, jax.random.fold_in(key, i), h_ND, y)
      for i, (part, of_part) in enumerate(self._drawing(stats))
    ]
    lead = (len(h_ND),) if any(draw.ids.ndim == 2 for draw in draws) else ()
    spread = lambda x: jnp.broadcast_to(x, (*lead, x.shape[-1]))
    joined = lambda *parts: jnp.concatenate([*map(spread, parts)], axis=-1)
    ids = joined(*(draw.ids for draw in draws))
    mask = joined(*(draw.mask for draw in draws))
    sets = [draw.exact_ids for draw in draws if draw.exact_ids is not None]
    (exact_ids,) = sets or [None]  # exact sets of two parts would have to be merged
    log_expected = self.log_expected(stats, w_VD, h_ND, y, ids)
    return Draw(ids, log_expected, mask, exact_ids)

  def log_expected(
    self,
    stats: MixtureStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    return _log_sum(
      part.log_expected(of_part, w_VD, h_ND, y, ids)
      for part, of_part in self._drawing(stats)
    )

  def log_expected_of_all(self, stats: MixtureStats) -> jax.Array:
    """`log_expected` of every class, f32[V], if `is_fixed`."""
    return _log_sum(
      part.log_expected_of_all(of_part)
      for part, of_part in self._drawing(stats)
      if has_fixed_law(part)
    )

  def update(
    self,
    stats: MixtureStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> MixtureStats:
    parts = (
      part.update(of_part, w_VD, ids_R, old_RD, new_RD)
      for part, of_part in self._drawing(stats)
    )
    return stats._replace(parts=tuple(parts))

  def refresh(
    self, stats: MixtureStats, w_VD: jax.Array, key: jax.Array
  ) -> MixtureStats:
    parts = (
      part.refresh(of_part, w_VD, jax.random.fold_in(key, i))
      for i, (part, of_part) in enumerate(self._drawing(stats))
    )
    return stats._replace(parts=tuple(parts))

  def _part(self, name: str) -> Sampler:
    cls: Any = samplers.SAMPLERS[name]
    return cls(absolute=self.absolute) if hasattr(cls, "absolute") else cls()

  def _drawing(self, stats: MixtureStats) -> list[tuple[Sampler, PyTree]]:
    """The parts that draw, with their statistics."""
    drawing = zip(self.parts, self.sizes(stats.size.m), strict=True)
    return [*zip([part for part, m in drawing if m], stats.parts, strict=True)]


def _may_be_part(cls: Any) -> bool:
  return not follows_labels(cls) and cls is not Mixture


def _log_sum(logs: Iterable[jax.Array]) -> jax.Array:
  """log of the sum of exponentials of one or two arrays, in the larger shape."""
  logs = [*logs]
  shape = jnp.broadcast_shapes(*(x.shape for x in logs))
  return functools.reduce(jnp.logaddexp, [jnp.broadcast_to(x, shape) for x in logs])
