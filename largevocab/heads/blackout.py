"""BlackOut with any sampler."""

from dataclasses import field

from largevocab.fields import settings
from largevocab.heads.discriminative import Discriminative
from largevocab.losses.blackout import blackout_loss
from largevocab.samplers.base import Sampler
from largevocab.samplers.static import Unigram


@settings
class BlackOut(Discriminative):
  """Discriminates the true class from the drawn ones by an importance-weighted softmax;
  see `losses.blackout_loss`.

  Attributes:
    sampler: the paper's proposal distribution Q. The default is f(c)^a, with a = 0.5;
      in a config, 'blackout/unigram' has a = 1 and head.sampler.power sets it.

  Source: Ji et al. 2016; Barber & Botev 2016, section 3.4, equations 46-47.
  """

  sampler: Sampler = field(default_factory=lambda: Unigram(power=0.5))

  def loss(self, o_NP, o_NM, scored):
    return blackout_loss(
      o_NP,
      scored.w_NP,
      scored.log_expected_true(),
      o_NM,
      scored.candidates.log_expected,
      scored.candidates.mask,
    )
