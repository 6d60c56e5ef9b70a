"""The adaptive softmax: a short-list, and tail clusters with narrower rows.

The letters S and J stand for the size of the short-list and the number of tails.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
from jax.typing import ArrayLike

from largevocab.fields import settings
from largevocab.heads.base import (
  HeadStep,
  check_grads,
  head_step,
  read_batch,
  read_training_batch,
  total_weight,
)
from largevocab.heads.linear import LinearHead
from largevocab.heads.partitioned import Partitioned, at_places, places_of
from largevocab.labels import Targets
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations
from largevocab.ops.adaptive.clusters import Clusters
from largevocab.ops.adaptive.loss import adaptive_loss, adaptive_nll, capacities
from largevocab.ops.adaptive.model import Model, Tail, class_rows
from largevocab.ops.adaptive.top_k import adaptive_top_k
from largevocab.ops.softmax.plan import budget_bytes
from largevocab.rows import Table, added, sq_norm


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdaptiveState:
  """Parameters of the adaptive softmax, and the order of classes.

  On several devices, each device holds some rows of the tables, some entries of the
  vectors, and all projections.

  Attributes:
    head: [S + J, D'] a row for each class of the short-list, then one for each tail.
    tails: [V_j, E_j'] the rows of each tail.
    downs: [E_j, D] the projection of each tail, or one projection shared by all tails.
    place_V: i32[V], the place of each class: short-list first, then tail by tail.
    class_V: i32[V], the class at each place, ascending within each cluster.
    clusters: sizes, widths and masses of the clusters. Static, not arrays.
  """

  head: Table
  tails: tuple[Table, ...]
  downs: tuple[Table, ...]
  place_V: jax.Array
  class_V: jax.Array
  clusters: Clusters = field(metadata={"static": True})

  @property
  def activations(self) -> Activations:
    """The activations that the parameters are for."""
    return Activations(self.clusters.widths[0])

  @property
  def model(self) -> Model:
    """The parameters in the form used by `largevocab.ops.adaptive.model`."""
    tails = []
    for i, (tail, width) in enumerate(
      zip(self.tails, self.clusters.widths[1:], strict=True)
    ):
      down = self.downs[min(i, len(self.downs) - 1)]
      tails.append(Tail(down.w_VD[:width], tail.w_VD))
    return Model(self.head.w_VD, tuple(tails), self.clusters.sizes)


class AdaptiveGrads(NamedTuple):
  """Gradients of all rows and projections, in the layout of the state.

  Attributes:
    head_VD: gradient of the rows of the short-list and the clusters.
    tails: gradients of the rows of each tail.
    downs: gradients of the projections.
    reached_J: i32[J], number of true classes of the batch in each tail. If `lazy` is
      set, the gradient of a tail with 0 is taken to be 0. Therefore do not subtract
      gradients leaf by leaf; give weights to `largevocab.accumulate` instead.
  """

  head_VD: jax.Array
  tails: tuple[jax.Array, ...]
  downs: tuple[jax.Array, ...]
  reached_J: jax.Array

  __add__ = added  # pyrefly: ignore


@settings
class Adaptive(Partitioned, LinearHead):
  """Adaptive softmax: rare classes are in tail clusters, with narrower rows.

  One softmax, at full width, is over the classes of the short-list and one row for each
  tail cluster. Each tail has another softmax over its classes, whose rows multiply a
  projection of h.

  The head is exact and normalised over all classes, but it is not the same model as a
  full softmax: rare classes have fewer parameters. Ids need not be sorted by frequency.

  Attributes:
    tail_bias: learn a bias for each class of a tail; `bias` is for the short-list and
      the clusters.
    tied: tails share one projection; each tail uses its first outputs.
    lazy: skip the update of tails that have no true class in the batch, just as
      row-sparse updates skip other rows. SGD and Adagrad would not move these rows;
      optimisers with moments skip a step of them. Decoupled decay and averages are
      brought up to date later. With `weight_decay`, which moves all rows, no tail is
      skipped.

  Source: Grave et al. 2017, section 4. Not in the paper: biases of tails,
    `tied`, and the limits of `Partitioned` on how small the short-list may be. Torch's
    implementation equals this one with bias = tail_bias = False, align = 1.

  Cost: three products of N (S + J) D and, for the n_j true classes in a tail of V_j
    classes, n_j V_j E_j. `evaluate` costs as much as the forward pass; `top_k` computes
    a tail only if it may have one of the best k. On C devices, each device computes
    these products for 1 / C of the rows. Besides what `ShardedHead` sends, it sends
    some numbers for each place in the capacities of the tails, and the gradients of the
    projections.

  >>> head = Adaptive(cutoffs=(1,), align=1)
  >>> state = head.init(jax.random.key(0), [1, 5, 3, 4], 8)
  >>> state.class_V.tolist(), [tail.w_VD.shape for tail in state.tails]
  ([1, 0, 2, 3], [(3, 8)])
  """

  tail_bias: bool = True
  tied: bool = False
  lazy: bool = True

  def parameters(self) -> dict[str, bool]:
    return {"bias": self.bias, "tail_bias": self.tail_bias, "tied": self.tied}

  def new_state(self, clusters, dim, keys, place_V, class_V) -> AdaptiveState:
    _, *widths = clusters.widths
    short, *others = clusters.sizes
    for_rows, for_downs = (jax.random.split(key, 3) for key in keys)
    for_head, for_tails, for_downs = *for_rows[:2], for_downs[2]
    num_head = shards.block_size(short + len(others))
    head_VD = self.random_rows(for_head, num_head, dim)
    of_tails = dataclasses.replace(self, bias=self.tail_bias)
    tails = [
      of_tails.random_rows(jax.random.fold_in(for_tails, i), num, width)
      for i, (num, width) in enumerate(
        zip(map(shards.block_size, others), widths, strict=True)
      )
    ]
    down_widths = tuple(widths[:1] if self.tied else widths)
    downs = self.random_downs(for_downs, down_widths, dim)
    start = self.optimizer.init
    return AdaptiveState(
      start(head_VD),
      tuple(start(tail_VD) for tail_VD in tails),
      tuple(start(down_ED) for down_ED in downs),
      place_V,
      class_V,
      clusters,
    )

  def backward(
    self, state: AdaptiveState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    wide_ND, y = read_training_batch(h_ND, y, len(state.place_V), state.activations)
    loss, d = adaptive_loss(
      wide_ND,
      state.model,
      at_places(state.place_V, y.ids_NP),
      y.w_NP / total_weight(y),
      capacities(state.clusters, *y.ids_NP.shape),
      method=self.method,
      budget_bytes=budget_bytes(self.budget_mib),
      dtype=self.dtype,
    )
    dtails = tuple(tail.rows_VE for tail in d.model.tails)
    ddowns = tuple(tail.down_ED for tail in d.model.tails)
    if self.tied and ddowns:
      ddowns = (_sum_of_first_rows(ddowns),)
    grads = AdaptiveGrads(d.model.head_VD, dtails, ddowns, d.reached_J)
    return head_step(loss, d.h_ND, h_ND, grads, self.sq_norm(state, grads))

  def sq_norm(self, state: AdaptiveState, grads: AdaptiveGrads) -> jax.Array:
    return sq_norm(grads.downs, shards.psum(sq_norm((grads.head_VD, grads.tails))))

  def update(
    self,
    state: AdaptiveState,
    grads: AdaptiveGrads,
    lr: ArrayLike,
    scale: ArrayLike = 1.0,
  ) -> AdaptiveState:
    check_grads(grads, AdaptiveGrads)
    move = lambda table, g_VD: self.optimizer.dense_update(table, g_VD, lr, scale)
    leave = lambda table, _: self.optimizer.after_step(table, lr)
    is_lazy = self.lazy and not self.optimizer.weight_decay
    move_tail = lambda table, g_VD, num: (
      jax.lax.cond(num != 0, move, leave, table, g_VD) if is_lazy else move(table, g_VD)
    )
    with shards.one_block():  # all devices round projections alike
      downs = tuple(map(move, state.downs, grads.downs))
    return dataclasses.replace(
      state,
      head=move(state.head, grads.head_VD),
      tails=tuple(map(move_tail, state.tails, grads.tails, grads.reached_J)),
      downs=downs,
    )

  def refresh(self, state: AdaptiveState, key: jax.Array) -> AdaptiveState:
    """Brings the tails that `lazy` has skipped up to date, in O(V E)."""
    tails = tuple(map(self.optimizer.settled, state.tails))
    return dataclasses.replace(state, tails=tails)

  def evaluate(
    self, state: AdaptiveState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, exact, in nats."""
    h_ND, y = read_batch(h_ND, y, len(state.place_V), state.activations)
    places_NP = at_places(state.place_V, y.ids_NP)
    sizes = capacities(state.clusters, *y.ids_NP.shape)
    args = h_ND, state.model, places_NP, y.w_NP, sizes
    return {"nll": adaptive_nll(*args, dtype=self.dtype)}

  def top_k(
    self, state: AdaptiveState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k most probable classes and their log-probabilities, best first."""
    h_ND = activations(h_ND, state.activations)
    return adaptive_top_k(h_ND, state.model, state.class_V, k, dtype=self.dtype)

  def class_rows(self, state: AdaptiveState, ids_R: jax.Array) -> jax.Array:
    """The row of each class; in a tail, its projected row plus that of its cluster.

    The product with h and the constant feature is log p(c | h) up to the log-partition
    functions.
    """
    return class_rows(state.model, places_of(state.place_V, ids_R))


def _sum_of_first_rows(downs: tuple[jax.Array, ...]) -> jax.Array:
  """Sums gradients of a shared projection, of which each tail uses the first rows."""
  total_ED = downs[0]
  for d_ED in downs[1:]:
    total_ED = total_ED.at[: len(d_ED)].add(d_ED)
  return total_ED
