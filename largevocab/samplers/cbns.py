"""Negatives from the batch and from those before it, whose classes are remembered.

Here K is the number of remembered batches, and T the most classes taken of one.
"""

from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.fields import Between, settings
from largevocab.labels import Counts, Targets, is_class
from largevocab.ops.accidental_hits import is_first
from largevocab.samplers.base import Draw, Size
from largevocab.samplers.in_batch import InBatch, InBatchStats

_SEED = 0x61C88647  # of which classes are remembered; unlikely as that of a run


class CBNSStats(NamedTuple):
  """Statistics of `CBNS`.

  Attributes:
    size: number of draws.
    now: of the batch's own classes.
    memory_KT: i32[K, T], the remembered classes of a batch each, padded with V; the
      oldest is overwritten.
    share_K: f32[K], the share of a batch's classes that is remembered; 0: of none yet.
  """

  size: Size
  now: InBatchStats
  memory_KT: jax.Array
  share_K: jax.Array


@settings
class CBNS:
  """The true classes of the batch and of the K batches before it, each once.

  With p(c) the probability that a batch has class c, s_0 the share of the batch's
  classes that are taken, and s_k those of the remembered batches,

    expected(c) = 1 - product over k = 0 ... K of (1 - p(c) s_k),

  which is right for independent batches. Shares are below 1 for batches of more than
  T = m / (K + 1) classes, of which T are chosen at random. At the start less is
  remembered, with shares of 0. p(c) is the estimate of `InBatch`, and the law is its
  estimate too: of the labels, over the stream, and not of a draw for given labels. A
  gap that lies in remembered batches is part of the estimate that weighs them, so that
  weights are right up to a relative error of the order of `rate`, besides that of
  `InBatch` for an example's own label.

  The rows of remembered classes are constants (`Draw.constant`): they are not updated,
  and the activations are pushed away from them. A class is thus pushed down only in
  steps whose batch has it. So `update` may take the rows that changed for the batch's
  classes. Those in exact sets of the head change too, and are remembered as well.

  Attributes:
    batches: K; at most m - 1 are remembered.
    rate, smoothing: those of `InBatch`.

  Source: Wang et al. 2021, and Yi et al. 2019 for p(c). Deviations: there
    the memory has the encodings of items as of their batch; here rows of classes are in
    a table, so that their ids suffice and the present rows are used, and nothing needs
    to warm up; repeated classes count once; the estimate of p(c).
  Cost: a draw O(m log m + N P log(N P)), `update` O(R log R); independent of V. 8 bytes
    of state a class and 4 m.
  """

  distinct: ClassVar[bool] = True
  counts_rows: ClassVar[bool] = True
  of_batches: ClassVar[bool] = True

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
    # One batch after the other: [K, ids] may be large.
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
    # A key for each class: what else is on a device changes nothing.
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

  def refresh(self, stats: CBNSStats, w_VD: jax.Array, key: jax.Array) -> CBNSStats:
    return stats
