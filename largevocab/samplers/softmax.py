"""Draws from the model's own softmax: the ideal proposal, at the cost of the loss."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.labels import Counts, Targets
from largevocab.ops.draws import inverse_cdf
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import logits
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers.base import Draw, NoUpkeep, Size, own_ids


@settings
class Softmax(NoUpkeep):
  """q(c | h) = softmax(h @ w)_c, m independent draws per example.

  This is the reference for other samplers. With it, a sampled softmax of dtype
  'float32' has the loss of the full softmax in every draw, and its gradient in
  expectation, at any m. It keeps no statistics, so it is never stale.

  Attributes:
    absolute: q(c | h) = softmax(|h @ w|)_c, for models that take |h @ w| as logits.

  Source: Bengio and Senecal 2008, section III; Blanc and Rendle 2018, theorem 2.1.
  Deviation: classes whose softmax underflows float32 are never drawn (log -inf).
  Cost: O(N V D) time and O(N (V + m)) memory a draw: as expensive as the exact loss.
  """

  absolute: bool = False

  independent: ClassVar[bool] = True

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> Size:
    return Size(m)

  def sample(
    self,
    stats: Size,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    ids_NM, log_q_NM = inverse_cdf.draw(key, self._weights(w_VD, h_ND), stats.m)
    return Draw(ids_NM, log_q_NM + math.log(stats.m), jnp.ones(ids_NM.shape, bool))

  def log_expected(
    self,
    stats: Size,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    ids_NM = own_ids(ids, len(h_ND))
    return inverse_cdf.log_law(self._weights(w_VD, h_ND), ids_NM) + math.log(stats.m)

  def _weights(self, w_VD: jax.Array, h_ND: jax.Array) -> jax.Array:
    check_shapes(w_VD=w_VD, h_ND=h_ND)
    # float32 on every device, like the logits of a head of dtype 'float32'.
    logits_NV = jax.lax.stop_gradient(logits(h_ND, w_VD, jnp.float32))
    score_NV = score_of(self.absolute)(logits_NV)
    return jnp.exp(score_NV - score_NV.max(axis=-1, keepdims=True))
