"""Sampled softmax loss: Z is summed exactly on some classes and sampled on the rest."""

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.losses.base import SampledLoss
from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_broadcast, check_shapes
from largevocab.ops.softmax.chunks import wide


def sampled_softmax_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  true_NP: jax.Array,
  o_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
  log_exact_NP: jax.Array | None = None,
) -> jax.Array:
  """Softmax loss with an estimated log-partition function (normaliser).

  Z~_n = sum over p with true_np of exact_np exp(o_np)
         + sum over m with mask_nm of exp(o_nm) / expected_nm
  loss = sum over n, p of w_np (log Z~_n - o_np)

  Z~ is unbiased for Z in two cases. Either accidental hits are masked, and every other
  class is always a candidate (log_expected 0) or drawn with the given expected count;
  or both sums have the weights of `complement_weights`. The loss is consistent as the
  sample grows; its bias is about -Var(Z~) / (2 Z^2).

  Args:
    o_NP: f32[N, P], logits of the true classes.
    w_NP: f32[N, P], their weights, 0 on padding.
    true_NP: bool[N, P], False on padding and repeated classes. Logits of padding, and
      masked ones, may be anything, including NaN.
    o_NM: f32[N, M], logits of the candidates.
    log_expected_NM: f32[N, M] or f32[1, M], log expected counts (logQ correction).
    mask_NM: bool[N, M], which candidates count.
    log_exact_NP: f32[N, P], or 1 in place of N or P, log of the weights of the true
      classes in Z~; None: 0.

  Returns:
    f32[], nats, summed over the examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Barber & Botev 2016, section 2.1, equations 22-26, with kappa = 1 / expected;
    after Bengio and Senecal 2008.
  Cost: O(N (P + M)).

  Three classes, of which the first is true. The two others have equal logits; one of
  them is drawn, each with probability 1/2:

  >>> o_N3 = jnp.array([[1.0, 2.0, 2.0]])
  >>> w, yes = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
  >>> log_half = jnp.log(jnp.full((1, 1), 0.5))
  >>> loss = sampled_softmax_loss(o_N3[:, :1], w, yes, o_N3[:, 1:2], log_half, yes)
  >>> bool(jnp.allclose(loss, jax.nn.logsumexp(o_N3) - 1.0))
  True
  """
  sizes = check_shapes(
    o_NP=o_NP, w_NP=w_NP, true_NP=true_NP, o_NM=o_NM, mask_NM=mask_NM
  )
  if log_exact_NP is None:
    log_exact_NP = jnp.zeros((1, 1))
  check_broadcast(sizes, log_expected_NM=log_expected_NM, log_exact_NP=log_exact_NP)
  o_NP, log_exact_NP = wide(o_NP), wide(log_exact_NP)
  o_NM, log_expected_NM = wide(o_NM), wide(log_expected_NM)
  # Set to 0 before the loss: 0 times NaN is NaN, in the gradient as well.
  o_NP = jnp.where(true_NP | (w_NP != 0), o_NP, 0)
  exact_NP = jnp.where(true_NP, o_NP + log_exact_NP, LOG_ZERO)
  sampled_NM = jnp.where(mask_NM, o_NM - log_expected_NM, LOG_ZERO)
  parts = [jax.nn.logsumexp(part, axis=1) for part in (exact_NP, sampled_NM)]
  log_z_N = shards.logsumexp(jnp.stack(parts, axis=1), axis=1)
  return jnp.sum(w_NP * (log_z_N[:, None] - o_NP))


@settings
class SampledSoftmax(SampledLoss):
  """`sampled_softmax_loss`: the softmax with log Z estimated from a sample.

  The estimate is the sum of an exact set and of importance-weighted samples. Z~ is
  exact on the true classes and on the exact sets of the head and of the sampler. Drawn
  classes have weight 1 / expected count, and are masked if they are summed exactly.
  With independent draws this is importance sampling of the complement of the exact set;
  with the sampler `bernoulli` it is Bernoulli sampling.

  If each example has its own independent draws, they are weighted conditionally on
  missing the exact set (`complement_weights`). With the sampler `softmax` the loss then
  equals that of `full` in every draw. Z~ is unbiased for every exact set.

  Attributes:
    corrected: use importance weights (logQ correction). Otherwise the loss is the
      softmax over the active set, which has the true and the drawn classes, each once,
      as in Daghaghi et al. It is biased, strongly if classes are few: the model learns
      to separate classes, but not their probabilities.
    correct_positive: subtract log expected from the true classes' logits too, as
      TensorFlow and Jean et al. 2015 do. This is biased: probabilities are off, but it
      may rank better. A class that is never drawn keeps its logit.

  Source: Barber & Botev 2016, section 2.1 (complementary sum, equations 22-26), Blanc &
    Rendle 2018, equations 2-3 (negatives corrected, the positive not), Daghaghi et al.
    2021, sections 2 and 2.2 (the active set).
  Cost: that of `sampled_softmax_loss`. If each example has independent draws, also that
    of their probabilities on the exact set.
  """

  likelihood = True
  corrected: bool = True
  correct_positive: bool = False

  def __post_init__(self):
    if self.correct_positive and not self.corrected:
      raise UserError(
        "head.loss.correct_positive is True, which corrects the logits of true "
        "classes, but head.loss.corrected is False: change one of them"
      )

  @property
  def weighs(self) -> bool:
    return self.corrected

  @property
  def active_set(self) -> bool:
    return not self.corrected

  @property
  def estimates_log_z(self) -> bool:
    return not self.correct_positive

  def __call__(self, scores):
    o_NP, log_exact_NP = scores.o_NP, None
    log_expected_NM = scores.log_expected_NM
    if self.correct_positive:
      shift_NP = scores.log_expected_true()
      o_NP = o_NP - jnp.where(jnp.isfinite(shift_NP), shift_NP, 0)
    else:
      log_exact_NP, log_weight_NM = scores.log_weights()
      log_expected_NM = -log_weight_NM
    return sampled_softmax_loss(
      o_NP=o_NP,
      w_NP=scores.w_NP,
      true_NP=scores.true_NP,
      o_NM=scores.o_NM,
      log_expected_NM=log_expected_NM,
      mask_NM=scores.mask_NM,
      log_exact_NP=log_exact_NP,
    )
