"""Pairwise ranking with a margin."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from largevocab.fields import Between, OneOf, settings
from largevocab.heads.discriminative import Discriminative
from largevocab.losses.ranking import PENALTIES, ranking_loss
from largevocab.samplers.base import Sampler
from largevocab.samplers.static import Uniform

LOG_CLASSES = "log(V-1)"


@dataclass(frozen=True)
class _Margin(Between):
  """A number in a range, possibly as text, or LOG_CLASSES."""

  def problem(self, value: Any) -> str:
    if value == LOG_CLASSES:
      return ""
    try:
      return super().problem(float(value))
    except (ValueError, OverflowError):
      return f"must be a number or {LOG_CLASSES!r}"


@settings
class Ranking(Discriminative):
  """Pairwise ranking: true classes should outscore drawn ones by alpha; see
  `losses.ranking_loss`.

  Attributes:
    sampler: the argument of Barber & Botev for alpha = log(V - 1) assumes uniform
      draws.
    penalty: 'log', which is smooth, or 'hinge'.
    alpha: the margin: a number, or 'log(V-1)'.

  Source: Barber & Botev 2016, section 3.3, equations 32-42.
  """

  sampler: Sampler = field(default_factory=Uniform)
  penalty: Annotated[str, OneOf(*PENALTIES)] = "log"
  alpha: Annotated[str | float, _Margin(-1000, 1000)] = LOG_CLASSES

  @property
  def weighs(self) -> bool:
    return False

  def margin(self, num_classes: int) -> float:
    """The value of alpha for this number of classes.

    >>> Ranking().margin(1001) == math.log(1000), Ranking(alpha="1").margin(1001)
    (True, 1.0)
    """
    if self.alpha == LOG_CLASSES:
      return math.log(max(num_classes - 1, 1))
    return float(self.alpha)

  def loss(self, o_NP, o_NM, scored):
    alpha = self.margin(scored.num_classes)
    mask_NM = scored.candidates.mask
    return ranking_loss(o_NP, scored.w_NP, o_NM, mask_NM, alpha, self.penalty)
