"""Negative sampling: one logistic regression per class."""

import math

import jax
import jax.numpy as jnp

from largevocab.fields import Share, settings
from largevocab.losses.base import SampledLoss
from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide


def negative_sampling_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  o_NM: jax.Array,
  mask_NM: jax.Array,
  positive_weight: float = 1.0,
  negative_weight: float = 1.0,
) -> jax.Array:
  """Negative sampling: logistic losses of true classes against drawn ones.

    loss = sum over n, p of w_np [b softplus(-o_np) + a sum over m of softplus(o_nm)]

  The optimum is o_c = log(b p(c) / (a e(c))), where e(c) is the expected count of c
  among the negatives used: (1 - p(c)) expected(c) if accidental hits are masked. As a
  likelihood it is biased for any number of draws.

  Args:
    o_NP: f32[N, P], scores of the true classes.
    w_NP: f32[N, P], their weights, 0 on padding. Scores of weight 0, and masked ones,
      may be anything, including NaN.
    o_NM: f32[N, M], scores of the drawn classes.
    mask_NM: bool[N, M], which drawn classes count.
    positive_weight: b, see `calibrated_weight`.
    negative_weight: a; 1 / M for the mean over the draws.

  Returns:
    f32[], nats, summed over the examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Mikolov et al. 2013; Barber & Botev 2016, equations 43 (a = 1) and 45
    (a = 1 / M).
  Cost: O(N (P + M)).

  >>> o, yes = jnp.zeros((1, 1)), jnp.ones((1, 1), bool)
  >>> f"{negative_sampling_loss(o, jnp.ones((1, 1)), o, yes):.4f}"  # 2 log 2
  '1.3863'
  """
  check_shapes(o_NP=o_NP, w_NP=w_NP, o_NM=o_NM, mask_NM=mask_NM)
  o_NP, o_NM = wide(o_NP), wide(o_NM)
  # Set to 0 before the loss: 0 times NaN is NaN, in the gradient as well.
  o_NP, o_NM = jnp.where(w_NP == 0, 0, o_NP), jnp.where(mask_NM, o_NM, 0)
  true_N = jnp.sum(w_NP * jax.nn.softplus(-o_NP), axis=1)
  drawn_N = jnp.sum(jnp.where(mask_NM, jax.nn.softplus(o_NM), 0), axis=1)
  drawn_N = negative_weight * shards.psum(drawn_N)
  return jnp.sum(positive_weight * true_N + jnp.sum(w_NP, axis=1) * drawn_N)


def calibrated_weight(num_samples: int, num_classes: int, calibration: float) -> float:
  """b = t a + (1 - t) with the sampling rate a = min(1, M / (V - 1)).

  At t = 0 it is 1. At t = 1, with M uniform negatives, the sigmoid of a score is
  calibrated as if all classes were negatives: it is no longer overconfident.

  Source: Petrov and Macdonald 2023 (gBCE, in gSASRec), there a (t (1 - 1/a) + 1/a).

  >>> calibrated_weight(10, 101, 0.0), calibrated_weight(10, 101, 1.0)
  (1.0, 0.1)
  """
  rate = min(1.0, num_samples / max(num_classes - 1, 1))
  return rate * calibration + (1 - calibration)


@settings
class NegativeSampling(SampledLoss):
  """`negative_sampling_loss`: the losses of word2vec and gBCE.

  Accidental hits are masked. With b given by `calibration` and a by `mean`, the optimal
  score is therefore o = log(b p / (a (1 - p) expected)): scores are relative to the
  expected count of a class, and their softmax is not p. Solved for p,

    log p(c) = log sigmoid(o_c + log expected(c) - log(b / a)).

  `evaluate` and `top_k` of the head use these values, normalised. 'log_z' is their
  log-partition function, which is 0 if they are self-normalised. `class_rows` are the
  learned rows.

  word2vec draws by f(c)^0.75, the sampler `Unigram(power=0.75)`; gBCE by `Uniform`.

  Attributes:
    calibration: t of gBCE, from 0 (binary cross-entropy as in word2vec) to 1
      (calibrated as if all classes were negatives; derived for uniform draws).
    mean: take the mean over the negatives, a = 1 / num_samples, in place of their sum,
      a = 1. Masked hits count in num_samples.
    add_log_q: evaluate p as above if the proposal is known before training: `uniform`,
      `log_uniform`, `unigram`, `pps`, `bernoulli` and a `mixture` of these. If this is
      off, or if the proposal of the sampler differs between examples or batches,
      evaluation uses the softmax of the scores, which ranks by p / ((1 - p) expected).
      Training is unaffected. A class that is never drawn has p = 0.

  Source: Mikolov et al. 2013; Barber & Botev 2016, section 3.3.2, which takes the mean
    and uses the scores directly; Petrov and Macdonald 2023. The optimal scores are
    given by Levy and Goldberg 2014, for draws that keep the true class, without 1 - p.
  Cost: that of `negative_sampling_loss`.
  """

  calibration: Share = 0.0
  mean: bool = False
  add_log_q: bool = True

  @property
  def weighs(self) -> bool:
    return False

  def __call__(self, scores):
    positive, negative = self._weights(scores.num_samples, scores.num_classes)
    return negative_sampling_loss(
      o_NP=scores.o_NP,
      w_NP=scores.w_NP,
      o_NM=scores.o_NM,
      mask_NM=scores.mask_NM,
      positive_weight=positive,
      negative_weight=negative,
    )

  def change(self, log_expected_V, num_samples):
    if not self.add_log_q:
      return None
    num_classes = shards.num_classes(len(log_expected_V))
    positive, negative = self._weights(num_samples, num_classes)
    log_odds_V = jnp.maximum(log_expected_V, LOG_ZERO) - math.log(positive / negative)
    return lambda o_NV, ids_V: jax.nn.log_sigmoid(o_NV + log_odds_V[ids_V][None])

  def _weights(self, num_samples: int, num_classes: int) -> tuple[float, float]:
    """b and a."""
    positive = calibrated_weight(num_samples, num_classes, self.calibration)
    return positive, 1 / num_samples if self.mean else 1.0
