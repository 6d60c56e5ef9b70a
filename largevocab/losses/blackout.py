"""BlackOut: discriminates a true class from the drawn ones by a softmax over them."""

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.losses.base import SampledLoss
from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_broadcast, check_shapes
from largevocab.ops.softmax.chunks import wide


def blackout_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  log_expected_NP: jax.Array,
  o_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
) -> jax.Array:
  """Discriminative loss of a softmax over each true class and the drawn ones.

  The softmax is of s = o - log expected:

    loss = -sum over n, p of w_np [log p_np(true) + sum over m of log(1 - p_np(m))]

  The loss is biased as a likelihood, since accidental hits (drawn classes that are true
  ones) are left out. The bias is small if no class is likely to be drawn.

  Args:
    o_NP: f32[N, P], scores of the true classes.
    w_NP: f32[N, P], their weights, 0 on padding. Scores of weight 0, and masked ones,
      may be anything, including NaN.
    log_expected_NP: f32[N, P], log expected count of the true classes in a draw; values
      that are not finite (never drawn) are replaced by 0.
    o_NM: f32[N, M], scores of the drawn classes.
    log_expected_NM: f32[N, M] or f32[1, M], log expected counts of the drawn classes.
    mask_NM: bool[N, M], False for drawn classes to ignore, such as accidental hits.

  Returns:
    f32[], nats, summed over the examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Ji et al. 2016; Barber & Botev 2016, equations 46-47. The 1 / Q of the paper
    is 1 / expected: a factor common to all classes cancels. log(1 - p) is also exact
    for p near 1, where other implementations clip it.
  Cost: O(N P M).

  Scores that equal the log expected counts tell nothing apart: the loss is 2 log 2.

  >>> o_NP, o_NM = jnp.log(jnp.full((1, 1), 3.0)), jnp.log(jnp.full((1, 1), 2.0))
  >>> w, yes = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
  >>> f"{blackout_loss(o_NP, w, o_NP, o_NM, o_NM, yes):.4f}"
  '1.3863'
  """
  sizes = check_shapes(
    o_NP=o_NP, w_NP=w_NP, log_expected_NP=log_expected_NP, o_NM=o_NM, mask_NM=mask_NM
  )
  check_broadcast(sizes, log_expected_NM=log_expected_NM)
  o_NP, log_expected_NP = wide(o_NP), wide(log_expected_NP)
  o_NM, log_expected_NM = wide(o_NM), wide(log_expected_NM)
  own_NP = o_NP - jnp.where(jnp.isfinite(log_expected_NP), log_expected_NP, 0)
  own_NP = jnp.where(w_NP == 0, 0, own_NP)
  drawn_NM = jnp.where(mask_NM, o_NM - log_expected_NM, LOG_ZERO)
  P, M = o_NP.shape[1], o_NM.shape[1]
  s_NPM = jnp.broadcast_to(drawn_NM[:, None, :], (len(o_NP), P, M))
  own_NP1 = shards.on_first_device(shards.replicated(own_NP), LOG_ZERO)[:, :, None]
  s_NPM = jnp.concatenate([own_NP1, s_NPM], axis=2)
  log_p_NP = shards.log_share_of_first(own_NP, s_NPM)
  log_rest_NPM = jnp.where(mask_NM[:, None, :], _log_complement(s_NPM)[:, :, 1:], 0)
  log_rest_NP = shards.psum(jnp.sum(log_rest_NPM, axis=2))
  return -jnp.sum(w_NP * (log_p_NP + log_rest_NP))


def _log_complement(s: jax.Array) -> jax.Array:
  """log(1 - softmax(s)) along the last axis, which continues on other devices.

  Only the largest probability can be near 1. For it, the log of the sum of the other
  probabilities is used.
  """
  is_top = jax.nn.one_hot(jnp.argmax(s, axis=-1), s.shape[-1], dtype=bool)
  log_here = jax.nn.logsumexp(s, axis=-1, keepdims=True)
  log_elsewhere = shards.logsumexp_elsewhere(log_here, LOG_ZERO)
  log_z = jnp.logaddexp(log_here, log_elsewhere)
  log_others = jax.nn.logsumexp(jnp.where(is_top, LOG_ZERO, s), axis=-1, keepdims=True)
  log_others = jnp.logaddexp(log_others, log_elsewhere)
  p = jnp.exp(jnp.where(is_top, LOG_ZERO, s - log_z))
  return jnp.where(is_top, log_others - log_z, jnp.log1p(-p))


@settings
class BlackOut(SampledLoss):
  """`blackout_loss`: a softmax over the true class and the drawn ones.

  With the sampler `Unigram`, `power` is the exponent a of the paper's proposal
  distribution Q, f(c)^a.

  Source: Ji et al. 2016; Barber & Botev 2016, section 3.4, equations 46-47.
  Cost: that of `blackout_loss`.
  """

  def __call__(self, scores):
    return blackout_loss(
      o_NP=scores.o_NP,
      w_NP=scores.w_NP,
      log_expected_NP=scores.log_expected_true(),
      o_NM=scores.o_NM,
      log_expected_NM=scores.log_expected_NM,
      mask_NM=scores.mask_NM,
    )
