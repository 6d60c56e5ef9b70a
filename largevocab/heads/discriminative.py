"""Base of discriminative heads (NCE, negative sampling, BlackOut, ranking), whose
scores are not logits of a normalised model."""

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.heads.base import PyTree, read_batch
from largevocab.heads.sampling import SamplingHead
from largevocab.labels import Targets
from largevocab.ops.softmax.log_partition import softmax_nll_and_log_z


@settings
class Discriminative(SamplingHead):
  """Base of heads that do not maximise an estimate of the likelihood.

  `evaluate` gives the exact 'nll' of the softmax of the scores; 'log_z', its
  log-partition function; and 'self_normalised_nll', the loss if exp(score) is taken as
  the probability, without normalising. The last is a loss of probabilities, and
  comparable with the first, only if log_z is near 0 everywhere.
  """

  def monitor(self, state, h_ND, y, key):
    """Diagnostics of a sampled softmax with the same draws, without its bias, as this
    head does not estimate log Z."""
    metrics = super().monitor(state, h_ND, y, key)
    del metrics["log_z_bias"]
    return metrics

  def log_norm(self, state: PyTree, y: Targets) -> jax.Array:
    """The head's own log z, subtracted from the scores: f32[N] or f32[1]."""
    return jnp.zeros(1)

  def evaluate(self, state, h_ND, y):
    h_ND, y = read_batch(h_ND, y, len(state.table.w_VD))
    how = self.logit_kind | {"change": self.change(state)}
    nll_N, log_z_N = softmax_nll_and_log_z(
      self.features(h_ND), state.table.w_VD, y.ids_NP, y.w_NP, **how
    )
    log_z_N = log_z_N - self.log_norm(state, y)
    return {
      "nll": nll_N,
      "self_normalised_nll": nll_N - log_z_N,
      "log_z": log_z_N,
    }
