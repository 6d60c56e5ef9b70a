"""Importance weights of an estimate of the partition function, and its error."""

import jax
import jax.numpy as jnp

from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.shapes import check_shapes


def complement_weights(
  exact_share_N: jax.Array, kept_N: jax.Array, num_draws: int
) -> tuple[jax.Array, jax.Array]:
  """Importance weights conditional on how many draws fell outside an exact set.

  Of m draws with replacement from q, k lie outside the exact set A, which has
  probability a under q. These k draws are independent draws from q conditional on not
  being in A, so

    Z~ = (1 - f) Z_A / a + f (Z_A + R),   R = (1 - a) / k  sum over them of exp(o) / q

  with f = 1 / (1 - a^m) where k > 0, and f = 0 where k = 0. Both terms estimate Z:
  Z_A / a would be exact if q were proportional to exp(o), and Z_A + R has no variance
  from k itself. As E f = 1, E Z~ = Z for every q, and the gradient of Z~ is unbiased
  too; if q is the softmax, Z~ = Z in every draw. Compared with the plain weights
  1 / (m q) the variance is smaller where R has a relative variance below about 1.

  Args:
    exact_share_N: f32[N], a: the probability that a draw is in the exact set. It may
      have any shape, such as one entry for each example and block of classes.
    kept_N: [N], k: number of draws outside the exact set.
    num_draws: m. With m = 1, Z~ is plain importance sampling, and the exact set has no
      weight where k = 1.

  Returns:
    log_exact_N: f32[N], log factor of exp(o) for classes in A; finite.
    log_drawn_N: f32[N], log factor of exp(o) / (m q) for draws outside A; finite.
    Both are constants, as a draw is: no gradient flows through them.

  Source: Blanc and Rendle 2018, equation 2, where the negatives are m draws from q
    without the positive. Deviation: here the negatives are those of m draws that missed
    the exact set, and f corrects for the case that none did.
  Cost: O(N).

  >>> log_exact_N, log_drawn_N = complement_weights(jnp.array([0.5]), jnp.array([2]), 2)
  >>> [f"{jnp.exp(x[0]):.4f}" for x in (log_exact_N, log_drawn_N)]  # 2/3, (1/2) / (3/4)
  ['0.6667', '0.6667']
  """
  exact_share_N = jax.lax.stop_gradient(exact_share_N)
  rest_N = jnp.clip(1 - exact_share_N, 1e-30, 1.0)
  # 1 - a^n, also exact where a is near 1.
  miss = lambda n: -jnp.expm1(n * jnp.log1p(-rest_N)) if n else jnp.zeros_like(rest_N)
  exact_N = miss(num_draws - 1) / miss(num_draws)
  num_kept_N = jnp.maximum(kept_N, 1).astype(rest_N.dtype)
  drawn_N = num_draws * rest_N / (miss(num_draws) * num_kept_N)
  none_N = kept_N == 0
  exact_N = jnp.where(none_N, 1 / jnp.maximum(exact_share_N, 1e-30), exact_N)
  log = lambda x_N: jnp.log(jnp.maximum(x_N, 1e-30))
  return log(exact_N), jnp.where(none_N, 0, log(drawn_N))


def log_normalizer_ratio(
  log_p_NV: jax.Array,
  ids_NP: jax.Array,
  true_NP: jax.Array,
  ids_NM: jax.Array,
  log_expected_NM: jax.Array,
  mask_NM: jax.Array,
  log_exact_NP: jax.Array | None = None,
) -> jax.Array:
  """log(Z~ / Z), f32[N], of the estimate in `sampled_softmax_loss`.

  It is computed from exact log-probabilities.

  Args:
    log_p_NV: f32[N, V], log-probabilities of all classes.
    ids_NP: i32[N, P], the true classes; true_NP: bool[N, P], which of them count.
    ids_NM: i32[N, M], the candidates; log_expected_NM and mask_NM are those of
      `sampled_softmax_loss`.
    log_exact_NP: that of `sampled_softmax_loss`.

  >>> log_p_NV = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
  >>> true, drawn, yes = jnp.array([[0]]), jnp.array([[2]]), jnp.array([[True]])
  >>> log_half = jnp.log(jnp.full((1, 1), 0.5))
  >>> f"{log_normalizer_ratio(log_p_NV, true, yes, drawn, log_half, yes)[0]:.4f}"
  '0.0000'
  """
  check_shapes(log_p_NV=log_p_NV, ids_NP=ids_NP, ids_NM=ids_NM, mask_NM=mask_NM)
  at = lambda ids: jnp.take_along_axis(log_p_NV, ids, axis=1, mode="clip")
  if log_exact_NP is None:
    log_exact_NP = jnp.zeros((len(ids_NP), 1))
  exact_NP = jnp.where(true_NP, at(ids_NP) + log_exact_NP, LOG_ZERO)
  drawn_NM = jnp.where(mask_NM, at(ids_NM) - log_expected_NM, LOG_ZERO)
  return shards.logsumexp(jnp.concatenate([exact_NP, drawn_NM], axis=1), axis=1)
