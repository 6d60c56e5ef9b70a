"""Negative sampling: a logistic regression for each class."""

import math
from dataclasses import field

import jax
import jax.numpy as jnp

from largevocab.fields import Share, settings
from largevocab.heads.base import PyTree
from largevocab.heads.discriminative import Discriminative
from largevocab.losses.logistic import calibrated_weight, negative_sampling_loss
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.softmax.log_partition import Change
from largevocab.samplers.base import FixedLaw, Sampler
from largevocab.samplers.static import Unigram


@settings
class NegativeSampling(Discriminative):
  """Scores of true classes up and of drawn ones down: word2vec's loss, and gBCE.

  See `losses.negative_sampling_loss`. Draws that hit a true class are left
  out, so with b of `calibration` scores are best at o = log(b p / ((1 - p) expected)):
  they are relative to how often a class is drawn, and their own softmax is not p.
  Solved for p,

    log p(c) = log sigmoid(o_c + log expected(c) - log b),

  by which, normalised, `evaluate` and `top_k` go; 'log_z' tells how far these are from
  normalised by themselves. `class_rows` are as learnt.

  Attributes:
    sampler: word2vec's is f(c)^0.75, the default; gBCE's `Uniform`.
    calibration: t of gBCE, from 0 (binary cross-entropy as in word2vec) to 1 (scores as
      sure as with all classes as negatives; made for uniform draws).
    add_log_q: evaluate p as above, where the law is one of counts: `uniform`,
      `log_uniform`, `unigram`, `pps` and `bernoulli`. With other samplers, whose law is
      another for every example, and without this, evaluation is of the softmax of the
      bare scores, which ranks by p / ((1 - p) expected). Training is the same. A class
      that is never drawn has p = 0.

  Source: Mikolov et al. 2013; Barber & Botev 2016, section 3.3.2, which takes scores as
    they are; Petrov and Macdonald 2023. What scores are at their best is told by Levy
    and Goldberg 2014, of draws that keep the true class, without 1 - p.
  """

  sampler: Sampler = field(default_factory=lambda: Unigram(power=0.75))
  calibration: Share = 0.0
  add_log_q: bool = True

  @property
  def weighs(self) -> bool:
    return False

  def change(self, state: PyTree) -> Change | None:
    if not self.add_log_q or not isinstance(self.sampler, FixedLaw):
      return None
    log_expected_V = self.sampler.log_expected_of_all(state.stats, self.num_samples)
    weight = self._weight(len(log_expected_V))
    log_odds_V = jnp.maximum(log_expected_V, LOG_ZERO) - math.log(weight)
    return lambda o_NV, ids_V: jax.nn.log_sigmoid(o_NV + log_odds_V[ids_V][None])

  def loss(self, o_NP, o_NM, scored):
    return negative_sampling_loss(
      *(o_NP, scored.w_NP, o_NM, scored.candidates.mask),
      self._weight(scored.num_classes),
    )

  def _weight(self, num_classes: int) -> float:
    return calibrated_weight(self.num_samples, num_classes, self.calibration)
