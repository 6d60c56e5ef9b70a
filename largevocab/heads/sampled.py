"""Sampled head: any sampled loss on the true classes and candidates of any sampler."""

import dataclasses
import math
from dataclasses import field
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import (
  Between,
  CountOrNone,
  Distinct,
  Dtype,
  StepsOrNever,
  settings,
)
from largevocab.heads.base import (
  ROWS,
  WHOLE,
  HeadStep,
  check_grads,
  head_step,
  is_refresh,
  read_batch,
  read_training_batch,
  total_weight,
)
from largevocab.heads.candidates import (
  Candidates,
  candidates,
  exact_classes,
  log_conditional_weights,
  true_mask,
)
from largevocab.heads.diagnostics import quality
from largevocab.heads.linear import LinearHead
from largevocab.heads.logits import Linear, Logits, class_row_grads, class_rows
from largevocab.heads.sampled_checks import check_settings
from largevocab.heads.sampled_state import SampledGrads, SampledState
from largevocab.labels import Counts, Targets, as_counts, batch_classes, have_weight
from largevocab.losses import SAMPLED_LOSSES, SampledLoss, SampledSoftmax, Scores
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations
from largevocab.ops.pair_logits import pair_logits
from largevocab.ops.softmax.chunks import sum_dtype, wide
from largevocab.ops.softmax.log_partition import (
  Change,
  Score,
  score_of,
  softmax_nll_and_log_z,
)
from largevocab.ops.softmax.top_k import softmax_top_k
from largevocab.ops.together import together
from largevocab.rows import (
  SGD,
  RowGrads,
  RowOptimizer,
  Table,
  checked,
  row_grads,
  sq_norm,
)
from largevocab.samplers.base import (
  Sampler,
  check_size,
  counts_rows,
  has_fixed_law,
  keeps_up,
  rebuilds,
)
from largevocab.samplers.in_blocks import in_blocks
from largevocab.samplers.pps import PPS

PyTree = Any

_ENOUGH = 4  # draws from a block that are enough for conditional weights


@settings
class Sampled(LinearHead):
  """A loss of the true classes and candidates, so that a step updates few rows.

  Candidates are the classes that the sampler draws, and the classes of exact sets,
  which are in every sample (expected count 1). Scores are o_c = <w_c, h> + b_c.

  Attributes:
    loss: the loss, one of `largevocab.losses`.
    sampler: proposal distribution of the negatives.
    num_samples: M, negatives per draw: per batch if the sampler shares them. Use at
      least 2 if each example has its own draws. With one, weights are those of plain
      importance sampling (`losses.complement_weights`), and the loss has no lower
      bound.
    exact_batch: all true classes of the batch are candidates of every example.
    exact_frequent: this many of the most frequent classes are candidates of every
      example. A sampler by counts still draws them, to no effect; `PPS` has its own
      exact classes.
    exact_ids: these classes are candidates of every example.
    refresh_every: steps between rebuilds of the sampler's statistics, besides those at
      steps 1, 2, 4, ...; 0: never. Rebuilds include what incremental updates leave out,
      and remove accumulated rounding errors.
    refresh_growth: factor by which each gap between rebuilds grows.
    absolute: use |o| in place of o as scores (Blanc & Rendle 2018, section 3.3), which
      kernels that are even in o can approximate.
    logits: how logits are computed, one of `largevocab.heads.logits`: `Linear` or
      `Cosine`.
    dtype: type of the operands of matrix products, 'float32' or 'bfloat16'. Sums and
      log-partition functions are float32, and rows are of `optimizer.row_dtype`.
    optimizer: optimiser of the rows.

  Cost: O(N (P + M) D), independent of V. With shared negatives, a step reads N P + M
    rows, otherwise N (P + M). With many negatives per example, 3 products of N V D are
    computed instead where that is faster: `ops/pair_logits.py`.

  >>> head = Sampled(num_samples=2, bias=False)
  >>> state = head.init(jax.random.key(0), [5, 3, 2, 1], 8)
  >>> y = Targets(jnp.array([[0]]), jnp.ones((1, 1)), jnp.zeros(1, int))
  >>> head.backward(state, jnp.ones((1, 8)), y, jax.random.key(1)).dh_ND.shape
  (1, 8)
  """

  losses: ClassVar[dict] = SAMPLED_LOSSES
  row_sparse: ClassVar[bool] = True

  loss: SampledLoss = field(default_factory=SampledSoftmax)
  sampler: Sampler = field(default_factory=PPS)
  num_samples: Annotated[int, Between(1, 2**24)] = 512
  exact_batch: bool = False
  exact_frequent: CountOrNone = 0
  exact_ids: Annotated[tuple[CountOrNone, ...], Distinct()] = ()
  refresh_every: StepsOrNever = 500
  refresh_growth: Annotated[float, Between(1, 1000)] = 1.0
  absolute: bool = False
  logits: Logits = field(default_factory=Linear)
  dtype: Dtype = "float32"
  optimizer: RowOptimizer = field(default_factory=SGD)

  def __post_init__(self):
    self.logits.check(self)
    check_settings(self)

  def features(self, h_ND: jax.Array) -> jax.Array:
    return super().features(self.logits.features(h_ND))

  @property
  def score(self) -> Score:
    """The scores as a function of the logits."""
    return score_of(self.absolute)

  @property
  def counts_batches(self) -> bool:
    return counts_rows(self.sampler)

  def init(self, key, counts, dim) -> SampledState:
    counts, given = as_counts(counts), Activations(dim)
    w_VD = self.random_rows(key, counts.num_classes, given.dim)
    shift = self.loss.initial_bias(shards.num_classes(counts.num_classes))
    if shift and self.bias and not self.absolute:
      w_VD = w_VD.at[:, given.dim].set(shift)
    state = self.init_state(self.optimizer.init(w_VD), counts)
    return state._replace(activations=given)

  def init_state(self, table: Table, counts: Counts) -> SampledState:
    """Initial state for a table of class rows."""
    num_classes = shards.num_classes(counts.num_classes)
    num = self.loss.num_log_z(num_classes)
    dtype = sum_dtype(table.w_VD.dtype)
    log_z_KD = jnp.full((num, 1), math.log(num_classes), dtype)
    exact_T = exact_classes(counts, self.exact_frequent, self.exact_ids)
    return SampledState(
      table,
      self.sampler.init(counts, table.w_VD, self.num_samples),
      jnp.asarray(exact_T, jnp.int32) if len(exact_T) else None,
      self._log_z_optimizer.init(log_z_KD) if num else None,
    )

  def backward(self, state: SampledState, h_ND, y, key) -> HeadStep:
    w_VD = state.table.w_VD
    wide_ND, y = read_training_batch(h_ND, y, len(w_VD), state.activations)
    x_ND, to_h = jax.vjp(self.features, wide_ND)
    others = self.candidates(state, x_ND, y, key, self.loss.keeps_hits)
    ids_NS = jnp.concatenate([y.ids_NP, others.own_NS], axis=1)
    P, is_here_NP = y.ids_NP.shape[1], y.ids_NP < len(w_VD)
    o, pull_back = pair_logits(x_ND, w_VD, ids_NS, others.shared_T, self.dtype, P)
    logits = self.logits.of_pairs(w_VD, ids_NS, others.shared_T, P)

    def mean_loss(parts, log_z_N):
      s_NP, s_NM = parts if log_z_N is None else (s - log_z_N[:, None] for s in parts)
      return self.loss(
        Scores(
          o_NP=shards.from_owner(s_NP, is_here_NP),
          w_NP=y.w_NP / total_weight(y),
          true_NP=true_mask(y, len(w_VD)),
          o_NM=others.known(s_NM, len(w_VD)),
          log_expected_NM=others.log_expected,
          mask_NM=others.mask,
          log_expected_true=lambda: self._log_expected_true(state, x_ND, y, others),
          log_weights=lambda: self.log_weights(state, x_ND, y, others),
          num_samples=self.num_samples,
          num_classes=shards.num_classes(len(w_VD)),
        )
      )

    log_z_N = None if state.log_z is None else self._log_z(state.log_z, y)
    # The gradient of a slice is padded with zeros, so each part has its own gradient.
    s, to_o = jax.vjp(lambda o: self.score(logits(o)), o)
    parts = s[:, :P], s[:, P:]
    loss, (ds, dlog_z_N) = jax.value_and_grad(mean_loss, (0, 1))(parts, log_z_N)
    # Rows are written after the loss is known, even if its derivative reads no logit of
    # a true class (`Importance`). `update` says why.
    loss, ds_NP = together((loss, ds[0]))
    (do,) = to_o(jnp.concatenate([ds_NP, ds[1]], axis=1))
    # Rows that only examples without weight refer to are not updated: optimisers may
    # change a row even if its gradient is zero.
    is_live_N = have_weight(y)
    counted = jnp.concatenate([y.ids_NP < len(w_VD), others.mask], axis=1)
    at_true = lambda mask: jnp.pad(mask, ((0, 0), (P, 0)))  # False there
    constant = jax.tree.map(at_true, others.constant)
    dx_ND, ids_R, rows_RD = pull_back(do, counted & is_live_N[:, None], constant)
    rows_RD = self.logits.row_gradient(w_VD, ids_R, rows_RD)
    dlog_z = None
    if state.log_z is not None:
      num = len(state.log_z.w_VD)
      at_N = jnp.where(is_live_N, self._contexts(state.log_z, y), num)
      dlog_z = row_grads(at_N, shards.psum(dlog_z_N)[:, None], num)
    grads = SampledGrads(RowGrads(ids_R, rows_RD), dlog_z)
    (dh_ND,) = to_h(dx_ND.astype(x_ND.dtype))
    return head_step(loss, dh_ND, h_ND, grads, self.sq_norm(state, grads))

  def sq_norm(self, state: SampledState, grads: SampledGrads) -> jax.Array:
    # Log-partition functions are on every device.
    return shards.psum(sq_norm(grads.rows)) + sq_norm(grads.log_z)

  def add_row_grads(self, state: SampledState, grads: SampledGrads, ids_R, g_RD):
    """Adds the gradient of looked-up rows; the sum, and its squared norm."""
    known = state.table, ids_R, g_RD, state.activations
    more = class_row_grads(self.logits, *known)
    if counts_rows(self.sampler) and grads.drawn is None:  # those of the loss alone
      drawn_R = grads.rows.ids_R
      grads = grads._replace(
        drawn=RowGrads(drawn_R, jnp.zeros((len(drawn_R), 0)), grads.rows.tag)
      )
    grads = grads._replace(rows=grads.rows + more)
    return grads, self.sq_norm(state, grads)

  def update(
    self, state: SampledState, grads: SampledGrads, lr, scale=1.0
  ) -> SampledState:
    check_grads(grads, SampledGrads)
    rows = checked(state.table, grads.rows)
    old_RD = state.table.rows_at(rows.ids_R, mode="clip")
    drawn_R = rows.ids_R
    if grads.drawn is not None:
      no_columns = state.table._replace(w_VD=state.table.w_VD[:, :0])
      drawn_R = checked(no_columns, grads.drawn).ids_R
    # New rows and statistics wait for the old ones to be read. Otherwise some compilers
    # read the old ones after writing, from a copy of them for all classes.
    in_order = together if keeps_up(self.sampler) else jax.lax.optimization_barrier
    ids = rows.ids_R, drawn_R
    new, old_RD, ids = in_order((rows.rows_RD, old_RD, ids))
    ids_R, drawn_R = ids
    rows = rows._replace(rows_RD=new, ids_R=ids_R)
    table, new_RD = self.optimizer.update_and_rows(state.table, rows, lr, scale)
    if grads.drawn is not None:
      old_RD, new_RD = (jnp.zeros((len(drawn_R), w.shape[1])) for w in (old_RD, new_RD))
    stats = self.sampler.update(state.stats, table.w_VD, drawn_R, old_RD, new_RD)
    state = state._replace(table=table, stats=stats)
    if state.log_z is None or grads.log_z is None:
      return state
    log_z = self._log_z_optimizer.update(state.log_z, grads.log_z, lr, scale)
    return state._replace(log_z=log_z)

  def refreshes(self, step):
    is_due = is_refresh(step, self.refresh_every, self.refresh_growth)
    return is_due and (rebuilds(self.sampler) or self.optimizer.decoupled_decay > 0)

  def refresh(self, state, key):
    _check_key(key)
    table = self.optimizer.settled(state.table)
    stats = self.sampler.refresh(state.stats, table.w_VD, key)
    return state._replace(table=table, stats=stats)

  def evaluate(self, state, h_ND, y):
    """{'nll': f32[N]}, exact, in nats, of the softmax of the scores.

    Losses that are not likelihoods also give 'log_z', the log-partition function of the
    scores, and 'self_normalised_nll', the loss if exp(score) is taken as the
    probability, without normalising. The last is a loss of probabilities, and
    comparable with the nll, only if log_z is near 0 everywhere.
    """
    w_VD = state.table.w_VD
    h_ND, y = read_batch(h_ND, y, len(w_VD), state.activations)
    nll_N, log_z_N = softmax_nll_and_log_z(
      self.features(h_ND), w_VD, y.ids_NP, y.w_NP, **self._softmax(state)
    )
    if self.loss.likelihood:
      return {"nll": nll_N}
    if state.log_z is not None:
      log_z_N = log_z_N - self._log_z(state.log_z, y)
    log_z_N = jnp.where(jnp.isnan(nll_N), nll_N, log_z_N)  # NaN for invalid labels too
    return {
      "nll": nll_N,
      "self_normalised_nll": nll_N - log_z_N,
      "log_z": log_z_N,
    }

  def monitor(self, state, h_ND, y, key):
    """Quality of the sampler: 'relvar', 'chi2' and perhaps 'log_z_bias'.

    'log_z_bias' is the bias of log Z, for losses that estimate log Z. See
    `largevocab.heads.diagnostics.quality`.
    """
    _check_key(key)
    metrics = quality(self, state, h_ND, y, key)
    if not self.loss.estimates_log_z:
      del metrics["log_z_bias"]
    return metrics

  def top_k(self, state, h_ND, k):
    """The k most probable classes and their log-probabilities, best first."""
    x_ND = self.features(wide(activations(h_ND, state.activations)))
    return softmax_top_k(x_ND, state.table.w_VD, k, **self._softmax(state))

  def sharding(self, state):
    parts = super().sharding(state)
    return parts._replace(
      exact_T=jax.tree.map(lambda part: ROWS, parts.exact_T),
      log_z=jax.tree.map(lambda part: WHOLE, parts.log_z),
    )

  def in_blocks(self):
    return dataclasses.replace(self, sampler=in_blocks(self.sampler))

  def class_rows(self, state, ids_R):
    """Rows of the table: w_c and then, if there is a bias, b_c and padding.

    For cosines, the rows are w_c / |w_c|.
    """
    return class_rows(self.logits, state.table.w_VD, ids_R)

  def candidates(
    self,
    state: SampledState,
    x_ND: jax.Array,
    y: Targets,
    key: jax.Array,
    keeps_hits: bool = False,
  ) -> Candidates:
    """A draw for a batch and the exact sets, without duplicates.

    True classes are masked unless `keeps_hits`.

    Args:
      state: state of this head.
      x_ND: features.
      y: the true classes, as `read_batch` gives them.
      key: key of the draw.
      keeps_hits: keep accidental hits.
    """
    check_size(state.stats, shards.per_block(self.num_samples))
    _check_key(key)
    w_VD = state.table.w_VD
    draw = self.sampler.sample(state.stats, w_VD, key, x_ND, y)
    exact = []
    if state.exact_T is not None:
      exact.append(shards.own_rows(state.exact_T, len(w_VD)))
    if self.exact_batch:
      exact.append(batch_classes(y, len(w_VD)))
    return candidates(
      jax.lax.stop_gradient(draw),
      exact,
      y,
      len(w_VD),
      keeps_hits,
      self.loss.active_set,
    )

  def log_weights(
    self, state: SampledState, x_ND: jax.Array, y: Targets, others: Candidates
  ) -> tuple[jax.Array, jax.Array]:
    """Log importance weights of exp(score) in the estimate of Z.

    They are f32[N, P] for the true classes, or f32[N, 1] if they are equal, and
    f32[N, S + T] for the candidates. Finite where masked.

    A drawn class has weight 1 / expected count. If each example has its own independent
    draws, weights are conditional on the exact set, within each block of classes: see
    `complement_weights`. With few draws from a block, conditional weights would have
    more variance (experiments/block_variance), and weights are unconditional.

    Cost: for independent draws, also their probabilities on the exact set.
    """
    m = shards.per_block(self.num_samples)
    is_few = shards.num_blocks() > 1 and m < _ENOUGH
    is_independent = getattr(self.sampler, "independent", False)
    if not is_independent or is_few or self.loss.active_set:
      log_weight = jnp.where(others.mask, -others.log_expected, 0)
      return jnp.zeros((len(x_ND), 1)), log_weight
    w_VD = state.table.w_VD
    log_expected = lambda ids_NA: self.sampler.log_expected(
      state.stats, w_VD, x_ND, y, ids_NA
    )
    return log_conditional_weights(others, y, log_expected, len(w_VD), m)

  def change(self, state: SampledState) -> Change | None:
    """How scores of products become logits of the model; None: they are logits already.

    This is for cosines, and for losses that turn scores into other logits, if the
    proposal is the same for all examples.
    """
    of_logits, of_loss = self.logits.change(state.table.w_VD), None
    if has_fixed_law(self.sampler):
      log_expected_V = self.sampler.log_expected_of_all(state.stats)
      of_loss = self.loss.change(log_expected_V, self.num_samples)
    if of_logits is None or of_loss is None:
      return of_logits or of_loss
    return lambda s_NV, ids_V: of_loss(of_logits(s_NV, ids_V), ids_V)

  def _softmax(self, state) -> dict[str, Any]:
    return {"score": self.score, "dtype": self.dtype, "change": self.change(state)}

  def _log_expected_true(self, state, x_ND, y, others):
    """Log expected counts of the true classes, 0 in exact sets: f32[N, P]."""
    w_VD = state.table.w_VD
    log_expected_NP = self.sampler.log_expected(state.stats, w_VD, x_ND, y, y.ids_NP)
    log_expected_NP = others.expected_of_true(log_expected_NP, y.ids_NP)
    log_expected_NP = shards.from_owner(log_expected_NP, y.ids_NP < len(w_VD))
    return jax.lax.stop_gradient(log_expected_NP)

  @property
  def _log_z_optimizer(self) -> RowOptimizer:
    """The optimiser of the log-partition functions, with rows of the default type.

    A row is one number, so that a shorter type would save hardly any memory.
    """
    return dataclasses.replace(
      self.optimizer, row_dtype="float32", weight_decay=0.0, decoupled_decay=0.0
    )

  def _log_z(self, log_z: Table, y: Targets) -> jax.Array:
    return log_z.w_VD[self._contexts(log_z, y), 0]

  def _contexts(self, log_z: Table, y: Targets) -> jax.Array:
    last = len(log_z.w_VD) - 1  # also of examples without a context, -1
    return jnp.where(y.context_N < 0, last, jnp.minimum(y.context_N, last))


def _check_key(key: jax.Array | None) -> None:
  if key is None:
    raise UserError("key is None: pass jax.random.key(...), for the random draws")
