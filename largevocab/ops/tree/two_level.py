"""Two-level softmax: over clusters, then over the classes of each cluster.

  log p(c | h) = log p(cluster of c | h) + log p(c | its cluster, h)

Both are softmaxes of linear logits: over the rows of a table of clusters, and over the
rows of the cluster's block, which has a slot for each of its classes. All blocks have
as many slots as the largest cluster; free slots have no probability.

On several devices, each device has whole clusters, and tells the others where its
classes are.

Here K is the number of clusters, and S the number of slots of a cluster.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops import shards
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import (
  compute_dtype,
  logits,
  product,
  sum_dtype,
  wide,
)
from largevocab.ops.softmax.log_partition import at_ids
from largevocab.ops.softmax.parts import Part, parts_loss_by_examples
from largevocab.ops.tree.blocks import BlockGrads, rows_at
from largevocab.ops.tree.tiles import TILE, Tiles, blocks_at_once, over_tiles, tiles


class ClusterLayout(NamedTuple):
  """Assignment of classes to clusters and slots.

  Attributes:
    members_KS: i32[K, S], the classes of each cluster; free slots have V.
    cluster_V: i32[V], the cluster of each class.
    slot_V: i32[V], the slot of each class in its cluster.
    blocks: blocks of the clusters, if they are sharded over devices. Static. The device
      then has the rows of `members_KS` by cluster, and entries of the other arrays by
      class.
  """

  members_KS: jax.Array
  cluster_V: jax.Array
  slot_V: jax.Array
  blocks: Blocks | None = None


class TwoLevelGradients(NamedTuple):
  """Gradients of `two_level_loss`.

  Attributes:
    x_ND: gradient of the features.
    clusters_KD: gradient of the cluster rows.
    leaves: gradient of the blocks, with a term for each of the M = N P true classes;
      those without weight are padding.
  """

  x_ND: jax.Array
  clusters_KD: jax.Array
  leaves: BlockGrads


def layout(cluster_V: np.ndarray) -> ClusterLayout:
  """Assigns slots in the order of class ids. Clusters without a class are left out.

  Args:
    cluster_V: i32[V] on the host, any integers.

  >>> layout(np.array([7, 0, 7])).members_KS.tolist()
  [[1, 3], [0, 2]]
  """
  return jax.tree.map(jnp.array, host_layout(cluster_V))


def host_layout(cluster_V: np.ndarray) -> ClusterLayout:
  """`layout` in the memory of the host."""
  V = len(cluster_V)
  _, cluster_V, count_K = np.unique(cluster_V, return_inverse=True, return_counts=True)
  order_V = np.argsort(cluster_V, kind="stable")
  slot_V = np.empty(V, np.int32)
  slot_V[order_V] = np.arange(V) - np.repeat(np.cumsum(count_K) - count_K, count_K)
  members_KS = np.full((len(count_K), count_K.max()), V, np.int32)
  members_KS[cluster_V, slot_V] = np.arange(V)
  return ClusterLayout(members_KS, cluster_V.astype(np.int32), slot_V)  # pyrefly: ignore


def check_two_level(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  **arrays: jax.Array,
) -> None:
  """Raises ValueError if shapes disagree; see `check_shapes`."""
  tables = {"clusters_KD": clusters_KD, "leaves_KSD": leaves_KSD}
  where = dict(zip(layout._fields[:3], layout[:3], strict=True))
  check_shapes(x_ND=x_ND, **tables, **where)
  check_shapes(x_ND=x_ND, **arrays)


def two_level_nll(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  ids_NP: jax.Array,
  *,
  dtype=None,
) -> jax.Array:
  """-log p of the given classes, exact; 0 on padding. The same on all devices.

  Args:
    x_ND: float[N, D], features.
    clusters_KD: float[K, D], a row per cluster.
    leaves_KSD: float[K, S, D], the block of each cluster, a row per slot.
    layout: clusters and slots of classes.
    ids_NP: i32[N, P], padded with V.
    dtype: type of the operands of the products, by default that of the arguments;
      logits, sums and gradients are at least float32.

  Returns:
    f32[N, P], nats.

  Source: Morin and Bengio 2005, with a tree of two levels and many children a node in
    place of a binary one; Goodman 2001, classes for maximum entropy.

  Cost: products of N K D and, on tiles of 8 examples that share a cluster, N P S D;
    holds [N, K] and 1 MiB of blocks. Blocks of clusters that have none of the ids are
    not read.

  >>> clusters_KD, leaves_KSD = jnp.zeros((2, 3)), jnp.zeros((2, 2, 3))
  >>> where, ids_NP = layout(np.array([0, 0, 1])), jnp.array([[1, 2, 3]])
  >>> nll_NP = two_level_nll(jnp.ones((1, 3)), clusters_KD, leaves_KSD, where, ids_NP)
  >>> jnp.exp(-nll_NP).tolist()
  [[0.25, 0.5, 1.0]]
  """
  check_two_level(x_ND, clusters_KD, leaves_KSD, layout, ids_NP=ids_NP)
  dtype = compute_dtype(x_ND, leaves_KSD, dtype)
  log_p_NK = log_p_of_clusters(x_ND, clusters_KD, layout, dtype)
  cluster_NP, slot_NP = places(layout, ids_NP)
  log_p_NP = at_ids(log_p_NK, cluster_NP)

  def add(nll_M, part):
    x_ATD, w_ASD, *where = _read(part, x_ND, leaves_KSD, layout, slot_NP)
    nll_AT = _nll(product("atd,asd->ats", x_ATD, w_ASD, dtype), *where)
    return nll_M.at[part.at_AT].set(nll_AT, mode="drop")

  nll_M = jnp.zeros(ids_NP.size, sum_dtype(dtype))
  cut = tiles(cluster_NP.ravel(), len(leaves_KSD), TILE)
  nll_M = over_tiles(add, nll_M, cut, blocks_at_once(*leaves_KSD.shape[1:]))
  return shards.psum(nll_M.reshape(ids_NP.shape) - log_p_NP)


def two_level_loss(
  x_ND: jax.Array,
  clusters_KD: jax.Array,
  leaves_KSD: jax.Array,
  layout: ClusterLayout,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  dtype=None,
) -> tuple[jax.Array, TwoLevelGradients]:
  """loss = sum_np w_NP nll_NP, see `two_level_nll`, and its gradients.

  Args:
    w_NP: f32[N, P], weights, 0 on padding. Divide them by their sum for a mean. Classes
      of weight 0 update no block.
    The others: see `two_level_nll`.

  Returns:
    f32[], nats, and gradients.

  Cost: three times that of `two_level_nll`, and the factors, M (S + D) numbers.

  >>> clusters_KD, leaves_KSD = jnp.zeros((2, 3)), jnp.zeros((2, 2, 3))
  >>> where, ids_NP = layout(np.array([0, 0, 1])), jnp.array([[1, 3]])
  >>> loss, grads = two_level_loss(jnp.ones((1, 3)), clusters_KD, leaves_KSD, where,
  ...                              ids_NP, jnp.array([[1.0, 0.0]]))
  >>> leaves = grads.leaves
  >>> f"{loss:.4f}", leaves.ids_M.tolist(), leaves.d_MS.tolist()  # log 4
  ('1.3863', [0, 2], [[0.5, -0.5], [0.0, 0.0]])
  """
  check_two_level(x_ND, clusters_KD, leaves_KSD, layout, ids_NP=ids_NP, w_NP=w_NP)
  dtype = compute_dtype(x_ND, leaves_KSD, dtype)
  (N, P), (K, S, _) = ids_NP.shape, leaves_KSD.shape
  cluster_NP, slot_NP = places(layout, ids_NP)

  def clusters_loss(x_ND, clusters_KD):
    kind = {"examples": N, "dtype": dtype}
    return parts_loss_by_examples((Part(x_ND, clusters_KD),), cluster_NP, w_NP, **kind)

  with shards.over(layout.blocks):
    loss, (dx_ND, dclusters_KD) = jax.value_and_grad(clusters_loss, (0, 1))(
      x_ND, wide(clusters_KD)
    )

  def add(so_far, part):
    loss, dx_ND, d_MS = so_far
    x_ATD, w_ASD, *where = _read(part, x_ND, leaves_KSD, layout, slot_NP)
    w_AT = w_NP.ravel().at[part.at_AT].get(mode="fill", fill_value=0)
    tiles_loss = lambda o_ATS: jnp.sum(w_AT * _nll(o_ATS, *where))
    o_ATS = product("atd,asd->ats", x_ATD, w_ASD, dtype)
    more, d_ATS = jax.value_and_grad(tiles_loss)(o_ATS)
    dx_ATD = product("ats,asd->atd", d_ATS, w_ASD, dtype)
    dx_ND = dx_ND.at[part.at_AT // P].add(dx_ATD, mode="drop")
    return loss + more, dx_ND, d_MS.at[part.at_AT].set(d_ATS, mode="drop")

  cluster_M = jnp.where(w_NP != 0, cluster_NP, K).ravel()
  d_MS = jnp.zeros((N * P, S), sum_dtype(dtype))
  loss, dx_ND, d_MS = over_tiles(
    add,
    (shards.on_first_device(loss, 0), dx_ND, d_MS),
    tiles(cluster_M, K, TILE),
    blocks_at_once(*leaves_KSD.shape[1:]),
  )
  x_MD = jnp.repeat(x_ND.astype(dtype), P, axis=0)
  loss = shards.psum(loss)
  leaves = BlockGrads(cluster_M, d_MS, x_MD)
  return loss, TwoLevelGradients(dx_ND, dclusters_KD, leaves)


def places(layout: ClusterLayout, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The cluster and slot of each class; K on padding and for other devices' classes.

  >>> [x.tolist() for x in places(layout(np.array([7, 0, 7])), jnp.array([2, 1, 3]))]
  [[1, 0, 2], [1, 0, 0]]
  """
  K = len(layout.members_KS)
  cluster = shards.pmax(layout.cluster_V.at[ids].get(mode="fill", fill_value=-1))
  slot = shards.pmax(layout.slot_V.at[ids].get(mode="fill", fill_value=0))
  with shards.over(layout.blocks):
    return jnp.where(cluster < 0, K, shards.own_rows(cluster, K)), slot


def log_p_of_clusters(
  x_ND: jax.Array, clusters_KD: jax.Array, layout: ClusterLayout, dtype
) -> jax.Array:
  """Log-probabilities of clusters, f32[N, K]; on several devices, those of this one."""
  o_NK, K = logits(x_ND, clusters_KD, dtype), len(clusters_KD)
  with shards.over(layout.blocks):
    is_cluster_K = shards.used(jnp.arange(K), K, jnp.bool(True))
    return shards.log_softmax(jnp.where(is_cluster_K, o_NK, -jnp.inf))


def _read(part: Tiles, x_ND, leaves_KSD, layout, slot_NP):
  """Features, blocks, occupied slots, and slots of the true classes.

  They are features [A, T, D], blocks [A, S, D], which of their slots are occupied, and
  the slots [A, T] of the true classes. Free places have slot 0, which counts as
  occupied.
  """
  V, (K, *shape) = shards.num_classes(len(layout.cluster_V)), leaves_KSD.shape
  # As they are stored: otherwise compilers for TPU pad all blocks to look some up.
  blocks_AE = rows_at(leaves_KSD.reshape(K, -1), part.group_A)
  members_AS = layout.members_KS.at[part.group_A].get(mode="clip")
  return (
    x_ND.at[part.at_AT // slot_NP.shape[1]].get(mode="clip"),
    blocks_AE.reshape(-1, *shape),
    (members_AS < V).at[:, 0].set(True),
    slot_NP.ravel().at[part.at_AT].get(mode="fill", fill_value=0),
  )


def _nll(o_ATS, is_class_AS, slot_AT):
  """-log p of the slots, from the logits of their blocks, [A, T]."""
  log_p_ATS = jax.nn.log_softmax(jnp.where(is_class_AS[:, None], o_ATS, -jnp.inf))
  return -jnp.take_along_axis(log_p_ATS, slot_AT[:, :, None], axis=2)[:, :, 0]
