"""Losses as pure, differentiable functions, for use in your own training code.

`softmax_cross_entropy` takes activations and the table of class rows. The sampled
losses take the logits of the true classes and of the negatives, and the log expected
counts of the draws for the logQ correction. Samplers (`largevocab.samplers`) provide
these; the head `largevocab.heads.Sampled` combines both, with row-sparse gradients. Its
`loss` is one of `SAMPLED_LOSSES`: the same functions, as settings.

Losses of the spherical family depend on all logits only through their sum and sum of
squares: `largevocab.heads.Spherical` trains them exactly, at a cost independent of V.
"""

from largevocab.losses.base import SampledLoss, Scores
from largevocab.losses.blackout import BlackOut, blackout_loss
from largevocab.losses.importance import Importance, importance_loss
from largevocab.losses.importance_weights import complement_weights
from largevocab.losses.nce import NCE, nce_loss
from largevocab.losses.negative_sampling import (
  NegativeSampling,
  calibrated_weight,
  negative_sampling_loss,
)
from largevocab.losses.ranking import Ranking, ranking_loss
from largevocab.losses.sampled_softmax import SampledSoftmax, sampled_softmax_loss
from largevocab.losses.softmax import softmax_cross_entropy
from largevocab.losses.spherical import (
  SPHERICAL_LOSSES,
  SphericalLoss,
  SphericalSoftmax,
  Squared,
  TaylorSoftmax,
  ZLoss,
)
from largevocab.losses.upper_bound import UpperBound, upper_bound_loss
from largevocab.ops.accidental_hits import accidental_hits
from largevocab.ops.softmax.log_partition import absolute_logit, logit

SAMPLED_LOSSES = {
  "softmax": SampledSoftmax,
  "nce": NCE,
  "negative_sampling": NegativeSampling,
  "ranking": Ranking,
  "blackout": BlackOut,
  "upper_bound": UpperBound,
  "importance": Importance,
}

__all__ = [
  "NCE",
  "SAMPLED_LOSSES",
  "SPHERICAL_LOSSES",
  "BlackOut",
  "Importance",
  "NegativeSampling",
  "Ranking",
  "SampledLoss",
  "SampledSoftmax",
  "Scores",
  "SphericalLoss",
  "SphericalSoftmax",
  "Squared",
  "TaylorSoftmax",
  "UpperBound",
  "ZLoss",
  "absolute_logit",
  "accidental_hits",
  "blackout_loss",
  "calibrated_weight",
  "complement_weights",
  "importance_loss",
  "logit",
  "nce_loss",
  "negative_sampling_loss",
  "ranking_loss",
  "sampled_softmax_loss",
  "softmax_cross_entropy",
  "upper_bound_loss",
]
