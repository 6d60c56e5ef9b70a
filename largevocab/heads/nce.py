"""Noise-contrastive estimation (NCE) with any sampler as noise distribution."""

import math
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.fields import Between, OneOf, settings
from largevocab.heads.discriminative import Discriminative
from largevocab.heads.sampling import PyTree
from largevocab.losses.logistic import nce_loss
from largevocab.rows import RowGrads, Table, added, row_grads, sq_norm

NORMALIZERS = ("one", "global", "context")


class NCEState(NamedTuple):
  """`SampledState` with learned log-partition functions.

  Attributes:
    table: the class rows.
    stats: statistics of the sampler.
    log_z: rows of width 1, one for all examples or one per context; None: z = 1.
  """

  table: Table
  stats: PyTree
  log_z: Table | None


class NCEGrads(NamedTuple):
  """Gradients of class rows and of log z."""

  rows: RowGrads
  log_z: RowGrads

  __add__ = added  # pyrefly: ignore


@settings
class NCE(Discriminative):
  """Noise-contrastive estimation: discriminates labels from noise, see
  `losses.nce_loss`.

  The sampler draws the noise; accidental hits stay in the loss. Scores are
  log-probabilities up to log z:

  Attributes:
    normalizer: 'one': z = 1, so the model must be self-normalised; 'global': one log z
      is learned; 'context': one per context (`Targets.context_N`: the current token of
      a language model, the number of an example in a fixed set). log z starts at log V,
      so that the initial model is normalised; with z = 1 the bias, if there is one,
      starts at -log V instead.
    num_contexts: number of z for 'context'; 0: the number of classes. Further contexts
      share the last z.

  Source: Barber & Botev 2016, section 3.2, equations 30-31; Mnih and Teh 2012 (z per
    context, and z = 1).
  """

  normalizer: Annotated[str, OneOf(*NORMALIZERS)] = "one"
  num_contexts: Annotated[int, Between(0, 2**28)] = 0

  keep_hits: ClassVar[bool] = True

  def init_table(self, key, num_classes, dim):
    table = super().init_table(key, num_classes, dim)
    if self.normalizer != "one" or self.absolute or not self.bias:
      return table
    return table._replace(w_VD=table.w_VD.at[:, dim].set(-math.log(num_classes)))

  def init_state(self, table, counts):
    table, stats = super().init_state(table, counts)
    rows = {"one": 0, "global": 1, "context": self.num_contexts or counts.num_classes}
    num = rows[self.normalizer]
    log_z_VD = jnp.full((num, 1), math.log(counts.num_classes), table.w_VD.dtype)
    return NCEState(table, stats, self.optimizer.init(log_z_VD) if num else None)

  def log_norm(self, state, y):
    if state.log_z is None:
      return jnp.zeros(1)
    return state.log_z.w_VD[self._contexts(state, y), 0]

  def loss(self, o_NP, o_NM, scored):
    return nce_loss(
      o_NP,
      scored.w_NP,
      scored.log_expected_true(),
      o_NM,
      scored.candidates.log_expected,
      scored.candidates.mask,
    )

  def backward(self, state, h_ND, y, key):
    if state.log_z is None:
      return super().backward(state, h_ND, y, key)
    scored = self.scored(state, h_ND, y, key)

    def mean_loss(o, log_z_N):
      o_NP, o_NM = self.scores(o, y)
      return self.loss(o_NP - log_z_N[:, None], o_NM - log_z_N[:, None], scored)

    loss, (d, d_N) = jax.value_and_grad(mean_loss, (0, 1))(
      scored.o, self.log_norm(state, y)
    )
    step = scored.step(loss, d)
    at_N = self._contexts(state, y)
    # Padded, since optimisers may change a row even if its gradient is zero.
    at_N = jnp.where(jnp.any(jnp.abs(y.w_NP) > 0, axis=1), at_N, len(state.log_z.w_VD))
    log_z = row_grads(at_N, d_N[:, None], len(state.log_z.w_VD))
    return step._replace(
      grads=NCEGrads(step.grads, log_z),
      sq_norm=step.sq_norm + sq_norm(log_z.rows_RD),
    )

  def update(self, state, grads, lr, scale):
    if state.log_z is None:
      return super().update(state, grads, lr, scale)
    state = super().update(state, grads.rows, lr, scale)
    log_z = self.optimizer.update(state.log_z, grads.log_z, lr, scale)
    return state._replace(log_z=log_z)

  def _contexts(self, state, y):
    return jnp.minimum(y.context_N, len(state.log_z.w_VD) - 1)
