"""Softmax loss with Z by plain importance sampling: no class is summed exactly."""

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.losses.base import SampledLoss
from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_broadcast, check_shapes
from largevocab.ops.softmax.chunks import wide


def importance_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  o_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
) -> jax.Array:
  """Softmax loss with the normaliser Z estimated from drawn classes alone.

  Z~_n = sum over m with mask_nm of exp(o_nm) / expected_nm
  loss = sum over n, p of w_np (log Z~_n - o_np)

  Z~ is unbiased for Z, but nothing keeps it above exp(o) of a true class that is not
  drawn. The loss then has no lower bound, and the gradient with respect to o_np is -1
  however probable the class already is. `sampled_softmax_loss` sums the true class
  exactly, at the same cost.

  Args:
    o_NP: f32[N, P], logits of the true classes.
    w_NP: f32[N, P], their weights, 0 on padding. Logits of weight 0, and masked ones,
      may be anything, including NaN.
    o_NM: f32[N, M], logits of the drawn classes.
    log_expected_NM: f32[N, M] or f32[1, M], log expected counts (logQ correction).
    mask_NM: bool[N, M], which drawn classes count, including accidental hits. If none
      counts for an example, it has no estimate, and no loss.

  Returns:
    f32[], nats, summed over the examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Bengio and Senecal 2008; Barber & Botev 2016, equations 12-14, with
    expected = S q for S independent draws.
    Deviation: equation 14 estimates the probability of any class. Here, as in Bengio
    and Senecal, only the drawn classes have one, with weights that sum to 1. Both have
    the same value of the loss.
  Cost: O(N (P + M)).

  Three classes with equal logits, of which the last is drawn, each with probability
  1/3:

  >>> o_N1, w, yes = jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.ones((1, 1), bool)
  >>> log_third = -jnp.log(jnp.full((1, 1), 3.0))
  >>> f"{importance_loss(o_N1, w, o_N1, log_third, yes):.4f}"  # log 3
  '1.0986'
  """
  sizes = check_shapes(o_NP=o_NP, w_NP=w_NP, o_NM=o_NM, mask_NM=mask_NM)
  check_broadcast(sizes, log_expected_NM=log_expected_NM)
  o_NP, o_NM, log_expected_NM = map(wide, (o_NP, o_NM, log_expected_NM))
  o_NP = jnp.where(w_NP == 0, 0, o_NP)
  drawn_NM = jnp.where(mask_NM, o_NM - log_expected_NM, LOG_ZERO)
  log_z_N = shards.logsumexp(drawn_NM, axis=1)
  is_empty_N = log_z_N < LOG_ZERO / 2  # False for NaN, which stays NaN
  excess_NP = jnp.where(is_empty_N[:, None], 0, log_z_N[:, None] - o_NP)
  return jnp.sum(w_NP * excess_NP)


@settings
class Importance(SampledLoss):
  """`importance_loss`: log Z~ - o_y, where Z~ is estimated from drawn classes alone.

  The model is the softmax. Accidental hits stay in the loss, since its estimate is of
  the sum over all classes. This loss is meant for comparison: `SampledSoftmax` has less
  variance at the same cost.

  Source: Bengio and Senecal 2008; Barber & Botev 2016, section 2, equations 12-14.
  Cost: that of `importance_loss`.
  """

  likelihood = True
  keeps_hits = True

  def __call__(self, scores):
    return importance_loss(
      o_NP=scores.o_NP,
      w_NP=scores.w_NP,
      o_NM=scores.o_NM,
      log_expected_NM=scores.log_expected_NM,
      mask_NM=scores.mask_NM,
    )
