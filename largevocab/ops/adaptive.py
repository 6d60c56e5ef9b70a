"""The adaptive softmax: frequent classes at once, rare ones by way of their cluster.

  p(c | h) = p(c | short list and clusters, h)                   c on the short list
  p(c | h) = p(cluster of c | ..., h) p(c | its cluster, h)      else

Both are softmaxes of linear logits: the first over the rows of the short list and one
row for each tail, the others over the rows of a tail, which are narrower and see a
projection of h. Classes are named by their place: short list first, tail by tail.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops.class_chunks import compute_dtype, logits, product
from largevocab.ops.clusters import Clusters, places
from largevocab.ops.constant_feature import extend, extended_width
from largevocab.ops.full_softmax import softmax_loss
from largevocab.ops.normalizer import softmax_nll
from largevocab.ops.routing import over_turns, route, sum_of_turns
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax_plan import plan


class Tail(NamedTuple):
  """What tells the classes of a tail apart.

  Attributes:
    down_ED: projects activations to the width of the tail.
    rows_VE: a row for each class of the tail: as wide as the projection or, with a
      bias, as `largevocab.ops.constant_feature.extend` makes it.
  """

  down_ED: jax.Array
  rows_VE: jax.Array

  def features(self, h_ND: jax.Array, dtype=None) -> jax.Array:
    """h as the rows see it; dtype: of the operands of the projection."""
    dtype = compute_dtype(h_ND, self.down_ED, dtype)
    x_NE = product("nd,ed->ne", h_ND, self.down_ED, dtype)
    has_bias = self.rows_VE.shape[1] > self.down_ED.shape[0]
    return extend(x_NE) if has_bias else x_NE


class Model(NamedTuple):
  """All parameters.

  Attributes:
    head_VD: a row for each class of the short list, then one for each tail; as wide as
      h or, with a bias, as `largevocab.ops.constant_feature.extend` makes it.
    tails: of rarer and rarer classes.
  """

  head_VD: jax.Array
  tails: tuple[Tail, ...]

  @property
  def sizes(self) -> tuple[int, ...]:
    """Classes of the short list and of each tail."""
    of_tails = tuple(len(tail.rows_VE) for tail in self.tails)
    return (len(self.head_VD) - len(of_tails), *of_tails)

  def features(self, h_ND: jax.Array) -> jax.Array:
    """h as the rows of the short list see it."""
    return extend(h_ND) if self.head_VD.shape[1] > h_ND.shape[1] else h_ND


class Gradients(NamedTuple):
  """d loss / d all that `adaptive_loss` reads.

  Attributes:
    h_ND: of the activations.
    model: of the parameters, as they are.
    reached_J: i32[J], how many true classes each tail has; where 0, its gradient is 0.
  """

  h_ND: jax.Array
  model: Model
  reached_J: jax.Array


def capacities(clusters: Clusters, num: int) -> tuple[int, ...]:
  """Places for the true classes of each tail: see `largevocab.ops.clusters.places`.

  Args:
    clusters: whose masses say what share of the true classes is in each.
    num: how many true classes there are, in all.

  >>> capacities(Clusters((1, 3, 9), (8, 4, 2), (0.7, 0.2, 0.1)), 1000)
  (264, 144)
  """
  return tuple(places(num * np.array(clusters.masses[1:]), num).tolist())


def log_p_naive(h_ND: jax.Array, model: Model) -> jax.Array:
  """Log-probabilities of all classes by place, f32[N, V], from all logits at once.

  >>> tail = Tail(jnp.zeros((1, 2)), jnp.zeros((2, 1)))
  >>> jnp.exp(log_p_naive(jnp.ones((1, 2)), Model(jnp.zeros((2, 2)), (tail,)))).tolist()
  [[0.5, 0.25, 0.25]]
  """
  dtype = compute_dtype(h_ND, model.head_VD)
  log_p_NV = jax.nn.log_softmax(logits(model.features(h_ND), model.head_VD, dtype))
  parts = [log_p_NV[:, : model.sizes[0]]]
  for i, tail in enumerate(model.tails):
    log_q_NV = jax.nn.log_softmax(logits(tail.features(h_ND), tail.rows_VE, dtype))
    parts.append(log_p_NV[:, model.sizes[0] + i, None] + log_q_NV)
  return jnp.concatenate(parts, axis=1)


def adaptive_nll(
  h_ND: jax.Array,
  model: Model,
  place_NP: jax.Array,
  w_NP: jax.Array,
  capacities: tuple[int, ...],
  *,
  dtype=None,
) -> jax.Array:
  """nll_N = -sum_p w_NP log p(class at place_NP) / sum_p w_NP, exact; 0 without weight.

  Args:
    h_ND: float[N, D], activations.
    model: all parameters.
    place_NP: i32[N, P], places of true classes, padded with V.
    w_NP: f32[N, P], their weights, 0 on padding.
    capacities: true classes that a tail looks at together, see `capacities`; what
      there are more takes more turns.
    dtype: of the operands of the products; sums are at least float32.

  Returns:
    f32[N], nats.

  Cost: a product of N with the short list and, for each tail, one of its capacity with
    its rows; never holds [N, V].

  >>> tail = Tail(jnp.zeros((1, 2)), jnp.zeros((2, 1)))
  >>> model, place_NP = Model(jnp.zeros((2, 2)), (tail,)), jnp.array([[0], [2]])
  >>> nll_N = adaptive_nll(jnp.ones((2, 2)), model, place_NP, jnp.ones((2, 1)), (1,))
  >>> jnp.exp(-nll_N).tolist()
  [0.5, 0.25]
  """
  _check(h_ND, model, place_NP, w_NP, capacities)
  x_ND, head_NP = model.features(h_ND), _in_head(model.sizes, place_NP)
  nll_N = softmax_nll(x_ND, model.head_VD, head_NP, w_NP, dtype=dtype)
  scale_N = w_NP.sum(axis=1)
  scale_N = jnp.where(scale_N > 0, 1 / jnp.where(scale_N > 0, scale_N, 1), 0)
  for tail, way, local_M in _routed(model, place_NP, w_NP, capacities):

    def add(nll_N, at_K, tail=tail, local_M=local_M):
      h_KD, local_K1, w_K1, example_K = _read(at_K, h_ND, tail, local_M, w_NP)
      is_there_K1 = (w_K1 > 0).astype(w_K1.dtype)
      x_KE = tail.features(h_KD, dtype)
      nll_K = softmax_nll(x_KE, tail.rows_VE, local_K1, is_there_K1, dtype=dtype)
      part_K = w_K1[:, 0] * nll_K * scale_N.at[example_K].get(mode="clip")
      return nll_N.at[example_K].add(part_K, mode="drop")

    nll_N = over_turns(add, nll_N, way)
  return nll_N


def adaptive_loss(
  h_ND: jax.Array,
  model: Model,
  place_NP: jax.Array,
  w_NP: jax.Array,
  capacities: tuple[int, ...],
  *,
  method: str = "auto",
  budget_bytes: int = 64 * 2**20,
  dtype=None,
) -> tuple[jax.Array, Gradients]:
  """loss = -sum_np w_NP log p(class at place_NP), exact, and its gradients.

  A tail reads the examples whose true class it has, in an array of the size of its
  capacity. What does not fit is read in further turns, none is left out; a tail with no
  true class in the batch is skipped.

  Args:
    w_NP: f32[N, P], weights, 0 on padding. Divide them by their sum for a mean. What
      has no weight reaches no tail.
    method: how to cut products, see `largevocab.ops.softmax_plan.plan`.
    budget_bytes: temporary memory of the largest of the softmaxes.
    The others: see `adaptive_nll`.

  Returns:
    f32[], nats, and gradients.

  Source: paper 004 (Grave et al. 2017), sections 4.2 and 4.3: a short list in the root
    of a tree of two levels, and tails of lower capacity. The static capacity and the
    further turns are not in the paper: they are what shapes known in advance ask for.

  Cost: three products where `adaptive_nll` has one (four where logits do not fit into
    the budget); writes a gradient of the size of the model.

  >>> tail = Tail(jnp.zeros((1, 2)), jnp.zeros((2, 1)))
  >>> model, place_NP = Model(jnp.zeros((2, 2)), (tail,)), jnp.array([[0], [2]])
  >>> loss, grads = adaptive_loss(jnp.ones((2, 2)), model, place_NP, jnp.ones((2, 1)),
  ...                             (1,))
  >>> f"{loss:.4f}", grads.reached_J.tolist()  # log 8
  ('2.0794', [1])
  """
  _check(h_ND, model, place_NP, w_NP, capacities)

  def softmax(x_ND, rows_VD, ids_NP, w_NP):
    size = jnp.dtype(compute_dtype(x_ND, rows_VD, dtype)).itemsize
    V, D = rows_VD.shape
    how = plan(len(x_ND), V, D, budget_bytes, method=method, compute_bytes=size)
    return softmax_loss(x_ND, rows_VD, ids_NP, w_NP, how, dtype=dtype)

  def head_loss(h_ND, head_VD):
    head_NP = _in_head(model.sizes, place_NP)
    return softmax(model.features(h_ND), head_VD, head_NP, w_NP)

  def tail_loss(h_KD, tail, local_K1, w_K1):
    return softmax(tail.features(h_KD, dtype), tail.rows_VE, local_K1, w_K1)

  def tail_gradients(at_K, tail, local_M):
    h_KD, local_K1, w_K1, example_K = _read(at_K, h_ND, tail, local_M, w_NP)
    loss, (dh_KD, dtail) = jax.value_and_grad(tail_loss, (0, 1))(
      h_KD, tail, local_K1, w_K1
    )
    dh_ND = jnp.zeros_like(h_ND).at[example_K].add(dh_KD, mode="drop")
    return loss, dh_ND, dtail

  loss, (dh_ND, dhead_VD) = jax.value_and_grad(head_loss, (0, 1))(h_ND, model.head_VD)
  dtails, reached = [], []
  for tail, way, local_M in _routed(model, place_NP, w_NP, capacities):
    zeros = jax.tree.map(jnp.zeros_like, (loss, h_ND, tail))
    body = functools.partial(tail_gradients, tail=tail, local_M=local_M)
    more, dh_of_tail_ND, dtail = sum_of_turns(body, zeros, way)
    loss, dh_ND = loss + more, dh_ND + dh_of_tail_ND
    dtails.append(dtail)
    reached.append(way.count)
  reached_J = jnp.array(reached, jnp.int32)
  return loss, Gradients(dh_ND, Model(dhead_VD, tuple(dtails)), reached_J)


def class_rows(model: Model, place_R: jax.Array) -> jax.Array:
  """Rows that log-probabilities are linear in h by, but for normalisers: of the short
  list its own; of a tail the row of the tail plus that of the class.

  Args:
    model: all parameters.
    place_R: i32[R], places of classes.

  Returns:
    f32[R, D'], as wide as h or, if there is any bias, as
    `largevocab.ops.constant_feature.extend` makes it.

  >>> tail = Tail(jnp.array([[2.0, 3.0]]), jnp.array([[1.0], [4.0]]))
  >>> model = Model(jnp.array([[5.0, 6.0], [0.5, 0.0]]), (tail,))
  >>> class_rows(model, jnp.array([0, 2])).tolist()
  [[5.0, 6.0], [8.5, 12.0]]
  """
  rows_RD = model.head_VD[_in_head(model.sizes, place_R)]
  starts = itertools.accumulate(model.sizes)
  for tail, start in zip(model.tails, starts, strict=False):
    (width, dim), (size, _) = tail.down_ED.shape, tail.rows_VE.shape
    # Indices below 0 would count from the end.
    local_R = jnp.where(place_R < start, size, place_R - start)
    rows_RE = tail.rows_VE.at[local_R].get(mode="fill", fill_value=0)
    wide_RD = rows_RE[:, :width] @ tail.down_ED
    if rows_RE.shape[1] > width:
      rest = extended_width(dim) - dim
      bias_R1 = rows_RE[:, width : width + 1]
      wide_RD = jnp.concatenate([wide_RD, jnp.pad(bias_R1, ((0, 0), (0, rest - 1)))], 1)
    more = wide_RD.shape[1] - rows_RD.shape[1]
    rows_RD = jnp.pad(rows_RD, ((0, 0), (0, max(more, 0))))
    rows_RD += jnp.pad(wide_RD, ((0, 0), (0, max(-more, 0))))
  return rows_RD


def _check(h_ND, model, place_NP, w_NP, capacities):
  check_shapes(h_ND=h_ND, place_NP=place_NP, w_NP=w_NP)
  if len(capacities) != len(model.tails):
    raise ValueError(f"{len(capacities)} capacities for {len(model.tails)} tails")


def _in_head(sizes: tuple[int, ...], place_NP: jax.Array) -> jax.Array:
  """The row of the head for each place: its own, or that of its tail."""
  ends_J = jnp.cumsum(jnp.array(sizes, jnp.int32))
  tail_NP = jnp.searchsorted(ends_J, place_NP, side="right").astype(jnp.int32)
  # Places >= V are after the last end, and so rows after the last tail.
  return jnp.where(tail_NP > 0, sizes[0] + tail_NP - 1, place_NP)


def _routed(model: Model, place_NP, w_NP, capacities):
  """Of each tail itself, the route of the M = N P true classes that it has, and the row
  of each of them there."""
  ends = tuple(itertools.accumulate(model.sizes))
  place_M, w_M = place_NP.ravel(), w_NP.ravel()
  spans = itertools.pairwise(ends)
  for tail, (start, end), capacity in zip(model.tails, spans, capacities, strict=True):
    is_here_M = (place_M >= start) & (place_M < end) & (w_M > 0)
    yield tail, route(is_here_M, capacity), place_M - start


def _read(at_K, h_ND, tail, local_M, w_NP):
  """Activations [K, D], rows [K, 1], weights [K, 1] and numbers [K] of the examples of
  a turn; free places have no row, no weight and no example."""
  take = lambda x_M, fill: x_M.at[at_K].get(mode="fill", fill_value=fill)[:, None]
  example_K = at_K // w_NP.shape[1]
  h_KD = h_ND.at[example_K].get(mode="clip")
  local_K1 = take(local_M, len(tail.rows_VE))
  return h_KD, local_K1, take(w_NP.ravel(), 0), example_K
