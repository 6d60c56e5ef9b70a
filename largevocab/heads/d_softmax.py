"""The differentiated softmax: one softmax where rare classes have narrower rows."""

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError
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
from largevocab.ops.softmax.chunks import product, wide
from largevocab.ops.softmax.parts import (
  Part,
  Parts,
  own_places,
  parts_loss,
  parts_nll,
)
from largevocab.ops.softmax.plan import Plan, budget_bytes, plan
from largevocab.ops.softmax.top_k import parts_top_k
from largevocab.rows import Table, added, sq_norm

_LOG = logging.getLogger("largevocab")


def slice_widths(dim: int, widths: tuple[int, ...]) -> tuple[int, ...]:
  """Widths proportional to the given ones, each at least 1, that sum to `dim`.

  Each part gets one column first; the others go one by one to the part that is farthest
  below its share.

  Args:
    dim: D.
    widths: widths of the parts; only their proportions matter.

  Raises:
    UserError: there are more parts than columns.

  >>> slice_widths(256, (256, 64, 16)), slice_widths(5, (8, 8, 8))
  ((195, 49, 12), (2, 2, 1))
  """
  if len(widths) > dim:
    raise UserError(
      f"head.cutoffs: {len(widths)} parts cannot share the {dim} columns of h: use "
      "fewer cutoffs, or set head.projected"
    )
  total = sum(widths)
  slices = [1] * len(widths)
  for _ in range(dim - len(widths)):
    missing = [dim * w / total - s for w, s in zip(widths, slices, strict=True)]
    slices[missing.index(max(missing))] += 1
  return tuple(slices)


class Weights(NamedTuple):
  """All parameters of the differentiated softmax, or their gradient.

  Attributes:
    rows: [V_i, E_i'] for each part.
    downs: [E_i, D], projections of all parts but the first; empty for slices.
  """

  rows: tuple[jax.Array, ...]
  downs: tuple[jax.Array, ...]

  __add__ = added  # pyrefly: ignore


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DSoftmaxState:
  """Parameters of the differentiated softmax, and the order of classes.

  On several devices, each device holds some rows of the tables, some entries of the
  vectors, and all projections.

  Attributes:
    rows: tables of `Weights.rows`.
    downs: tables of `Weights.downs`.
    place_V: i32[V], the place of each class, part by part.
    class_V: i32[V], the class at each place, ascending within each part.
    widths: E_i, widths of the features of each part. Static, not arrays.
    sizes: V_i, number of classes of each part. Static, not arrays.
  """

  rows: tuple[Table, ...]
  downs: tuple[Table, ...]
  place_V: jax.Array
  class_V: jax.Array
  widths: tuple[int, ...] = field(metadata={"static": True})
  sizes: tuple[int, ...] = field(metadata={"static": True})

  @property
  def activations(self) -> Activations:
    """The activations it is for: the first part reads all of h, or parts share it."""
    return Activations(self.widths[0] if self.downs else sum(self.widths))

  @property
  def weights(self) -> Weights:
    """The parameters without optimiser state."""
    return Weights(
      tuple(table.w_VD for table in self.rows),
      tuple(table.w_VD for table in self.downs),
    )


@settings
class DSoftmax(Partitioned, LinearHead):
  """Softmax over all classes where rare classes have fewer parameters.

    o_c = <w_c, h[slice of part i]>  or, if projected,  o_c = <w_c, P_i h>

  The head is exact and normalised over all classes, which are cut into parts by
  frequency. Unlike in an adaptive softmax, each part is computed for every example. Ids
  need not be sorted by frequency.

  Attributes:
    projected: if set, the first part reads h itself, and each other part a projection
      of h to its width in the partition ('D-softmax*' of Grave et al. 2017). Otherwise
      parts read disjoint slices of h, whose widths are proportional to those of the
      partition and sum to D.

  Source: Chen, Grangier and Auli 2015, section 2.1; Grave et al. 2017, section 5, which
    uses both variants as baselines on the partition of its adaptive softmax, and does
    not give the widths of slices.

  Cost: 3 products of N, V_i and E_i for each part i a step, or 4 if chunked by classes,
    and a dense update. On C devices, each device computes these products for 1 / C of
    the rows. Besides what `ShardedHead` sends, it sends the gradients of the
    projections.

  >>> head = DSoftmax(cutoffs=(1,), bias=False)
  >>> state = head.init(jax.random.key(0), [1, 5, 3, 4], 16)
  >>> state.class_V.tolist(), [table.w_VD.shape for table in state.rows]
  ([1, 0, 2, 3], [(1, 11), (3, 5)])
  """

  projected: bool = False

  def parameters(self) -> dict[str, bool]:
    return {"bias": self.bias, "tail_bias": self.bias}

  def new_state(self, clusters, dim, keys, place_V, class_V) -> DSoftmaxState:
    widths = clusters.widths if self.projected else slice_widths(dim, clusters.widths)
    (for_rows, _), (_, for_downs) = map(jax.random.split, keys)
    sizes = map(shards.block_size, clusters.sizes)
    rows = [
      self.random_rows(jax.random.fold_in(for_rows, i), num, width)
      for i, (num, width) in enumerate(zip(sizes, widths, strict=True))
    ]
    down_widths = widths[1:] if self.projected else ()
    downs = self.random_downs(for_downs, down_widths, dim)
    return DSoftmaxState(
      tuple(map(self.optimizer.init, rows)),
      tuple(map(self.optimizer.init, downs)),
      place_V,
      class_V,
      widths,
      clusters.sizes,
    )

  def seen(
    self, downs: tuple[jax.Array, ...], widths: tuple[int, ...], h_ND: jax.Array
  ) -> list[jax.Array]:
    """The features of each part, without the constant feature."""
    if self.projected:
      project = lambda d_ED: product(
        "nd,ed->ne", h_ND, shards.replicated(d_ED), self.dtype
      )
      return [h_ND, *map(project, downs)]
    return jnp.split(h_ND, np.cumsum(widths)[:-1], axis=1)

  def parts(self, weights: Weights, state: DSoftmaxState, h_ND: jax.Array) -> Parts:
    """Features and rows, for the operations in `largevocab.ops.softmax.parts`."""
    seen = self.seen(weights.downs, state.widths, h_ND)
    return tuple(map(Part, map(self.features, seen), weights.rows, state.sizes))

  def plan(self, num_examples: int, weights: Weights) -> Plan:
    """The chunks of a step."""
    return plan(
      num_examples,
      sum(len(w_VE) for w_VE in weights.rows),
      sum(w_VE.shape[1] for w_VE in weights.rows),
      budget_bytes(self.budget_mib),
      method=self.method,
      compute_bytes=jnp.dtype(self.dtype).itemsize,
    )

  def backward(
    self, state: DSoftmaxState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    wide_ND, y = read_training_batch(h_ND, y, len(state.place_V), state.activations)
    how = self.plan(len(wide_ND), state.weights)
    _LOG.info("%s", how)
    place_NP, mean_w_NP = (
      at_places(state.place_V, y.ids_NP),
      y.w_NP / total_weight(y),
    )

    def mean_loss(h_ND, weights):
      parts = self.parts(weights, state, h_ND)
      own_NP = own_places(parts, place_NP)
      return parts_loss(parts, own_NP, mean_w_NP, how, dtype=self.dtype)

    weights = jax.tree.map(wide, state.weights)
    loss, (dh_ND, grads) = jax.value_and_grad(mean_loss, (0, 1))(wide_ND, weights)
    return head_step(loss, dh_ND, h_ND, grads, self.sq_norm(state, grads))

  def sq_norm(self, state: DSoftmaxState, grads: Weights) -> jax.Array:
    return sq_norm(grads.downs, shards.psum(sq_norm(grads.rows)))

  def update(
    self, state: DSoftmaxState, grads: Weights, lr: ArrayLike, scale: ArrayLike = 1.0
  ) -> DSoftmaxState:
    check_grads(grads, Weights)
    move = lambda table, g_VD: self.optimizer.dense_update(table, g_VD, lr, scale)
    with shards.one_block():  # all devices round projections alike
      downs = tuple(map(move, state.downs, grads.downs))
    rows = tuple(map(move, state.rows, grads.rows))
    return dataclasses.replace(state, rows=rows, downs=downs)

  def evaluate(
    self, state: DSoftmaxState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, exact, in nats."""
    h_ND, y = read_batch(h_ND, y, len(state.place_V), state.activations)
    parts = self.parts(state.weights, state, h_ND)
    place_NP = own_places(parts, at_places(state.place_V, y.ids_NP))
    return {"nll": parts_nll(parts, place_NP, y.w_NP, dtype=self.dtype)[0]}

  def top_k(
    self, state: DSoftmaxState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k most probable classes and their log-probabilities, best first."""
    h_ND = activations(h_ND, state.activations)
    parts = self.parts(state.weights, state, h_ND)
    return parts_top_k(parts, state.class_V, k, dtype=self.dtype)

  def class_rows(self, state: DSoftmaxState, ids_R: jax.Array) -> jax.Array:
    """Rows whose product with h and the constant feature is the logit.

    They are P_i^T w_c, or w_c in the columns of its slice and 0 elsewhere; then, if
    there is a bias, b_c and padding.
    """
    (rows, downs), place_R = state.weights, places_of(state.place_V, ids_R)
    rows_by_part, start = [], 0
    for w_VE, size in zip(rows, state.sizes, strict=True):
      is_here_R = (place_R >= start) & (place_R < start + size)
      at_R = jnp.where(is_here_R, place_R - start, size)
      with shards.table(size):
        rows_by_part.append(wide(shards.rows_of(w_VE, at_R)))
      start += size
    dim = state.activations.dim
    see = lambda h_ND: self.seen(downs, state.widths, h_ND)
    of_widths = list(zip(rows_by_part, state.widths, strict=True))
    _, pull_back = jax.vjp(see, jnp.zeros((len(ids_R), dim)))
    (wide_RD,) = pull_back([rows_RE[:, :width] for rows_RE, width in of_widths])
    if not self.bias:
      return wide_RD
    bias_R = sum(rows_RE[:, width] for rows_RE, width in of_widths)
    return self.features(wide_RD).at[:, dim].set(bias_R)
