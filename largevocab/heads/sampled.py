"""Sampled softmax: one estimator over any sampler."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.heads.base import HeadStep
from largevocab.heads.softmax import SoftmaxHead
from largevocab.labels import Targets, as_counts
from largevocab.ops.class_chunks import product
from largevocab.ops.sampled_loss import complement_loss, is_first, is_member
from largevocab.ops.shapes import check_shapes
from largevocab.rows import RowGrads, Table, row_grads, sq_norm
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
    ids: i32[S] for the whole batch or i32[N, S] per example.
    log_expected: f32, same shape.
    mask_NS: bool, which count for which example.
  """

  ids: jax.Array
  log_expected: jax.Array
  mask_NS: jax.Array


@dataclass(frozen=True)
class Sampled(SoftmaxHead):
  """Softmax whose normaliser is estimated from the true classes and a sample.

  loss = log Z~ - o_y, with Z~ exact on the true classes (and on what the sampler asks
  to be exact) and weighted by 1 / expected occurrences on the drawn ones; see
  `ops/sampled_loss.py`. A drawn class that is summed exactly is masked. A step reads
  and writes the rows of the true and the drawn classes only.

  Attributes:
    sampler: the law of the negatives.
    num_samples: M, negatives per draw: per batch if the sampler shares them.
    correct_positive: subtract log expected from the true classes' logits too, as
      TensorFlow and Jean et al. 2015 do. For comparison: this is biased. A class that
      is never drawn keeps its logit.
    refresh_every: steps between rebuilds of the sampler's statistics, which bound how
      far rounding takes them in between; 0: never.

  Source: paper 001 section 3 (complementary sum), paper 000 equations 2-3 (corrected
    logits; deviation: the positive is exact, not corrected, unless asked for).
  Cost: O((N P + M) D) with shared negatives, O(N (P + M) D) else; independent of V.
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
      raise UserError(
        f"head.absolute is {self.absolute} and head.sampler.absolute is not: a law of "
        "|o| mostly draws the least likely classes of a model with o as logits; set "
        "both alike (a sampler with absolute=False serves any model that says so)"
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
    groups = _candidates(draw, y, w_VD.shape[0])
    true_NP = (y.ids_NP < w_VD.shape[0]) & is_first(y.ids_NP)
    if self.correct_positive:
      shift_NP = self.sampler.log_expected(state.stats, w_VD, x_ND, y, y.ids_NP, num)
      shift_NP = jnp.where(jnp.isfinite(shift_NP), shift_NP, 0)
      shift_NP = jax.lax.stop_gradient(shift_NP)
    else:
      shift_NP = jnp.zeros_like(y.w_NP)
    log_expected = [_spread(g.log_expected, len(h_ND)) for g in groups]

    def mean_loss(x_ND, true_NPD, rows):
      o_NP = self._scores(x_ND, true_NPD) - shift_NP
      o_NS = [self._scores(x_ND, r) for r in rows]
      return complement_loss(
        o_NP,
        y.w_NP / self.total_weight(y),
        true_NP,
        jnp.concatenate(o_NS, axis=1),
        jnp.concatenate(log_expected, axis=1),
        jnp.concatenate([g.mask_NS for g in groups], axis=1),
      )

    # Rows are gathered out here: differentiating through the gather would make a
    # gradient of the size of the table.
    take = lambda ids: w_VD.at[ids].get(mode="clip")
    rows = [take(g.ids) for g in groups]
    loss, (dx_ND, d_true_NPD, d_rows) = jax.value_and_grad(mean_loss, (0, 1, 2))(
      x_ND, take(y.ids_NP), rows
    )
    # Rows that no weighted example counts stay untouched: an optimiser may move a row
    # also for a gradient of zero.
    live_N1 = jnp.sum(y.w_NP, axis=1, keepdims=True) > 0
    ids = [jnp.where(live_N1, y.ids_NP, w_VD.shape[0])]
    for group in groups:
      live = live_N1 & group.mask_NS
      live = live if group.ids.ndim == 2 else jnp.any(live, axis=0)
      ids.append(jnp.where(live, group.ids, w_VD.shape[0]))
    ids_R = jnp.concatenate([i.ravel() for i in ids])
    flat = lambda d: d.reshape(-1, w_VD.shape[1])
    rows_RD = jnp.concatenate([flat(d_true_NPD), *(flat(d) for d in d_rows)])
    grads = row_grads(ids_R, rows_RD, w_VD.shape[0])
    dh_ND = dx_ND[:, : h_ND.shape[1]]
    return HeadStep(loss, dh_ND, grads, sq_norm(grads.rows_RD), {})

  def _scores(self, x_ND, rows):
    """Logits (absolute ones if asked for) of shared [S, D] or own [N, S, D] rows."""
    spec = "nd,sd->ns" if rows.ndim == 2 else "nd,nsd->ns"
    o_NS = product(spec, x_ND, rows, self.dtype)
    return jnp.abs(o_NS) if self.absolute else o_NS

  def update(self, state, grads: RowGrads, lr, scale):
    old_RD = state.table.w_VD.at[grads.ids_R].get(mode="clip")
    table = self.optimizer.update(state.table, grads, lr, scale)
    new_RD = table.w_VD.at[grads.ids_R].get(mode="clip")
    stats = self.sampler.update(
      state.stats, table.w_VD, grads.ids_R, old_RD, new_RD
    )
    return SampledState(table, stats)

  def refresh(self, state, key):
    stats = self.sampler.refresh(state.stats, state.table.w_VD, key)
    return state._replace(stats=stats)


def _spread(x: jax.Array, num_examples: int) -> jax.Array:
  """A row for each example, if there is one for all."""
  return jnp.broadcast_to(x, (num_examples, x.shape[-1]))


def _candidates(draw: Draw, y: Targets, num_classes: int) -> list[Candidates]:
  """The draw and the exact set, each without what is summed exactly already."""
  spread = lambda x: _spread(x, len(y.ids_NP))
  ids_NM = jnp.atleast_2d(draw.ids)
  keep_NM = jnp.atleast_2d(draw.mask) & ~is_member(ids_NM, y.ids_NP)
  if draw.exact_ids is None:
    return [Candidates(draw.ids, draw.log_expected, spread(keep_NM))]
  exact_NS = jnp.atleast_2d(draw.exact_ids)
  keep_NM &= ~is_member(ids_NM, exact_NS)
  keep_NS = (exact_NS < num_classes) & ~is_member(exact_NS, y.ids_NP)
  certain = jnp.zeros(draw.exact_ids.shape, jnp.float32)
  return [
    Candidates(draw.ids, draw.log_expected, spread(keep_NM)),
    Candidates(draw.exact_ids, certain, spread(keep_NS)),
  ]
