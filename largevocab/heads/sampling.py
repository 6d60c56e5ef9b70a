"""Base of the sampled heads: picks scored classes and builds row-sparse gradients."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.fields import Between, StepsOrNever, settings
from largevocab.heads.base import HeadStep, is_refresh, read_batch
from largevocab.heads.candidates import Candidates, candidates, true_mask
from largevocab.heads.softmax import SoftmaxHead
from largevocab.labels import Counts, Targets, as_counts
from largevocab.losses.sampled_softmax import complement_weights, log_normalizer_ratio
from largevocab.ops.accidental_hits import LOG_ZERO, is_member
from largevocab.ops.pair_logits import PullBack, pair_logits
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import product
from largevocab.rows import RowGrads, Table, checked, sq_norm
from largevocab.samplers.base import Draw, Sampler
from largevocab.samplers.static import Unigram

PyTree = Any
_MONITORED = 32  # examples, and draws for each example


class SampledState(NamedTuple):
  """State of sampled heads.

  Attributes:
    table: the class rows.
    stats: statistics of the sampler.
  """

  table: Table
  stats: PyTree


@dataclass(frozen=True)
class Scored:
  """The logits of a batch, those of true classes [N, P] before candidates [N, M].

  Attributes:
    o: f32[N, P + M], logits.
    y: the true classes.
    w_NP: f32, weights of true classes over the total weight of the batch.
    true_NP: bool, False on padding and repeated classes.
    candidates: exact sets and drawn classes.
    log_expected_true: computes log expected counts of the true classes, f32[N, P].
    log_weights: computes log importance weights, see `SamplingHead.log_weights`.
    pull_back: see `pair_logits`.
    num_classes: V.
    dim: D of h.
    dtype: of h.
  """

  o: jax.Array
  y: Targets
  w_NP: jax.Array
  true_NP: jax.Array
  candidates: Candidates
  log_expected_true: Callable[[], jax.Array]
  log_weights: Callable[[], tuple[jax.Array, jax.Array]]
  pull_back: PullBack
  num_classes: int
  dim: int
  dtype: jnp.dtype

  def step(self, loss: jax.Array, d: jax.Array) -> HeadStep:
    """The `HeadStep` of a loss whose gradient with respect to `o` is d."""
    # Rows that only examples without weight refer to are not updated: optimisers may
    # change a row even if its gradient is zero.
    is_class_NP = self.y.ids_NP < self.num_classes
    counts = jnp.concatenate([is_class_NP, self.candidates.mask], axis=1)
    live = counts & jnp.any(jnp.abs(self.y.w_NP) > 0, axis=1, keepdims=True)
    dx_ND, ids_R, rows_RD = self.pull_back(d, live)
    grads = RowGrads(ids_R, rows_RD)
    dh_ND = dx_ND[:, : self.dim].astype(self.dtype)
    return HeadStep(loss, dh_ND, grads, sq_norm(rows_RD))


@settings
class SamplingHead(SoftmaxHead, abc.ABC):
  """Base of heads whose loss uses the true classes and sampled candidates only, so that
  a step updates few rows. Subclasses define the loss.

  Attributes:
    sampler: proposal distribution of the negatives.
    num_samples: M, negatives per draw: per batch if the sampler shares them.
    refresh_every: steps between rebuilds of the sampler's statistics, besides those at
      steps 1, 2, 4, ...; 0: never. Rebuilds include what incremental updates leave out,
      and remove accumulated rounding errors.
    refresh_growth: factor by which each gap between rebuilds grows.

  Cost: O((N P + M) D) with shared negatives, O(N (P + M) D) otherwise; independent of
    V. For many negatives per example, where it is faster, 3 products of N V D instead:
    `ops/pair_logits.py`.
  """

  sampler: Sampler = field(default_factory=Unigram)
  num_samples: Annotated[int, Between(1, 2**24)] = 512
  refresh_every: StepsOrNever = 500
  refresh_growth: Annotated[float, Between(1, 1000)] = 1.0

  # Whether accidental hits (candidates that are true classes) stay in the loss.
  keep_hits: ClassVar[bool] = False

  def __post_init__(self):
    if getattr(self.sampler, "absolute", self.absolute) != self.absolute:
      what, which = ("o", "|o|") if self.absolute else ("|o|", "o")
      raise UserError(
        f"head.absolute is {self.absolute} and head.sampler.absolute is not: a sampler "
        f"that follows {what} hardly draws what a model with {which} as logits finds "
        "likely, but the least likely classes; set head.absolute like the sampler's, "
        "or the sampler's like the head's to have it all the same"
      )
    if self.weighs and not getattr(self.sampler, "weighable", True):
      raise UserError(
        "head.sampler.draw is 'fill', of which no law is known, and the loss of this "
        "head weighs by the law: set head.corrected to False (of the head 'sampled'; "
        "'ranking' and 'negative_sampling' do not weigh), or head.sampler.draw to "
        "'independent'"
      )

  @abc.abstractmethod
  def loss(self, o_NP: jax.Array, o_NM: jax.Array, scored: Scored) -> jax.Array:
    """f32[], from the scores of the true classes and of the candidates.

    Scores that `scored` masks may be any finite number.
    """

  @property
  def weighs(self) -> bool:
    """Whether the loss uses the probabilities of the drawn classes."""
    return True

  @property
  def is_active_set(self) -> bool:
    """Whether drawn classes count once each, with weight 1, without logQ correction."""
    return False

  def exact_sets(self, state: PyTree, y: Targets) -> list[jax.Array]:
    """Candidates besides the draw, always present (expected count 1)."""
    return []

  def init(self, key, counts, dim):
    counts = as_counts(counts)
    table = self.init_table(key, counts.num_classes, dim)
    return self.init_state(table, counts)

  def init_state(self, table: Table, counts: Counts) -> PyTree:
    """Initial state for a new table of class rows."""
    return SampledState(table, self.sampler.init(counts, table.w_VD, self.num_samples))

  def backward(self, state, h_ND, y, key):
    scored = self.scored(state, h_ND, y, key)
    loss, d = jax.value_and_grad(lambda o: self.loss(*self.scores(o, y), scored))(
      scored.o
    )
    return scored.step(loss, d)

  def scores(self, o: jax.Array, y: Targets) -> tuple[jax.Array, jax.Array]:
    """Scores of true classes f32[N, P] and candidates f32[N, M], from their logits."""
    o, P = self.score(o), y.ids_NP.shape[1]
    return o[:, :P], o[:, P:]

  def scored(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> Scored:
    """Draws candidates and computes the logits of all classes in the loss."""
    check_shapes(h_ND=h_ND, **y._asdict())
    w_VD, dtype = state.table.w_VD, h_ND.dtype
    h_ND, y = read_batch(h_ND, y, len(w_VD))
    x_ND = self.features(h_ND)
    draw = self._draw(state, x_ND, y, key)
    exact = self.exact_sets(state, y)
    others = candidates(draw, exact, y, len(w_VD), self.keep_hits, self.is_active_set)

    def log_expected_true():
      log_expected_NP = self.sampler.log_expected(
        state.stats, w_VD, x_ND, y, y.ids_NP, self.num_samples
      )
      for ids in [*exact, *([] if draw.exact_ids is None else [draw.exact_ids])]:
        is_exact_NP = is_member(y.ids_NP, jnp.atleast_2d(ids))
        log_expected_NP = jnp.where(is_exact_NP, 0, log_expected_NP)
      return jax.lax.stop_gradient(log_expected_NP)

    ids_NS = jnp.concatenate([y.ids_NP, others.own_NS], axis=1)
    o, pull_back = pair_logits(x_ND, w_VD, ids_NS, others.shared_T, self.dtype)
    return Scored(
      o,
      y,
      y.w_NP / self.total_weight(y),
      true_mask(y, len(w_VD)),
      others,
      log_expected_true,
      lambda: self.log_weights(state, x_ND, y, others),
      pull_back,
      len(w_VD),
      h_ND.shape[1],
      dtype,
    )

  def log_weights(
    self, state: PyTree, x_ND: jax.Array, y: Targets, others: Candidates
  ) -> tuple[jax.Array, jax.Array]:
    """Log importance weights of exp(o) in the estimate of Z: f32[N] for the true
    classes, f32[N, S + T] for the candidates.

    A drawn class has weight 1 / expected count. If each example has its own independent
    draws, weights are conditional on the exact set: see `complement_weights`. Finite
    where masked.

    Cost: for independent draws, also their probabilities on the exact set.
    """
    log_weight = jnp.where(others.mask, -others.log_expected, 0)
    if not getattr(self.sampler, "independent", False) or self.is_active_set:
      return jnp.zeros(len(x_ND)), log_weight
    w_VD, m = state.table.w_VD, self.num_samples
    exact_NA = jnp.concatenate([y.ids_NP, others.ids[:, ~others.is_drawn]], axis=1)
    is_exact_NA = jnp.concatenate(
      [true_mask(y, len(w_VD)), others.mask[:, ~others.is_drawn]], axis=1
    )
    log_expected_NA = self.sampler.log_expected(state.stats, w_VD, x_ND, y, exact_NA, m)
    share_N = jnp.sum(jnp.where(is_exact_NA, jnp.exp(log_expected_NA), 0), axis=1) / m
    kept_N = jnp.sum(others.mask[:, others.is_drawn], axis=1)
    log_exact_N, log_drawn_N = complement_weights(share_N, kept_N, m)
    shift = jnp.where(others.is_drawn[None], log_drawn_N[:, None], log_exact_N[:, None])
    return jax.lax.stop_gradient((log_exact_N, log_weight + shift))

  def update(self, state, grads: RowGrads, lr, scale):
    grads = checked(state.table, grads)
    old_RD = state.table.w_VD.at[grads.ids_R].get(mode="clip")
    table = self.optimizer.update(state.table, grads, lr, scale)
    new_RD = table.w_VD.at[grads.ids_R].get(mode="clip")
    stats = self.sampler.update(state.stats, table.w_VD, grads.ids_R, old_RD, new_RD)
    return state._replace(table=table, stats=stats)

  def refreshes(self, step):
    return is_refresh(step, self.refresh_every, self.refresh_growth)

  def refresh(self, state, key):
    stats = self.sampler.refresh(state.stats, state.table.w_VD, key)
    return state._replace(stats=stats)

  def monitor(self, state, h_ND, y, key):
    """Quality of the sampler for this model: means over 32 examples of the batch.

    {'relvar': Var(Z~) / Z^2 of the estimate of Z of a sampled softmax with this head's
    exact sets and negatives, 'log_z_bias': E log(Z~ / Z) in nats, the bias of its loss,
    'chi2': sum (p - q)^2 / q of the softmax p against the proposal q of the draws
    alone; inf if some class cannot be drawn}. The first two are means over 32 draws,
    with about 10 % error unless few examples dominate; chi2 is exact.

    Cost: 32 draws of a step, and 32 logits a class: at V = 1 M a hundred `pps` steps.
    """
    at_N = np.linspace(0, len(h_ND) - 1, min(len(h_ND), _MONITORED)).astype(int)
    log_ratio_RN = self.log_normalizer_ratios(state, h_ND, y, key, at_N, _MONITORED)
    w_VD = state.table.w_VD
    h_ND, y = read_batch(h_ND, y, len(w_VD))
    x_ND, y = jax.tree.map(lambda a: a[at_N], (self.features(h_ND), y))
    log_expected = self.sampler.log_expected(
      state.stats, w_VD, x_ND, y, jnp.arange(len(w_VD)), self.num_samples
    )
    log_size = jax.nn.logsumexp(log_expected, axis=-1, keepdims=True)
    # If no class can be drawn, the size is 0 and chi2 is inf as well.
    log_q = jnp.atleast_2d(log_expected - jnp.maximum(log_size, LOG_ZERO))
    chi2_N = jnp.sum(jnp.exp(2 * self._log_p(state, x_ND) - log_q), axis=1) - 1
    weight_N = jnp.sum(y.w_NP, axis=1)
    total = jnp.maximum(jnp.sum(weight_N), 1e-30)
    mean = lambda v_N: jnp.sum(jnp.where(weight_N > 0, weight_N * v_N, 0)) / total
    return {
      "relvar": mean(jnp.mean(jnp.square(jnp.expm1(log_ratio_RN)), axis=0)),
      "log_z_bias": mean(jnp.mean(log_ratio_RN, axis=0)),
      "chi2": mean(chi2_N),
    }

  def log_normalizer_ratios(
    self,
    state: PyTree,
    h_ND: jax.Array,
    y: Targets,
    key: jax.Array,
    at_N: np.ndarray,
    draws: int,
  ) -> jax.Array:
    """log(Z~ / Z) of examples `at_N` of a batch, for several draws: f32[draws, ...].

    Each draw is for the whole batch, as exact sets may depend on all of it.

    Cost: all logits of these examples, and `draws` times the draws of a step.
    """
    check_shapes(h_ND=h_ND, **y._asdict())
    num_classes = len(state.table.w_VD)
    h_ND, y = read_batch(h_ND, y, num_classes)
    x_ND = self.features(h_ND)
    log_p_NV = self._log_p(state, x_ND[at_N])
    true_NP = true_mask(y, num_classes)

    def ratio(key):
      draw = self._draw(state, x_ND, y, key)
      others = candidates(
        draw, self.exact_sets(state, y), y, num_classes, active_set=self.is_active_set
      )
      log_exact_N, log_weight = self.log_weights(state, x_ND, y, others)
      of_examples = (
        y.ids_NP,
        true_NP,
        others.ids,
        -log_weight,
        others.mask,
        log_exact_N,
      )
      return log_normalizer_ratio(log_p_NV, *(a[at_N] for a in of_examples))

    return jax.lax.map(ratio, jax.random.split(key, draws))

  def _log_p(self, state: PyTree, x_ND: jax.Array) -> jax.Array:
    """Log-probabilities of all classes, f32[N, V]."""
    o_NV = product("nd,vd->nv", x_ND, state.table.w_VD, self.dtype)
    s_NV, change = self.score(o_NV), self.change(state)
    if change is not None:
      s_NV = change(s_NV, jnp.arange(len(state.table.w_VD)))
    return jax.nn.log_softmax(s_NV)

  def _draw(self, state, x_ND, y, key) -> Draw:
    draw = self.sampler.sample(
      state.stats, state.table.w_VD, key, x_ND, y, self.num_samples
    )
    return jax.lax.stop_gradient(draw)
