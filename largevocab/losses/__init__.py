"""Losses as pure, differentiable functions, for use in your own training code.

`softmax_cross_entropy` takes activations and the table of class rows. The sampled
losses take the logits of the true classes and of the negatives, and the log expected
counts of the draws for the logQ correction. Samplers (`largevocab.samplers`) provide
these; heads (`largevocab.heads`) combine both, with row-sparse gradients.

Losses of the spherical family depend on all logits only through their sum and sum of
squares: `largevocab.heads.Spherical` trains them exactly, at a cost independent of V.
"""

from largevocab.losses.blackout import blackout_loss
from largevocab.losses.logistic import (
  calibrated_weight,
  nce_loss,
  negative_sampling_loss,
)
from largevocab.losses.ranking import ranking_loss
from largevocab.losses.sampled_softmax import (
  complement_weights,
  sampled_softmax_loss,
)
from largevocab.losses.softmax import softmax_cross_entropy
from largevocab.losses.spherical import (
  SphericalLoss,
  SphericalSoftmax,
  Squared,
  TaylorSoftmax,
  ZLoss,
)
from largevocab.losses.upper_bound import upper_bound_loss
from largevocab.ops.softmax.log_partition import absolute_logit, logit

__all__ = [
  "SphericalLoss",
  "SphericalSoftmax",
  "Squared",
  "TaylorSoftmax",
  "ZLoss",
  "absolute_logit",
  "blackout_loss",
  "calibrated_weight",
  "complement_weights",
  "logit",
  "nce_loss",
  "negative_sampling_loss",
  "ranking_loss",
  "sampled_softmax_loss",
  "softmax_cross_entropy",
  "upper_bound_loss",
]
