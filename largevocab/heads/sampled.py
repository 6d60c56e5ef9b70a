"""Sampled softmax with any sampler and any exact set."""

from dataclasses import field
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.fields import CountOrNone, Distinct, settings
from largevocab.heads.candidates import batch_classes
from largevocab.heads.sampling import PyTree, SampledState, SamplingHead
from largevocab.losses.sampled_softmax import sampled_softmax_loss
from largevocab.rows import Table
from largevocab.samplers.base import Sampler
from largevocab.samplers.pps import PPS


class ExactSetState(NamedTuple):
  """`SampledState` with i32[T], the classes that are always summed exactly."""

  table: Table
  stats: PyTree
  exact_T: jax.Array


@settings
class Sampled(SamplingHead):
  """Softmax with log Z estimated from an exact set and importance-weighted samples.

  loss = log Z~ - o_y, where Z~ is exact on the true classes and on the exact sets of
  this head and of the sampler, and drawn classes have weight 1 / expected count; see
  `losses/sampled_softmax.py`. Drawn classes that are summed exactly are masked. With
  independent draws this is importance sampling of the complement of the exact set; with
  the sampler `bernoulli` it is Bernoulli sampling. If each example has its own
  independent draws, they are weighted conditionally on missing the exact set: with the
  sampler `softmax` the loss then equals that of `full` in every draw.

  Z~ is unbiased for every exact set.

  Attributes:
    sampler: proposal distribution of the negatives.
    exact_batch: sum all true classes of the batch exactly, for every example.
    exact_frequent: sum this many of the most frequent classes exactly. A sampler by
      counts still draws them, to no effect; `pps` has its own exact classes.
    exact_ids: sum these classes exactly.
    corrected: use importance weights (logQ correction). Otherwise the loss is the
      softmax over the active set, the true and the drawn classes, each once, as in
      Daghaghi et al. It is biased, strongly if classes are few: the model learns to
      separate classes, but not their probabilities.
    correct_positive: subtract log expected from the true classes' logits too, as
      TensorFlow and Jean et al. 2015 do. For comparison only: this is biased. A class
      that is never drawn keeps its logit.

  Source: Barber & Botev 2016, section 2.1 (complementary sum, equations 22-26), Blanc &
    Rendle 2018, equations 2-3 (negatives corrected, the positive not), Daghaghi et al.
    2021, algorithms 1 and 2 (the active set).
  """

  sampler: Sampler = field(default_factory=PPS)
  exact_batch: bool = False
  exact_frequent: CountOrNone = 0
  exact_ids: Annotated[tuple[CountOrNone, ...], Distinct()] = ()
  corrected: bool = True
  correct_positive: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.correct_positive and not self.corrected:
      raise UserError(
        "head.correct_positive corrects the true classes' logits, and head.corrected "
        "is False: set one of them the other way"
      )

  @property
  def weighs(self):
    return self.corrected

  @property
  def is_active_set(self):
    return not self.corrected

  def init_state(self, table, counts) -> SampledState | ExactSetState:
    state = super().init_state(table, counts)
    if self.exact_frequent > counts.num_classes:
      raise UserError(
        f"head.exact_frequent is {self.exact_frequent}, and there are "
        f"{counts.num_classes} classes: give so many or fewer"
      )
    by_count_V = np.argsort(-counts.unigram_V, kind="stable")
    frequent = by_count_V[: self.exact_frequent]
    exact_T = np.unique(np.concatenate([frequent, np.asarray(self.exact_ids, int)]))
    wrong = [int(c) for c in exact_T if not 0 <= c < counts.num_classes]
    if wrong:
      raise UserError(
        f"head.exact_ids has {wrong[0]}, and there are {counts.num_classes} classes: "
        f"give ids from 0 to {counts.num_classes - 1}"
      )
    if not len(exact_T):
      return state
    return ExactSetState(state.table, state.stats, jnp.asarray(exact_T, jnp.int32))

  def exact_sets(self, state, y):
    sets = [state.exact_T] if isinstance(state, ExactSetState) else []
    if self.exact_batch:
      sets.append(batch_classes(y, len(state.table.w_VD)))
    return sets

  def monitor(self, state, h_ND, y, key):
    """As in `SamplingHead`; without the bias if the positive is corrected."""
    metrics = super().monitor(state, h_ND, y, key)
    if self.correct_positive:
      del metrics["log_z_bias"]
    return metrics

  def loss(self, o_NP, o_NM, scored) -> jax.Array:
    others, w_NP, true_NP = scored.candidates, scored.w_NP, scored.true_NP
    if self.correct_positive:
      shift_NP = scored.log_expected_true()
      o_NP = o_NP - jnp.where(jnp.isfinite(shift_NP), shift_NP, 0)
      log_expected = others.log_expected
      return sampled_softmax_loss(o_NP, w_NP, true_NP, o_NM, log_expected, others.mask)
    log_exact_N, log_weight = scored.log_weights()
    return sampled_softmax_loss(
      o_NP, w_NP, true_NP, o_NM, -log_weight, others.mask, log_exact_N
    )
