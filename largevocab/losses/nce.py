"""Noise-contrastive estimation (NCE): logistic regression of data against noise."""

import math
from typing import Annotated

import jax
import jax.numpy as jnp

from largevocab.fields import Between, OneOf, settings
from largevocab.losses.base import SampledLoss
from largevocab.losses.negative_sampling import negative_sampling_loss
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_broadcast, check_shapes
from largevocab.ops.softmax.chunks import wide

NORMALIZERS = ("one", "global", "context")


def nce_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  log_expected_NP: jax.Array,
  o_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
) -> jax.Array:
  """Noise-contrastive estimation: logistic regression of data against noise.

  The loss uses s = o - log expected, where expected is the expected count of the class
  in the noise (k q for k independent draws from q):

    loss = sum over n, p of w_np [softplus(-s_np) + sum over m of softplus(s_nm)]

  It is consistent in the number of data or noise samples if exp(o) is normalised: pass
  o - log z. Accidental hits must stay in the noise, which ranges over all classes. The
  noise must not depend on the true class, as draws from the batch do.

  Args:
    o_NP: f32[N, P], scores of the true classes, minus log z.
    w_NP: f32[N, P], their weights, 0 on padding.
    log_expected_NP: f32[N, P], log expected count of the true classes in the noise;
      -inf: never drawn. Ignored where w_np is 0, even if NaN.
    o_NM: f32[N, M], scores of the drawn classes, minus log z.
    log_expected_NM: f32[N, M] or f32[1, M], log expected counts of the drawn classes.
    mask_NM: bool[N, M], which drawn classes count.

  Returns:
    f32[], nats, summed over the examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Gutmann and Hyvarinen 2010; Mnih and Teh 2012; Barber & Botev 2016, equations
    30-31.
    Deviation: expected counts replace k q, so that noise may also be drawn without
    replacement.
  Cost: O(N (P + M)).

  Scores that equal the log expected counts tell nothing from noise: the loss is
  2 log 2.

  >>> o, w, yes = jnp.log(jnp.full((1, 1), 3.0)), jnp.ones((1, 1)), jnp.array([[True]])
  >>> f"{nce_loss(o, w, o, o, o, yes):.4f}, {nce_loss(o, w, 0 * o, o, 0 * o, yes):.4f}"
  '1.3863, 1.6740'
  """
  sizes = check_shapes(
    o_NP=o_NP, w_NP=w_NP, log_expected_NP=log_expected_NP, o_NM=o_NM, mask_NM=mask_NM
  )
  check_broadcast(sizes, log_expected_NM=log_expected_NM)
  o_NP, log_expected_NP = wide(o_NP), wide(log_expected_NP)
  o_NM, log_expected_NM = wide(o_NM), wide(log_expected_NM)
  s_NP = jnp.where(w_NP == 0, 0, o_NP - jnp.maximum(log_expected_NP, LOG_ZERO))
  s_NM = o_NM - log_expected_NM
  return negative_sampling_loss(s_NP, w_NP, s_NM, mask_NM)


@settings
class NCE(SampledLoss):
  """`nce_loss`: discriminates labels from noise, which the sampler draws.

  Accidental hits stay in the loss. Scores are log-probabilities up to log z.

  Attributes:
    normalizer: 'one': z = 1, so the model must be self-normalised; 'global': one log z
      is learned; 'context': one log z per context (`Targets.context_N`: the current
      token of a language model, the number of an example in a fixed set). log z starts
      at log V, so that the initial model is normalised. With z = 1 the bias, if there
      is one, starts at -log V instead (at 0 with `head.absolute`).
    num_contexts: number of z for 'context'; 0: the number of classes. Further contexts,
      and examples without a context (-1), share the last z.

  Source: Barber & Botev 2016, section 3.2, equations 30-31; Mnih and Teh 2012 (z per
    context, and z = 1).
  Cost: that of `nce_loss`; a row of state for each learned log z.
  """

  keeps_hits = True
  needs_noise = True
  normalizer: Annotated[str, OneOf(*NORMALIZERS)] = "one"
  num_contexts: Annotated[int, Between(0, 2**28)] = 0

  def __call__(self, scores):
    return nce_loss(
      o_NP=scores.o_NP,
      w_NP=scores.w_NP,
      log_expected_NP=scores.log_expected_true(),
      o_NM=scores.o_NM,
      log_expected_NM=scores.log_expected_NM,
      mask_NM=scores.mask_NM,
    )

  def num_log_z(self, num_classes):
    num = {"one": 0, "global": 1, "context": self.num_contexts or num_classes}
    return num[self.normalizer]

  def initial_bias(self, num_classes):
    return -math.log(num_classes) if self.normalizer == "one" else 0.0
