"""Softmax loss with an upper bound on Z, estimated from a random set of classes."""

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.losses.base import SampledLoss
from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_broadcast, check_shapes
from largevocab.ops.softmax.chunks import wide


def upper_bound_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  true_NP: jax.Array,
  o_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
  num_classes: int,
) -> jax.Array:
  """Softmax loss with an estimated upper bound B in place of the normaliser Z.

  Let s_c indicate that a random set includes class c, and b_c = P(s_c = 1). Then
  o = E(s o / b), and by Jensen's inequality exp(o) <= E exp(s o / b) = 1 + E s
  (exp(o / b) - 1). Summed over the classes that are not true,

    B_n = sum over p with true_np of exp(o_np)
          + (V - true ones - drawn ones) + sum over m with mask_nm of exp(o_nm / b_nm)
    loss = sum over n, p of w_np (log B_n - o_np)

  and Z_n <= E B_n if every class can be drawn, with equality if all are drawn with
  certainty or all logits of the others are 0. B of a single set may be smaller than Z,
  and the mean of log B may be smaller than log Z; log E B bounds the loss. A class that
  is not drawn contributes exp(0), so the loss is not invariant to a shift of the
  logits. A drawn class has a gradient of up to 1 / b, so rare classes have a high
  variance.

  Args:
    o_NP: f32[N, P], logits of the true classes.
    w_NP: f32[N, P], their weights.
    true_NP: bool[N, P], False on padding and repeated classes. Logits of padding, and
      masked ones, may be anything, including NaN.
    o_NM: f32[N, M], logits of the drawn classes.
    log_expected_NM: f32[N, M] or f32[1, M], log b.
    mask_NM: bool[N, M], which classes count: each class once, and no accidental hits.
    num_classes: V.

  Returns:
    f32[], nats, summed over the examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Barber & Botev 2016, equation 48, there for all classes; here true ones are
    exact, as in section 2.1 of the paper. The paper found this less successful than
    unbiased estimates. The expectation of B is deterministic, but a sum over all
    classes. Like other estimates of the paper, B is computed from a single set.
  Cost: O(N (P + M)).

  >>> o = jnp.array([[1.0, 2.0, 0.5]])   # three classes, the first is true
  >>> w, yes = jnp.ones((1, 1)), jnp.ones((1, 2), bool)
  >>> all_drawn = o[:, :1], w, yes[:, :1], o[:, 1:], jnp.zeros((1, 2)), yes
  >>> bool(jnp.allclose(upper_bound_loss(*all_drawn, 3), jax.nn.logsumexp(o) - 1.0))
  True
  """
  sizes = check_shapes(
    o_NP=o_NP, w_NP=w_NP, true_NP=true_NP, o_NM=o_NM, mask_NM=mask_NM
  )
  check_broadcast(sizes, log_expected_NM=log_expected_NM)
  o_NP, o_NM, log_expected_NM = map(wide, (o_NP, o_NM, log_expected_NM))
  o_NP = jnp.where(true_NP | (w_NP != 0), o_NP, 0)
  log_expected_NM = jnp.where(mask_NM, log_expected_NM, 0)
  drawn_NM = jnp.where(mask_NM, o_NM, 0) * jnp.exp(-log_expected_NM)
  counted_N = jnp.sum(true_NP, axis=1) + jnp.sum(mask_NM, axis=1)
  others_N = num_classes - shards.psum(counted_N)
  log_others_N = jnp.log(jnp.maximum(others_N, 1).astype(o_NM.dtype))
  terms_NM = jnp.concatenate(
    [
      jnp.where(true_NP, o_NP, LOG_ZERO),
      jnp.where(mask_NM, drawn_NM, LOG_ZERO),
      shards.on_first_device(jnp.where(others_N > 0, log_others_N, LOG_ZERO), LOG_ZERO)[
        :, None
      ],
    ],
    axis=1,
  )
  log_bound_N = shards.logsumexp(terms_NM, axis=1)
  return jnp.sum(w_NP * (log_bound_N[:, None] - o_NP))


@settings
class UpperBound(SampledLoss):
  """`upper_bound_loss`: log B - o_y, where E B bounds Z from above.

  The model is the softmax. The sampler must draw distinct classes, as `Bernoulli` or
  `PPS` do. With `smoothing` 0, classes without counts are never drawn, and B is no
  bound.

  Source: Barber & Botev 2016, section 5, equation 48.
  Cost: that of `upper_bound_loss`.
  """

  likelihood = True
  needs_sets = True

  def __call__(self, scores):
    return upper_bound_loss(
      o_NP=scores.o_NP,
      w_NP=scores.w_NP,
      true_NP=scores.true_NP,
      o_NM=scores.o_NM,
      log_expected_NM=scores.log_expected_NM,
      mask_NM=scores.mask_NM,
      num_classes=scores.num_classes,
    )
