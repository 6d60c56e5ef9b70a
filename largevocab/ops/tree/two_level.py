"""Two-level softmax: over clusters, then over the classes of each.

  log p(c | h) = log p(cluster of c | h) + log p(c | its cluster, h)

Both are softmaxes of linear logits: over the rows of a table of clusters, and over the
rows of the cluster's block, which has a slot for each of its classes. All blocks have
as many slots as the largest cluster; free slots have no probability.

Here K is the number of clusters and S of slots of a cluster.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype, logits, product, sum_dtype
from largevocab.ops.softmax.full import softmax_loss_naive
from largevocab.ops.softmax.log_partition import at_ids

_NONE = jnp.iinfo(jnp.int32).max


class Tiles(NamedTuple):
  """A tiles, each with T places for examples of one group.

  Attributes:
    group_A: i32[A], the group of each tile; `num_groups` on padding, which comes last.
    row_A: i32[A], index of the group in `ids_R`; R on padding.
    at_AT: i32[A, T], indices of the examples in it; out of range in free places.
    ids_R: i32[R], the groups that have examples, R = min(N, num_groups); padding is
      >= num_groups, and all are distinct.
    num: i32[], number of tiles without padding.
  """

  group_A: jax.Array
  row_A: jax.Array
  at_AT: jax.Array
  ids_R: jax.Array
  num: jax.Array


def tiles(group_N: jax.Array, num_groups: int, size: int) -> Tiles:
  """Sorts examples into tiles of `size` places, each for one group.

  Args:
    group_N: i32[N], the group of each example; groups >= num_groups are ignored.
    num_groups: K.
    size: T, places in a tile.

  Returns:
    At most N / T + min(N, K) tiles, and padding up to min(N, N / T + K).

  Cost: O(K + N log N).

  >>> cut = tiles(jnp.array([2, 0, 2, 2]), 3, 2)
  >>> cut.group_A.tolist(), cut.ids_R.tolist()
  ([0, 2, 2, 3], [0, 2, 5])
  >>> (cut.at_AT < 4).sum(axis=1).tolist(), cut.at_AT[1].tolist()
  ([1, 2, 1, 0], [0, 2])
  """
  (N,), K = group_N.shape, num_groups
  count_K = jnp.zeros(K, jnp.int32).at[group_N].add(1, mode="drop")
  tiles_K = -(-count_K // size)
  end_K = jnp.cumsum(tiles_K)
  at_A = jnp.arange(min(N, N // size + K), dtype=jnp.int32)
  group_A = jnp.searchsorted(end_K, at_A, side="right").astype(jnp.int32)

  # Examples sorted by group: those of tile A start at first_A.
  order_N = jnp.argsort(group_N).astype(jnp.int32)
  stop_K = jnp.cumsum(count_K)
  of_tile = lambda x_K: x_K.at[group_A].get(mode="fill", fill_value=0)
  first_A = of_tile(stop_K - count_K) + size * (at_A - of_tile(end_K - tiles_K))
  number_AT = first_A[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
  is_taken_AT = number_AT < of_tile(stop_K)[:, None]
  at_AT = jnp.where(is_taken_AT, order_N.at[number_AT].get(mode="clip"), _NONE)

  R = min(N, K)
  row_K = jnp.where(count_K > 0, jnp.cumsum(count_K > 0) - 1, R).astype(jnp.int32)
  ids_R = K + jnp.arange(R, dtype=jnp.int32)
  ids_R = ids_R.at[row_K].set(jnp.arange(K, dtype=jnp.int32), mode="drop")
  row_A = row_K.at[group_A].get(mode="fill", fill_value=R)
  return Tiles(group_A, row_A, at_AT, ids_R, end_K[-1])


def over_tiles(
  body: Callable[[Any, Tiles], Any], init: Any, tiles: Tiles, at_once: int
) -> Any:
  """`lax.fori_loop` over chunks of tiles: body(carry, tiles) -> carry.

  Padding tiles are skipped, except those that fill up the last chunk.

  >>> cut = tiles(jnp.array([2, 0, 2, 2]), 3, 2)
  >>> int(over_tiles(lambda n, part: n + (part.at_AT < 4).sum(), 0, cut, 2))
  4
  """
  at_once = min(at_once, len(tiles.group_A))

  def turn(i, carry):
    at_A = i * at_once + jnp.arange(at_once)
    take = lambda x: x.at[at_A].get(mode="fill", fill_value=_NONE)
    group_A, row_A, at_AT, *rest = tiles
    return body(carry, Tiles(take(group_A), take(row_A), take(at_AT), *rest))

  return lax.fori_loop(0, -(-tiles.num // at_once), turn, init)


_TILE = 8  # examples that read a block together
_BLOCK_BYTES = 2**20


class ClusterLayout(NamedTuple):
  """Assignment of classes to clusters and slots.

  Attributes:
    members_KS: i32[K, S], the classes of each cluster; free slots have V.
    cluster_V: i32[V], the cluster of each class.
    slot_V: i32[V], its slot there.
  """

  members_KS: jax.Array
  cluster_V: jax.Array
  slot_V: jax.Array


class TwoLevelGradients(NamedTuple):
  """TwoLevelGradients of `two_level_loss`; blocks that no example uses are left out.

  Attributes:
    x_ND: of the features.
    clusters_KD: of the cluster rows.
    ids_R: i32[R], distinct, the blocks of `rows_RSD`; padding is >= K.
    rows_RSD: of these blocks, zeros on padding.
  """

  x_ND: jax.Array
  clusters_KD: jax.Array
  ids_R: jax.Array
  rows_RSD: jax.Array


def layout(cluster_V: np.ndarray) -> ClusterLayout:
  """Assigns slots in the order of class ids. Clusters without a class are left out.

  Args:
    cluster_V: i32[V] on the host, any integers.

  >>> layout(np.array([7, 0, 7])).members_KS.tolist()
  [[1, 3], [0, 2]]
  """
  V = len(cluster_V)
  _, cluster_V, count_K = np.unique(cluster_V, return_inverse=True, return_counts=True)
  order_V = np.argsort(cluster_V, kind="stable")
  slot_V = np.empty(V, np.int32)
  slot_V[order_V] = np.arange(V) - np.repeat(np.cumsum(count_K) - count_K, count_K)
  members_KS = np.full((len(count_K), count_K.max()), V, np.int32)
  members_KS[cluster_V, slot_V] = np.arange(V)
  return ClusterLayout(
    *(jnp.array(a, jnp.int32) for a in (members_KS, cluster_V, slot_V))
  )


def check_two_level(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  **arrays: jax.Array,
) -> None:
  """Raises ValueError if shapes disagree; see `check_shapes`."""
  tables = {"clusters_KD": clusters_KD, "leaves_KSD": leaves_KSD}
  check_shapes(x_ND=x_ND, **tables, **layout._asdict())
  check_shapes(x_ND=x_ND, **arrays)


def log_p_naive(
  x_ND: jax.Array, clusters_KD: jax.Array, leaves_KSD: jax.Array, layout: ClusterLayout
) -> jax.Array:
  """Log-probabilities of all classes at once, f32[N, V].

  >>> clusters_KD, leaves_KSD = jnp.zeros((2, 3)), jnp.zeros((2, 2, 3))
  >>> where = layout(np.array([0, 0, 1]))
  >>> jnp.exp(log_p_naive(jnp.ones((1, 3)), clusters_KD, leaves_KSD, where)).tolist()
  [[0.25, 0.25, 0.5]]
  """
  check_two_level(x_ND, clusters_KD, leaves_KSD, layout)
  dtype = compute_dtype(x_ND, leaves_KSD)
  o_NKS = product("nd,ksd->nks", x_ND, leaves_KSD, dtype)
  is_class_KS = layout.members_KS < len(layout.cluster_V)
  log_p_NKS = jax.nn.log_softmax(jnp.where(is_class_KS[None], o_NKS, -jnp.inf))
  log_p_NKS += jax.nn.log_softmax(logits(x_ND, clusters_KD, dtype))[:, :, None]
  return log_p_NKS[:, layout.cluster_V, layout.slot_V]


def two_level_nll(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  ids_NP: jax.Array,
) -> jax.Array:
  """-log p of the given classes, exact; 0 on padding.

  Args:
    x_ND: float[N, D], features.
    clusters_KD: float[K, D], a row per cluster.
    leaves_KSD: float[K, S, D], the block of each cluster, a row per slot.
    layout: clusters and slots of classes.
    ids_NP: i32[N, P], padded with V.

  Returns:
    f32[N, P], nats.

  Source: Morin and Bengio 2005, with a tree of two levels and many children a node in
    place of a binary one; Goodman 2001, classes for maximum entropy.

  Cost: products of N K D and, on tiles of 8 examples that share a cluster, N P S D;
    holds [N, K] and 1 MiB of blocks. Blocks of clusters without any of the ids are not
    read.

  >>> clusters_KD, leaves_KSD = jnp.zeros((2, 3)), jnp.zeros((2, 2, 3))
  >>> where, ids_NP = layout(np.array([0, 0, 1])), jnp.array([[1, 2, 3]])
  >>> nll_NP = two_level_nll(jnp.ones((1, 3)), clusters_KD, leaves_KSD, where, ids_NP)
  >>> jnp.exp(-nll_NP).tolist()
  [[0.25, 0.5, 1.0]]
  """
  check_two_level(x_ND, clusters_KD, leaves_KSD, layout, ids_NP=ids_NP)
  dtype = compute_dtype(x_ND, leaves_KSD)
  log_p_NK = jax.nn.log_softmax(logits(x_ND, clusters_KD, dtype))
  log_p_NP = at_ids(log_p_NK, _clusters(layout, ids_NP))
  cut = _cut(leaves_KSD, layout, ids_NP, jnp.ones(ids_NP.shape, bool))

  def add(nll_M, part):
    slots = _read(part, x_ND, leaves_KSD, layout, ids_NP)
    return nll_M.at[part.at_AT].set(_tile_nll(*slots), mode="drop")

  nll_M = jnp.zeros(ids_NP.size, sum_dtype(dtype))
  nll_M = over_tiles(add, nll_M, cut, _at_once(leaves_KSD))
  return nll_M.reshape(ids_NP.shape) - log_p_NP


def two_level_loss(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  ids_NP: jax.Array,
  w_NP: jax.Array,
) -> tuple[jax.Array, TwoLevelGradients]:
  """loss = sum_np w_NP nll_NP, see `two_level_nll`, and its gradients.

  Args:
    w_NP: f32[N, P], weights, 0 on padding. Divide them by their sum for a mean. Classes
      of weight 0 update no block.
    The others: see `two_level_nll`.

  Returns:
    f32[], nats, and gradients.

  Cost: three times that of `two_level_nll`; writes min(N P, K) blocks.

  >>> clusters_KD, leaves_KSD = jnp.zeros((2, 3)), jnp.zeros((2, 2, 3))
  >>> where, ids_NP = layout(np.array([0, 0, 1])), jnp.array([[1, 3]])
  >>> loss, grads = two_level_loss(jnp.ones((1, 3)), clusters_KD, leaves_KSD, where,
  ...                              ids_NP, jnp.array([[1.0, 0.0]]))
  >>> f"{loss:.4f}", grads.ids_R.tolist(), grads.rows_RSD[0].tolist()  # log 4
  ('1.3863', [0, 3], [[0.5, 0.5, 0.5], [-0.5, -0.5, -0.5]])
  """
  check_two_level(x_ND, clusters_KD, leaves_KSD, layout, ids_NP=ids_NP, w_NP=w_NP)
  cluster_NP = _clusters(layout, ids_NP)
  loss, (dx_ND, dclusters_KD) = jax.value_and_grad(softmax_loss_naive, (0, 1))(
    x_ND, clusters_KD, cluster_NP, w_NP
  )
  cut = _cut(leaves_KSD, layout, ids_NP, w_NP > 0)

  def add(so_far, part):
    loss, dx_ND, rows_RSD = so_far
    x_ATD, w_ASD, *where = _read(part, x_ND, leaves_KSD, layout, ids_NP)
    w_AT = w_NP.ravel().at[part.at_AT].get(mode="fill", fill_value=0)
    tiles_loss = lambda *args: jnp.sum(w_AT * _tile_nll(*args, *where))
    more, (dx_ATD, dw_ASD) = jax.value_and_grad(tiles_loss, (0, 1))(x_ATD, w_ASD)
    dx_ND = dx_ND.at[part.at_AT // ids_NP.shape[1]].add(dx_ATD, mode="drop")
    return loss + more, dx_ND, rows_RSD.at[part.row_A].add(dw_ASD, mode="drop")

  rows_RSD = jnp.zeros((len(cut.ids_R), *leaves_KSD.shape[1:]), leaves_KSD.dtype)
  loss, dx_ND, rows_RSD = over_tiles(
    add, (loss, dx_ND, rows_RSD), cut, _at_once(leaves_KSD)
  )
  return loss, TwoLevelGradients(dx_ND, dclusters_KD, cut.ids_R, rows_RSD)


def _clusters(layout, ids):
  """The cluster of each class, K on padding."""
  K = len(layout.members_KS)
  return layout.cluster_V.at[ids].get(mode="fill", fill_value=K)


def _at_once(leaves_KSD) -> int:
  """Tiles whose blocks are read together."""
  return max(_BLOCK_BYTES // (4 * math.prod(leaves_KSD.shape[1:])), 1)


def _cut(leaves_KSD, layout, ids_NP, is_read_NP) -> Tiles:
  """The M = N P true classes with `is_read_NP`, in tiles of one cluster."""
  K = len(leaves_KSD)
  cluster_NP = jnp.where(is_read_NP, _clusters(layout, ids_NP), K)
  return tiles(cluster_NP.ravel(), K, _TILE)


def _read(part: Tiles, x_ND, leaves_KSD, layout, ids_NP):
  """Features [A, T, D], blocks [A, S, D], which of their slots are occupied, and the
  slots [A, T] of the true classes; in free places slot 0, which is always occupied."""
  V = len(layout.cluster_V)
  members_AS = layout.members_KS.at[part.group_A].get(mode="clip")
  ids_AT = ids_NP.ravel().at[part.at_AT].get(mode="fill", fill_value=V)
  return (
    x_ND.at[part.at_AT // ids_NP.shape[1]].get(mode="clip"),
    leaves_KSD.at[part.group_A].get(mode="clip"),
    members_AS < V,
    layout.slot_V.at[ids_AT].get(mode="fill", fill_value=0),
  )


def _tile_nll(x_ATD, w_ASD, is_class_AS, slot_AT):
  """-log p of the slots in their blocks, [A, T]."""
  o_ATS = product("atd,asd->ats", x_ATD, w_ASD, compute_dtype(x_ATD, w_ASD))
  log_p_ATS = jax.nn.log_softmax(jnp.where(is_class_AS[:, None], o_ATS, -jnp.inf))
  return -jnp.take_along_axis(log_p_ATS, slot_AT[:, :, None], axis=2)[:, :, 0]
