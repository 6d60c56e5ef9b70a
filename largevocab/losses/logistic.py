"""Logistic losses of true classes against drawn ones: NCE and negative sampling."""

import jax
import jax.numpy as jnp

from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_shapes


def nce_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  log_expected_NP: jax.Array,
  o_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
) -> jax.Array:
  """Noise-contrastive estimation: logistic regression of data against noise.

  With s = o - log expected, where expected is the expected count of the class in the
  noise (k q for k independent draws from q):

    loss = sum over n, p of w_np [softplus(-s_np) + sum over m of softplus(s_nm)]

  Consistent in the number of data or noise samples if exp(o) is normalised: pass o -
  log z. Accidental hits must stay in the noise, which ranges over all classes.

  Args:
    o_NP: f32[N, P], scores of the true classes, minus log z.
    w_NP: f32[N, P], their weights, 0 on padding.
    log_expected_NP: f32[N, P], log expected count of the true classes in the noise;
      -inf: never drawn. Ignored where w_np is 0, also NaN.
    o_NM: f32[N, M], scores of the drawn classes, minus log z.
    log_expected_NM: f32[N, M] or f32[1, M], log expected counts of the drawn classes.
    mask_NM: bool[N, M], which drawn classes count.

  Returns:
    f32[], nats, summed over the examples.

  Source: Gutmann and Hyvarinen 2010; Mnih and Teh 2012; Barber & Botev 2016, equations
    30-31.
    Deviation: expected counts replace k q, so that noise may also be drawn without
    replacement.
  Cost: O(N (P + M)).

  >>> o, e, yes = jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones((1, 1), bool)
  >>> f"{nce_loss(o, jnp.ones((1, 1)), e, o, e, yes):.4f}"  # 2 log 2
  '1.3863'
  """
  check_shapes(o_NP=o_NP, w_NP=w_NP, log_expected_NP=log_expected_NP)
  s_NP = jnp.where(w_NP == 0, 0, o_NP - jnp.maximum(log_expected_NP, LOG_ZERO))
  s_NM = o_NM - log_expected_NM
  return negative_sampling_loss(s_NP, w_NP, s_NM, mask_NM)


def negative_sampling_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  o_NM: jax.Array,
  mask_NM: jax.Array,
  positive_weight: float = 1.0,
) -> jax.Array:
  """Negative sampling: logistic losses of true classes against drawn ones.

    loss = sum over n, p of w_np [b softplus(-o_np) + sum over m of softplus(o_nm)]

  The optimum is o_c = log(b p(c) / e(c)), where e(c) is the expected count of c among
  the negatives used: (1 - p(c)) expected(c) if accidental hits are masked. As a
  likelihood it is biased for any number of draws.

  Args:
    o_NP: f32[N, P], scores of the true classes.
    w_NP: f32[N, P], their weights, 0 on padding. Scores of weight 0, and masked ones,
      may be anything, also NaN.
    o_NM: f32[N, M], scores of the drawn classes.
    mask_NM: bool[N, M], which drawn classes count.
    positive_weight: b, see `calibrated_weight`.

  Returns:
    f32[], nats, summed over the examples.

  Source: Mikolov et al. 2013; Barber & Botev 2016, equation 43. Equation 45 also
    divides by the number of draws.
  Cost: O(N (P + M)).

  >>> o, yes = jnp.zeros((1, 1)), jnp.ones((1, 1), bool)
  >>> f"{negative_sampling_loss(o, jnp.ones((1, 1)), o, yes):.4f}"  # 2 log 2
  '1.3863'
  """
  check_shapes(o_NP=o_NP, w_NP=w_NP, o_NM=o_NM, mask_NM=mask_NM)
  # Set to 0 before the loss: 0 times NaN is NaN, in the gradient as well.
  o_NP, o_NM = jnp.where(w_NP == 0, 0, o_NP), jnp.where(mask_NM, o_NM, 0)
  true_N = jnp.sum(w_NP * jax.nn.softplus(-o_NP), axis=1)
  drawn_N = jnp.sum(jnp.where(mask_NM, jax.nn.softplus(o_NM), 0), axis=1)
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
