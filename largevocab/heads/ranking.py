"""Pairwise ranking with a margin."""

import math
from dataclasses import dataclass, field

from largevocab.errors import UserError
from largevocab.heads.discriminative import Discriminative
from largevocab.ops.ranking_loss import PENALTIES, ranking_loss
from largevocab.samplers.base import Sampler
from largevocab.samplers.static import Uniform

LOG_CLASSES = "log(V-1)"


@dataclass(frozen=True)
class Ranking(Discriminative):
  """A true class should score above each drawn one by alpha; see `ops/ranking_loss`.

  Attributes:
    sampler: paper 001's argument for alpha = log(V - 1) is one for uniform draws.
    penalty: 'log', a smooth one, or 'hinge'.
    alpha: the margin: a number, or 'log(V-1)'.

  Source: paper 001 section 3.3, equations 32-42.
  """

  sampler: Sampler = field(default_factory=Uniform)
  penalty: str = "log"
  alpha: str | float = LOG_CLASSES

  def __post_init__(self):
    super().__post_init__()
    if self.penalty not in PENALTIES:
      raise UserError(f"head.penalty is {self.penalty!r}; use one of {[*PENALTIES]}")
    if not math.isfinite(self.margin(2)):
      raise UserError(f"head.alpha is {self.alpha}; it must be finite")

  def margin(self, num_classes: int) -> float:
    """alpha in numbers.

    >>> Ranking().margin(1001) == math.log(1000), Ranking(alpha="1").margin(1001)
    (True, 1.0)
    """
    if self.alpha == LOG_CLASSES:
      return math.log(max(num_classes - 1, 1))
    try:
      return float(self.alpha)
    except (TypeError, ValueError):
      raise UserError(
        f"head.alpha is {self.alpha!r}; give a number or {LOG_CLASSES!r}"
      ) from None

  def loss(self, o_NP, o_NM, scored):
    alpha = self.margin(scored.num_classes)
    mask_NM = scored.candidates.mask
    return ranking_loss(o_NP, scored.w_NP, o_NM, mask_NM, alpha, self.penalty)
