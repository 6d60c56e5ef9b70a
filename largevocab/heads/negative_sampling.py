"""Negative sampling: a logistic regression for each class."""

from dataclasses import field

from largevocab.fields import Share, settings
from largevocab.heads.discriminative import Discriminative
from largevocab.ops.binary_loss import calibrated_weight, negative_sampling_loss
from largevocab.samplers.base import Sampler
from largevocab.samplers.static import Unigram


@settings
class NegativeSampling(Discriminative):
  """Scores of true classes up and of drawn ones down: word2vec's loss, and gBCE.

  See `ops/binary_loss.negative_sampling_loss`. Draws that hit a true class are left
  out, so its scores are best at log(p / (1 - p) / expected): their softmax is not p.
  It ranks, or makes vectors.

  Attributes:
    sampler: word2vec's is f(c)^0.75, the default; gBCE's `Uniform`.
    calibration: t of gBCE, from 0 (binary cross-entropy as in word2vec) to 1 (scores as
      sure as with all classes as negatives; made for uniform draws).

  Source: Mikolov et al. 2013; paper 001 section 3.3.2; Petrov and Macdonald 2023.
  """

  sampler: Sampler = field(default_factory=lambda: Unigram(power=0.75))
  calibration: Share = 0.0

  def loss(self, o_NP, o_NM, scored):
    weight = calibrated_weight(self.num_samples, scored.num_classes, self.calibration)
    return negative_sampling_loss(
      o_NP, scored.w_NP, o_NM, scored.candidates.mask, weight
    )
