"""Negatives from the batch and from earlier batches, whose classes are remembered.

The letter K stands for the number of remembered batches, and T for the maximum number
of classes taken from one batch.
"""

from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.fields import Between, settings
from largevocab.labels import Counts, Targets, is_class
from largevocab.ops.accidental_hits import is_first
from largevocab.samplers.base import Draw, NoUpkeep, Size
from largevocab.samplers.in_batch import InBatch, InBatchStats

_SEED = 0x61C88647  # for the choice of classes; unlikely as the seed of a training run


class CBNSStats(NamedTuple):
  """Statistics of `CBNS`.

  Attributes:
    size: number of draws.
    now: statistics for the batch's own classes.
    memory_KT: i32[K, T], the remembered classes of each batch, padded with V; the
      oldest batch is overwritten.
    share_K: f32[K], the share of each batch's classes that is remembered; 0: none yet.
  """

  size: Size
  now: InBatchStats
  memory_KT: jax.Array
  share_K: jax.Array


@settings
class CBNS:
  """The true classes of the batch and of the K batches before it, each once.

  With p(c) the probability that a batch has class c, s_0 the share of the batch's
  classes that are taken, and s_k the shares of the remembered batches,

    expected(c) = 1 - product over k = 0 ... K of (1 - p(c) s_k),

  which is right for independent batches. A share is below 1 if a batch has more than
  T = m / (K + 1) classes, of which T are chosen at random. At the start less is
  remembered, with shares of 0. p(c) is the estimate of `InBatch`, so the distribution
  is an estimate too. It is that of the labels over the stream, not of a draw for given
  labels. If a gap lies in remembered batches, it is part of the estimate that weighs
  these batches. The weights are therefore right up to a relative error of the order of
  `rate`, besides the error of `InBatch` for an example's own label.

  The rows of remembered classes are constants (`Draw.constant`): they are not updated,
  and the activations are pushed away from them. A class is thus pushed down only in
  steps whose batch has it. This is why `update` may take the changed rows to be the
  classes of the batch. Rows in exact sets of the head change too, and are remembered as
  well.

  Attributes:
    batches: K; at most m - 1 are remembered.
    rate, smoothing: those of `InBatch`.

  Source: Wang et al. 2021, and Yi et al. 2019 for p(c). Deviations: in the paper, the
    memory has the encodings of items as of their batch. Here rows of classes are in a
    table, so their ids suffice, the present rows are used, and nothing needs to warm
    up. Repeated classes count once, and p(c) is estimated differently.
  Cost: a draw O(m log m + N P log(N P)), `update` O(R log R); independent of V. 8 bytes
    of state for each class, and 4 m.
  """

  distinct: ClassVar[bool] = True
  counts_rows: ClassVar[bool] = True
  of_batches: ClassVar[bool] = True
  rebuilds: ClassVar[bool] = False

  batches: Annotated[int, Between(1, 2**16)] = 7
  rate: Annotated[float, Between(0, 1, excluding=(0,))] = 0.01
  smoothing: Annotated[float, Between(0, 10**9, excluding=(0,))] = 1.0

  def draws_for(self, labels: int) -> int:
    return labels * (self.batches + 1)

  @property
  def in_batch(self) -> InBatch:
    return InBatch(self.rate, self.smoothing)

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> CBNSStats:
    K = min(self.batches, m - 1)
    T = m // (K + 1)
    now = self.in_batch.init(counts, w_VD, T)
    memory_KT = jnp.full((K, T), len(w_VD), jnp.int32)
    return CBNSStats(Size(m), now, memory_KT, jnp.zeros(K))

  def sample(
    self,
    stats: CBNSStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    V, m = len(w_VD), stats.size.m
    now = self.in_batch.sample(stats.now, w_VD, key, h_ND, y)
    now_T = jnp.where(now.mask, now.ids, V)
    ids_M = jnp.concatenate([now_T, stats.memory_KT.ravel()])
    ids_M = jnp.pad(ids_M, (0, m - len(ids_M)), constant_values=V)
    mask_M = is_first(ids_M[None])[0] & (ids_M < V)
    ids_M = jnp.minimum(ids_M, V - 1)
    log_expected_M = self.log_expected(stats, w_VD, h_ND, y, ids_M)
    return Draw(
      ids_M, log_expected_M, mask_M, constant=jnp.arange(m) >= stats.now.size.m
    )

  def log_expected(
    self,
    stats: CBNSStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    p_now = jnp.exp(self.in_batch.log_expected(stats.now, w_VD, h_ND, y, ids))
    p = 1 / stats.now.gap_V.at[ids].get(mode="clip")
    log_missed = jnp.log1p(-p_now)
    # One batch after another, since [K, ids] may be large.
    add = lambda log, share: (log + jnp.log1p(-p * share), None)
    log_missed, _ = jax.lax.scan(add, log_missed, stats.share_K)
    log_expected = jnp.log(-jnp.expm1(log_missed))
    return jnp.where(is_class(ids, len(w_VD)), log_expected, -jnp.inf)

  def update(
    self,
    stats: CBNSStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> CBNSStats:
    V, (K, T) = len(w_VD), stats.memory_KT.shape
    now = self.in_batch.update(stats.now, w_VD, ids_R, old_RD, new_RD)
    stats = stats._replace(now=now)
    if not K:
      return stats
    is_class_R = is_class(ids_R, V)
    key = jax.random.fold_in(jax.random.key(_SEED), now.step)
    # One key for each class, so that other classes on the device change nothing.
    turn_R = jax.vmap(lambda c: jax.random.uniform(jax.random.fold_in(key, c)))(ids_R)
    turn_R = jnp.where(is_class_R, turn_R, jnp.inf)
    ids_T = jnp.where(is_class_R, ids_R, V)[jnp.argsort(turn_R)[:T]]
    ids_T = jnp.pad(ids_T, (0, T - len(ids_T)), constant_values=V)
    share = jnp.minimum(1, T / jnp.maximum(jnp.sum(is_class_R), 1))
    at = now.step % K
    return stats._replace(
      memory_KT=stats.memory_KT.at[at].set(ids_T.astype(jnp.int32)),
      share_K=stats.share_K.at[at].set(share.astype(jnp.float32)),
    )

  refresh = NoUpkeep.refresh
