"""Base of samplers that put examples and classes into common buckets."""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.labels import Counts, Targets, have_weight
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.base import (
  Draw,
  NoUpkeep,
  PyTree,
  Size,
  log_certain_at,
  own_ids,
)

_SEED = 0x2B5C9E41  # for the projections; unlikely as the seed of a training run


@settings
class Buckets(abc.ABC):
  """Chooses the classes in an example's buckets as its candidates, without sampling.

  The buckets are found by random projections, which are new after each `update`. Given
  the projections, nothing is left to chance: `log_expected` is 0 for the candidates,
  and -inf for all other classes. No proposal distribution of the candidates is known. A
  loss that treats them as a sample, as `SampledSoftmax` does with weights of 1,
  therefore has a log-partition function that is too small. `Head.monitor` measures by
  how much.

  `log_expected` depends on all examples of the batch, which compete for places.
  Examples without weight take no place.

  Statistics are the number of updates, i32[], and the number of draws.
  """

  of_batches: ClassVar[bool] = True
  is_choice: ClassVar[bool] = True
  rebuilds: ClassVar[bool] = False

  @abc.abstractmethod
  def choose(
    self,
    key: jax.Array,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    live_N: jax.Array,
    m: int,
  ) -> jax.Array:
    """The candidates of each example, i32[N, M], each at most once, padded with V.

    Args:
      key: key of the projections.
      w_VD: float[V, D], class rows.
      h_ND: f32[N, D], activations.
      y: the true classes.
      live_N: bool[N], examples with weight.
      m: number of draws.
    """

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> PyTree:
    return jnp.zeros((), jnp.int32), Size(m)

  def sample(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    ids_NM = self._chosen(stats, w_VD, h_ND, y)
    mask_NM = ids_NM < len(w_VD)
    return Draw(jnp.where(mask_NM, ids_NM, 0), jnp.zeros(ids_NM.shape), mask_NM)

  def log_expected(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    chosen_NM = self._chosen(stats, w_VD, h_ND, y)
    return log_certain_at(chosen_NM, own_ids(ids, len(h_ND)), len(w_VD))

  def update(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> PyTree:
    updates, size = stats
    return updates + 1, size

  refresh = NoUpkeep.refresh

  def _chosen(
    self, stats: PyTree, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    check_shapes(w_VD=w_VD, h_ND=h_ND, w_NP=y.w_NP)
    updates, size = stats
    key = jax.random.fold_in(jax.random.key(_SEED), updates)
    w_VD, h_ND = jax.lax.stop_gradient((w_VD, h_ND))
    return self.choose(key, w_VD, h_ND, y, have_weight(y), size.m)
