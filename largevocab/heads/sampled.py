"""Sampled softmax: one estimator over any sampler."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.heads.base import HeadStep
from largevocab.heads.softmax import SoftmaxHead
from largevocab.labels import Targets, as_counts
from largevocab.ops.pair_logits import pair_logits
from largevocab.ops.sampled_loss import complement_loss, is_first, is_member
from largevocab.ops.shapes import check_shapes
from largevocab.rows import RowGrads, Table, sq_norm
from largevocab.samplers.base import Draw, Sampler
from largevocab.samplers.pps import PPS

PyTree = Any


class SampledState(NamedTuple):
  """The class rows, and what the sampler knows of them."""

  table: Table
  stats: PyTree


class Candidates(NamedTuple):
  """Classes besides the true ones that enter the normaliser.

  Attributes:
    own_NS: i32, each example's own.
    shared_T: i32, those of the whole batch.
    log_expected: f32[N, S + T], own ones first.
    mask: bool[N, S + T], which count for which example.
  """

  own_NS: jax.Array
  shared_T: jax.Array
  log_expected: jax.Array
  mask: jax.Array


@dataclass(frozen=True)
class Sampled(SoftmaxHead):
  """Softmax whose normaliser is estimated from the true classes and a sample.

  loss = log Z~ - o_y, with Z~ exact on the true classes (and on what the sampler asks
  to be exact) and weighted by 1 / expected occurrences on the drawn ones; see
  `ops/sampled_loss.py`. A drawn class that is summed exactly is masked. A step changes
  the rows of the true and the drawn classes only.

  Attributes:
    sampler: the law of the negatives.
    num_samples: M, negatives per draw: per batch if the sampler shares them.
    correct_positive: subtract log expected from the true classes' logits too, as
      TensorFlow and Jean et al. 2015 do. For comparison: this is biased. A class that
      is never drawn keeps its logit.
    refresh_every: steps between rebuilds of the sampler's statistics, after those at
      steps 1, 2, 4, ...; 0: never. They take anew what updates leave alone, and bound
      how far rounding takes the rest.

  Source: paper 001 section 3 (complementary sum), paper 000 equations 2-3 (corrected
    logits; deviation: the positive is exact, not corrected, unless asked for).
  Cost: O((N P + M) D) with shared negatives, O(N (P + M) D) else; independent of V.
    Where they are faster, for many negatives per example, 3 products of N V D instead:
    `ops/pair_logits.py`.
  """

  sampler: Sampler = field(default_factory=PPS)
  num_samples: int = 512
  correct_positive: bool = False
  refresh_every: int = 500

  def __post_init__(self):
    super().__post_init__()
    if self.num_samples < 1 or self.refresh_every < 0:
      raise UserError(
        f"head.num_samples is {self.num_samples} and head.refresh_every "
        f"{self.refresh_every}; the one must be at least 1, the other 0"
      )
    if getattr(self.sampler, "absolute", self.absolute) != self.absolute:
      what, which = ("o", "|o|") if self.absolute else ("|o|", "o")
      raise UserError(
        f"head.absolute is {self.absolute} and head.sampler.absolute is not: a sampler "
        f"that follows {what} hardly draws what a model with {which} as logits finds "
        "likely, but the least likely classes; set head.absolute like the sampler's, "
        "or the sampler's like the head's to have it all the same"
      )

  def init(self, key, counts, dim):
    counts = as_counts(counts)
    table = self.init_table(key, counts.num_classes, dim)
    stats = self.sampler.init(counts, table.w_VD, self.num_samples)
    return SampledState(table, stats)

  def backward(self, state, h_ND, y, key):
    check_shapes(h_ND=h_ND, **y._asdict())
    w_VD, num = state.table.w_VD, self.num_samples
    x_ND = self.features(h_ND)
    draw = self.sampler.sample(state.stats, w_VD, key, x_ND, y, num)
    draw = jax.lax.stop_gradient(draw)
    candidates = _candidates(draw, y, w_VD.shape[0])
    true_NP = (y.ids_NP < w_VD.shape[0]) & is_first(y.ids_NP)
    if self.correct_positive:
      shift_NP = self.sampler.log_expected(state.stats, w_VD, x_ND, y, y.ids_NP, num)
      shift_NP = jnp.where(jnp.isfinite(shift_NP), shift_NP, 0)
      shift_NP = jax.lax.stop_gradient(shift_NP)
    else:
      shift_NP = jnp.zeros_like(y.w_NP)
    ids_NS = jnp.concatenate([y.ids_NP, candidates.own_NS], axis=1)
    P = y.ids_NP.shape[1]
    o, pull_back = pair_logits(x_ND, w_VD, ids_NS, candidates.shared_T, self.dtype)

    def mean_loss(o):
      o = jnp.abs(o) if self.absolute else o
      return complement_loss(
        o[:, :P] - shift_NP,
        y.w_NP / self.total_weight(y),
        true_NP,
        o[:, P:],
        candidates.log_expected,
        candidates.mask,
      )

    loss, d = jax.value_and_grad(mean_loss)(o)
    # Rows that no weighted example counts stay untouched: an optimiser may move a row
    # also for a gradient of zero.
    counts = jnp.concatenate([y.ids_NP < w_VD.shape[0], candidates.mask], axis=1)
    live = counts & (jnp.sum(y.w_NP, axis=1, keepdims=True) > 0)
    dx_ND, ids_R, rows_RD = pull_back(d, live)
    dh_ND = dx_ND[:, : h_ND.shape[1]]
    return HeadStep(loss, dh_ND, RowGrads(ids_R, rows_RD), sq_norm(rows_RD), {})

  def update(self, state, grads: RowGrads, lr, scale):
    old_RD = state.table.w_VD.at[grads.ids_R].get(mode="clip")
    table = self.optimizer.update(state.table, grads, lr, scale)
    new_RD = table.w_VD.at[grads.ids_R].get(mode="clip")
    stats = self.sampler.update(state.stats, table.w_VD, grads.ids_R, old_RD, new_RD)
    return SampledState(table, stats)

  def refresh(self, state, key):
    stats = self.sampler.refresh(state.stats, state.table.w_VD, key)
    return state._replace(stats=stats)


def _candidates(draw: Draw, y: Targets, num_classes: int) -> Candidates:
  """The draw and the exact set, each without what is summed exactly already."""
  N = len(y.ids_NP)
  ids_NM = jnp.atleast_2d(draw.ids)
  keep_NM = jnp.atleast_2d(draw.mask) & ~is_member(ids_NM, y.ids_NP)
  groups = []
  if draw.exact_ids is not None:
    exact_NS = jnp.atleast_2d(draw.exact_ids)
    keep_NM &= ~is_member(ids_NM, exact_NS)
    keep_NS = (exact_NS < num_classes) & ~is_member(exact_NS, y.ids_NP)
    groups.append((draw.exact_ids, jnp.zeros(draw.exact_ids.shape), keep_NS))
  groups.append((draw.ids, draw.log_expected, keep_NM))
  groups.sort(key=lambda group: -group[0].ndim)
  ids, log_expected, mask = zip(*groups, strict=True)
  spread = lambda x: jnp.broadcast_to(x, (N, x.shape[-1]))
  own = [i for i in ids if i.ndim == 2]
  shared = [i for i in ids if i.ndim == 1]
  return Candidates(
    jnp.concatenate([jnp.zeros((N, 0), jnp.int32), *own], axis=1),
    jnp.concatenate([jnp.zeros(0, jnp.int32), *shared]),
    jnp.concatenate([spread(x) for x in log_expected], axis=1),
    jnp.concatenate(mask, axis=1),
  )
