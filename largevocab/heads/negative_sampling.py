"""Negative sampling: one logistic regression per class."""

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
  """Negative sampling: the losses of word2vec and gBCE.

  See `losses.negative_sampling_loss`. Accidental hits are masked, so with b given by
  `calibration` the optimal score is o = log(b p / ((1 - p) expected)): scores are
  relative to the expected count of a class, and their softmax is not p. Solved for p,

    log p(c) = log sigmoid(o_c + log expected(c) - log b).

  `evaluate` and `top_k` use these values, normalised; 'log_z' is their log-partition
  function, 0 if they are self-normalised. `class_rows` are the learned rows.

  Attributes:
    sampler: word2vec's is f(c)^0.75, the default; gBCE's `Uniform`.
    calibration: t of gBCE, from 0 (binary cross-entropy as in word2vec) to 1
      (calibrated as if all classes were negatives; derived for uniform draws).
    add_log_q: evaluate p as above if the proposal depends on counts only: `uniform`,
      `log_uniform`, `unigram`, `pps` and `bernoulli`. With other samplers, whose
      proposal differs between examples, and without this, evaluation uses the softmax
      of the scores, which ranks by p / ((1 - p) expected). Training is unaffected. A
      class that is never drawn has p = 0.

  Source: Mikolov et al. 2013; Barber & Botev 2016, section 3.3.2, which uses the scores
    directly; Petrov and Macdonald 2023. The optimal scores are given by Levy and
    Goldberg 2014, for draws that keep the true class, without 1 - p.
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
