"""Exact loss and gradients of the adaptive softmax of `largevocab.ops.adaptive.model`.

Each tail processes only the examples with a true class in it. On several devices, each
device processes the same examples with its own rows, so that all devices take the same
branches.

Here K is the capacity of a tail, and J the number of tails.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops import shards
from largevocab.ops.adaptive.clusters import Clusters, capacity_of
from largevocab.ops.adaptive.model import Model
from largevocab.ops.passes import over_live, sum_over_live
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype, wide
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.log_partition import softmax_nll
from largevocab.ops.softmax.plan import plan


class ClusterGradients(NamedTuple):
  """Gradients of `adaptive_loss`.

  Attributes:
    h_ND: gradient of the activations.
    model: gradient of the parameters, in the same layout.
    reached_J: i32[J], number of true classes in each tail; if 0, its gradient is 0.
  """

  h_ND: jax.Array
  model: Model
  reached_J: jax.Array


def capacities(clusters: Clusters, num: int, most: int = 1) -> tuple[int, ...]:
  """Capacity of each tail for the true classes of a batch: see `clusters.capacity_of`.

  Args:
    clusters: clusters with the expected share of true classes in each, and the mean
      number of labels per example.
    num: N, number of examples.
    most: P, maximum number of true classes of an example.

  >>> capacities(Clusters((1, 3, 9), (8, 4, 2), (0.7, 0.2, 0.1)), 1000)
  (264, 144)
  """
  mean_J = num * min(clusters.labels, most) * np.array(clusters.masses[1:])
  return tuple(capacity_of(mean_J, num * most).tolist())


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
    place_NP: i32[N, P], places of true classes, on all devices, padded with V.
    w_NP: f32[N, P], their weights, 0 on padding.
    capacities: number of true classes that a tail processes per round, see
      `capacities`; more of them take more rounds.
    dtype: type of the operands of the products; sums are at least float32.

  Returns:
    f32[N], nats.

  Cost: a product of N with the short-list and, for each tail, one of its capacity with
    its rows. Never holds [N, V].

  >>> from largevocab.ops.adaptive.model import Tail
  >>> tail = Tail(jnp.zeros((1, 2)), jnp.zeros((2, 1)))
  >>> model, place_NP = Model(jnp.zeros((2, 2)), (tail,)), jnp.array([[0], [2]])
  >>> nll_N = adaptive_nll(jnp.ones((2, 2)), model, place_NP, jnp.ones((2, 1)), (1,))
  >>> jnp.exp(-nll_N).tolist()
  [0.5, 0.25]
  """
  _check(h_ND, model, place_NP, w_NP, capacities)
  x_ND = model.features(h_ND)
  with shards.table(model.head_size):
    head_NP = shards.own_rows(model.head_rows(place_NP), len(model.head_VD))
    nll_N = softmax_nll(x_ND, model.head_VD, head_NP, w_NP, dtype=dtype)
  scale_N = w_NP.sum(axis=1)
  scale_N = jnp.where(scale_N == 0, 0, 1 / jnp.where(scale_N == 0, 1, scale_N))
  routed = _routed(model, place_NP, w_NP, capacities)
  for tail, size, capacity, is_here_M, local_M in routed:

    def add(nll_N, at_K, tail=tail, local_M=local_M):
      h_KD, local_K1, w_K1, example_K = _read(at_K, h_ND, tail, local_M, w_NP)
      is_there_K1 = (w_K1 != 0).astype(w_K1.dtype)
      x_KE = tail.features(h_KD, dtype)
      nll_K = softmax_nll(x_KE, tail.rows_VE, local_K1, is_there_K1, dtype=dtype)
      part_K = w_K1[:, 0] * nll_K * scale_N.at[example_K].get(mode="clip")
      return nll_N.at[example_K].add(part_K, mode="drop")

    with shards.table(size):
      nll_N = over_live(add, nll_N, is_here_M, capacity)
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
) -> tuple[jax.Array, ClusterGradients]:
  """loss = -sum_np w_NP log p(class at place_NP), exact, and its gradients.

  Each tail processes the examples with a true class in it in an array of its capacity.
  If there are more, it takes further rounds; none are dropped. A tail without a true
  class in the batch is skipped.

  Args:
    w_NP: f32[N, P], weights, 0 on padding. Divide them by their sum for a mean. Classes
      of weight 0 are not sent to a tail.
    method: how to chunk products, see `largevocab.ops.softmax.plan.plan`.
    budget_bytes: temporary memory of the largest of the softmaxes.
    The others: see `adaptive_nll`.

  Returns:
    f32[], nats, and gradients. On several devices, these are the gradient of h by the
    rows of this device, that of these rows, and that of whole projections.

  Source: Grave et al. 2017, sections 4.2 and 4.3: a short-list in the root of a tree of
    two levels, and tails of lower capacity. The static capacity and the rounds are not
    in the paper: they keep shapes static.

  Cost: three products where `adaptive_nll` has one (four if logits do not fit into the
    budget); writes a gradient of the size of the model.

  >>> from largevocab.ops.adaptive.model import Tail
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
    head_NP = shards.own_rows(model.head_rows(place_NP), len(head_VD))
    return softmax(model.features(h_ND), head_VD, head_NP, w_NP)

  def tail_loss(h_KD, tail, local_K1, w_K1):
    return softmax(tail.features(h_KD, dtype), tail.rows_VE, local_K1, w_K1)

  def tail_gradients(at_K, tail, local_M):
    h_KD, local_K1, w_K1, example_K = _read(at_K, h_ND, tail, local_M, w_NP)
    loss, (dh_KD, dtail) = jax.value_and_grad(tail_loss, (0, 1))(
      h_KD, jax.tree.map(wide, tail), local_K1, w_K1
    )
    dh_ND = jnp.zeros_like(h_ND).at[example_K].add(dh_KD, mode="drop")
    return loss, dh_ND, dtail

  with shards.table(model.head_size):
    loss, (dh_ND, dhead_VD) = jax.value_and_grad(head_loss, (0, 1))(
      h_ND, wide(model.head_VD)
    )
  dtails, reached = [], []
  routed = _routed(model, place_NP, w_NP, capacities)
  for tail, size, capacity, is_here_M, local_M in routed:
    zeros = jax.tree.map(jnp.zeros_like, (loss, h_ND, jax.tree.map(wide, tail)))
    body = functools.partial(tail_gradients, tail=tail, local_M=local_M)
    with shards.table(size):
      more, dh_of_tail_ND, dtail = sum_over_live(body, zeros, is_here_M, capacity)
    loss, dh_ND = loss + more, dh_ND + dh_of_tail_ND
    dtails.append(dtail._replace(down_ED=shards.psum(dtail.down_ED)))
    reached.append(jnp.sum(is_here_M, dtype=jnp.int32))
  reached_J = jnp.array(reached, jnp.int32)
  return loss, ClusterGradients(dh_ND, Model(dhead_VD, tuple(dtails)), reached_J)


def _check(h_ND, model, place_NP, w_NP, capacities):
  check_shapes(h_ND=h_ND, place_NP=place_NP, w_NP=w_NP)
  if len(capacities) != len(model.tails):
    raise ValueError(f"{len(capacities)} capacities for {len(model.tails)} tails")


def _routed(model: Model, place_NP, w_NP, capacities):
  """For each tail: itself, the number of its classes, its capacity, and two arrays.

  They are which of the M = N P true classes are in the tail and have weight, bool[M],
  and the row of each in the tail, i32[M].
  """
  ends = tuple(itertools.accumulate(model.sizes))
  place_M, w_M = place_NP.ravel(), w_NP.ravel()
  spans = itertools.pairwise(ends)
  for tail, (start, end), capacity in zip(model.tails, spans, capacities, strict=True):
    is_here_M = (place_M >= start) & (place_M < end) & (w_M != 0)
    with shards.table(end - start):
      local_M = shards.own_rows(place_M - start, len(tail.rows_VE))
    yield tail, end - start, capacity, is_here_M, local_M


def _read(at_K, h_ND, tail, local_M, w_NP):
  """The examples of a round.

  Returns activations [K, D], rows [K, 1], weights [K, 1] and indices [K]. Free places
  have out-of-range rows and indices, and weight 0.
  """
  take = lambda x_M, fill: x_M.at[at_K].get(mode="fill", fill_value=fill)[:, None]
  example_K = at_K // w_NP.shape[1]
  h_KD = h_ND.at[example_K].get(mode="clip")
  local_K1 = take(local_M, len(tail.rows_VE))
  return h_KD, local_K1, take(w_NP.ravel(), 0), example_K
