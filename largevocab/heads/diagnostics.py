"""How well a sampler estimates the partition function of a model, from all logits."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import logsumexp
from jax.typing import ArrayLike

from largevocab.heads.base import read_training_batch
from largevocab.heads.candidates import true_mask
from largevocab.labels import Targets, have_weight
from largevocab.losses.importance_weights import log_normalizer_ratio
from largevocab.ops import shards
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.softmax.chunks import fold_rows, product
from largevocab.ops.together import together
from largevocab.samplers.base import log_expected_in_range

if TYPE_CHECKING:
  from largevocab.heads.sampled import Sampled
  from largevocab.heads.sampled_state import SampledState

_MONITORED = 32  # examples, and draws for each example
_CLASSES = 16_384  # computed at a time


def quality(
  head: "Sampled", state: "SampledState", h_ND: jax.Array, y: Targets, key: jax.Array
) -> dict[str, jax.Array]:
  """Quality of a head's sampler for its model, in means over 32 examples of the batch.

  The means are weighted by the absolute values of the examples' weights, and NaN if no
  example has a weight. Returns a dict with these keys:

  - 'relvar': Var(Z~) / Z^2 of a sampled softmax's estimate of Z, with this head's exact
    sets and negatives.
  - 'log_z_bias': E log(Z~ / Z) in nats, the bias of its loss.
  - 'chi2': sum (p - q)^2 / q of the softmax p against the proposal q of the draws
    alone; inf if some class cannot be drawn.

  The first two are means over 32 draws, with about 10 % error unless few examples
  dominate; chi2 is exact. For samplers that draw from the batch, chi2 is that of their
  distribution for these examples alone.

  Cost: 32 draws of a step, and 32 logits a class: at V = 1 M a hundred `pps` steps. A
  sampler whose distribution depends on all logits computes them again for every 16,384
  classes.
  """
  h_ND, y = read_training_batch(h_ND, y, len(state.table.w_VD), state.activations)
  at_N = _evenly(have_weight(y), min(len(h_ND), _MONITORED))
  x_ND = head.features(h_ND)
  log_p_NV = _log_p(head, state, x_ND[at_N])
  log_ratio_RN = _log_ratios(head, state, x_ND, y, key, at_N, log_p_NV, _MONITORED)
  x_ND, y = jax.tree.map(lambda a: a[at_N], (x_ND, y))
  # In turn: devices of one CPU may mix up sums that a loop and others ask for at once.
  x_ND, y, log_p_NV, log_ratio_RN = together((x_ND, y, log_p_NV, log_ratio_RN))
  chi2_N = _chi2(head, state, x_ND, y, log_p_NV)
  weight_N = jnp.abs(jnp.sum(y.w_NP, axis=1))
  total = jnp.sum(weight_N)
  mean = lambda v_N: jnp.sum(jnp.where(weight_N > 0, weight_N * v_N, 0)) / total
  return {
    "relvar": mean(jnp.mean(jnp.square(jnp.expm1(log_ratio_RN)), axis=0)),
    "log_z_bias": mean(jnp.mean(log_ratio_RN, axis=0)),
    "chi2": mean(chi2_N),
  }


def _evenly(is_live_N: jax.Array, num: int) -> jax.Array:
  """The places of `num` examples, evenly among those with weight; i32[num].

  If fewer have a weight, all of them, and then others.

  >>> _evenly(jnp.array([False, True, True, False, True]), 2).tolist()
  [1, 4]
  """
  live_first_N = jnp.argsort(~is_live_N, stable=True)
  num_live, each = jnp.sum(is_live_N), np.arange(num)
  apart = each * (num_live - 1) // max(num - 1, 1)
  return live_first_N[jnp.where(num_live > num, apart, each)]


def _chi2(
  head: "Sampled",
  state: "SampledState",
  x_ND: jax.Array,
  y: Targets,
  log_p_NV: jax.Array,
) -> jax.Array:
  """sum (p - q)^2 / q = sum p^2 / q - 1 over all classes, f32[N].

  q is computed for a chunk of classes at a time, as samplers may look up much for each.
  """
  w_VD = state.table.w_VD
  V = len(w_VD)

  def add(so_far, chunk):
    is_class_C = shards.used(chunk.ids_C, V, chunk.is_new_C)
    log_p_NC = lax.dynamic_slice_in_dim(log_p_NV, chunk.start, len(chunk.ids_C), 1)
    args = head.sampler, state.stats, w_VD, x_ND, y, chunk.start, len(chunk.ids_C)
    log_expected = log_expected_in_range(*args)
    log_expected_NC = jnp.broadcast_to(log_expected, log_p_NC.shape)
    log_expected_NC = log_expected_NC.astype(log_p_NC.dtype)
    more = (
      logsumexp(jnp.where(is_class_C, x_NC, -jnp.inf), axis=1)
      for x_NC in (log_expected_NC, 2 * log_p_NC - log_expected_NC)
    )
    return jax.tree.map(jnp.logaddexp, so_far, tuple(more))

  none_N = jnp.full(len(x_ND), -jnp.inf, log_p_NV.dtype)
  sums = fold_rows(add, (none_N, none_N), V, _CLASSES)
  log_size_N, log_sum_N = (shards.logsumexp(x_N[:, None]) for x_N in sums)
  # If no class can be drawn, the size is 0 and chi2 is inf as well.
  return jnp.exp(log_sum_N + jnp.maximum(log_size_N, LOG_ZERO)) - 1


def log_normalizer_ratios(
  head: "Sampled",
  state: "SampledState",
  h_ND: jax.Array,
  y: Targets,
  key: jax.Array,
  at_N: ArrayLike,
  draws: int,
) -> jax.Array:
  """log(Z~ / Z) of examples `at_N` of a batch, for several draws: f32[draws, ...].

  Each draw is for the whole batch, since exact sets may depend on all of it.

  Cost: all logits of these examples, and `draws` times the draws of a step.
  """
  h_ND, y = read_training_batch(h_ND, y, len(state.table.w_VD), state.activations)
  x_ND = head.features(h_ND)
  log_p_NV = _log_p(head, state, x_ND[at_N])
  return _log_ratios(head, state, x_ND, y, key, at_N, log_p_NV, draws)


def _log_ratios(
  head: "Sampled",
  state: "SampledState",
  x_ND: jax.Array,
  y: Targets,
  key: jax.Array,
  at_N: ArrayLike,
  log_p_NV: jax.Array,
  draws: int,
) -> jax.Array:
  """log(Z~ / Z), from the log-probabilities of all classes of examples `at_N`."""
  true_NP = true_mask(y, len(state.table.w_VD))

  def ratio(key):
    others = head.candidates(state, x_ND, y, key)
    log_exact_NP, log_weight = head.log_weights(state, x_ND, y, others)
    of_examples = (
      y.ids_NP,
      true_NP,
      others.ids,
      -log_weight,
      others.mask,
      log_exact_NP,
    )
    return log_normalizer_ratio(log_p_NV, *(a[at_N] for a in of_examples))

  return lax.map(ratio, jax.random.split(key, draws))


def _log_p(head: "Sampled", state: "SampledState", x_ND: jax.Array) -> jax.Array:
  """Log-probabilities of all classes, f32[N, V]."""
  o_NV = product("nd,vd->nv", x_ND, state.table.w_VD, head.dtype)
  s_NV, change = head.score(o_NV), head.change(state)
  if change is not None:
    s_NV = change(s_NV, jnp.arange(len(state.table.w_VD)))
  is_class_V = shards.used(jnp.arange(s_NV.shape[1]), s_NV.shape[1], jnp.bool(True))
  s_NV = jnp.where(is_class_V, s_NV, -jnp.inf)
  return shards.log_softmax(s_NV)
