"""The two-level hierarchical softmax: first a cluster, then a class in it.

The letters K and S stand for the number of clusters and of slots of a cluster.
"""

import math
import os
import tokenize
import zipfile
from collections.abc import Callable
from dataclasses import field
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.fields import Between, CountOrNone, Dtype, OneOf, settings
from largevocab.heads.base import (
  ROWS,
  HeadStep,
  check_grads,
  head_step,
  read_batch,
  read_training_batch,
  total_weight,
)
from largevocab.heads.binning import BINNINGS
from largevocab.heads.linear import LinearHead
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations, knows_activations
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.softmax.chunks import wide
from largevocab.ops.softmax.log_partition import weighted_mean
from largevocab.ops.tree import blocks
from largevocab.ops.tree.blocks import BlockGrads
from largevocab.ops.tree.two_level import (
  ClusterLayout,
  host_layout,
  layout,
  places,
  two_level_loss,
  two_level_nll,
)
from largevocab.ops.tree.two_level_top_k import two_level_top_k
from largevocab.rows import SGD, RowOptimizer, Table, added, sq_norm

_MOST_SLOTS = 64  # per class: a free slot costs as much memory and time as any other


@knows_activations
class HierarchicalState(NamedTuple):
  """Parameters of the hierarchical softmax, and the clusters.

  Attributes:
    clusters: [K, D'] a row per cluster.
    leaves: [K, S D'] the rows of a cluster's S slots, concatenated.
    members_KS: i32[K, S], the classes of each cluster; V in free slots.
    cluster_V: i32[V], the cluster of each class.
    slot_V: i32[V], the slot of each class in its cluster.
    blocks: blocks of clusters, if they are sharded over devices. Static.
    activations: the activations that the state is for; None: not known. Static.
  """

  clusters: Table
  leaves: Table
  members_KS: jax.Array
  cluster_V: jax.Array
  slot_V: jax.Array
  blocks: Blocks | None = None
  activations: Activations | None = None

  @property
  def model(self) -> tuple[jax.Array, jax.Array, ClusterLayout]:
    """Arguments of the operations in `largevocab.ops.tree.two_level`."""
    clusters_KD = self.clusters.w_VD
    leaves_KSD = self.leaves.w_VD.reshape(*self.members_KS.shape, clusters_KD.shape[1])
    where = ClusterLayout(self.members_KS, self.cluster_V, self.slot_V, self.blocks)
    return clusters_KD, leaves_KSD, where


class HierarchicalGrads(NamedTuple):
  """Gradients of all cluster rows, and of the blocks of leaves that a batch uses.

  Attributes:
    clusters_KD: f32[K, D'].
    leaves: factors of blocks of S rows of width D'.
  """

  clusters_KD: jax.Array
  leaves: BlockGrads

  __add__ = added  # pyrefly: ignore


@settings
class Hierarchical(LinearHead):
  """p(c | h) = p(cluster of c | h) p(c | its cluster, h), two ordinary softmaxes.

  The head is exact and normalised over all classes, but it is not the same model as a
  full softmax: its quality depends on the clusters. Training reads only the cluster
  rows and the classes that share a cluster with a true class. Rows are trained as
  blocks: an optimiser updates all classes of a cluster together.

  Attributes:
    num_clusters: K, up to V; 0: sqrt(V), rounded up.
    binning: how classes are clustered. 'equal': sorted by decreasing count, clusters of
      equal size; 'frequency': of equal total count; 'sqrt': of equal sums of square
      roots of counts; 'brown': classes with similar neighbours in the text share a
      cluster, which takes minutes at every start. See `largevocab.heads.binning`.
    slack: limit on the largest of these clusters, relative to the mean size, 1 to 64. A
      larger limit distorts the binning less, but memory and time grow with the largest
      cluster. On 100 MB of Wikipedia 'sqrt' would have 3.3, and 'frequency' 44.
    clusters: path of a .npy file with i32[V], the cluster of each class, to use instead
      of a binning. Unused numbers are skipped. `largevocab-brown-clusters` writes such
      a file.
    dtype: type of the operands of matrix products, 'float32' or 'bfloat16'. Sums and
      log-partition functions are float32, and rows are of `optimizer.row_dtype`.
    optimizer: optimiser of the rows.

  Source: Morin and Bengio 2005, with a tree of two levels (Goodman 2001) instead of a
    binary one; a baseline in Vincent et al. 2015, section 6 and Grave et al. 2017,
    section 5. Deviation: all clusters are padded to the size of the largest one, so its
    size relative to the mean is limited: by `slack`, or to 64 if clusters come from a
    file.

  Cost: products of N (K + S) D and, for a batch in which few examples share a cluster,
    up to 8 times as much; four times that to train, plus min(N P, K) blocks of S D to
    update. Blocks of gradients are made where they are needed, twice, and never held
    together, so a step needs little memory besides the table. `evaluate` costs as much
    as the loss without its gradient, `top_k` as much as for a softmax. On several
    devices, each device holds some of the clusters.

  >>> state = Hierarchical(bias=False).init(jax.random.key(0), [1, 5, 3, 4], 2)
  >>> state.members_KS.tolist()
  [[1, 3], [0, 2]]
  """

  num_clusters: CountOrNone = 0
  binning: Annotated[str, OneOf(*BINNINGS)] = "equal"
  slack: Annotated[float, Between(1, _MOST_SLOTS)] = 1.5
  clusters: str = ""
  dtype: Dtype = "float32"
  optimizer: RowOptimizer = field(default_factory=SGD)

  def __post_init__(self):
    if self.num_clusters and self.clusters:
      raise UserError(
        f"head.num_clusters is {self.num_clusters}, but head.clusters names a file, "
        "which determines the number of clusters: set only one of them"
      )

  def init(
    self, key: jax.Array, counts: Counts | ArrayLike, dim: int
  ) -> HierarchicalState:
    counts, given = as_counts(counts), Activations(dim)
    return self._state(key, layout(self.cluster_of(counts)), given)

  def _state(
    self, key: jax.Array, where: ClusterLayout, given: Activations
  ) -> HierarchicalState:
    """The initial state with these clusters."""
    num, slots = where.members_KS.shape
    for_clusters, for_leaves = jax.random.split(key)
    clusters_KD = self.random_rows(for_clusters, num, given.dim)
    leaves_VD = self.random_rows(for_leaves, num * slots, given.dim)
    return HierarchicalState(
      self.optimizer.init(clusters_KD),
      self.optimizer.init(leaves_VD.reshape(num, -1)),
      *where,
      given,
    )

  def init_blocks(
    self, key: jax.Array, counts: Counts, dim: int, blocks: Blocks
  ) -> Callable[[int], HierarchicalState]:
    """Clusters are the same as on one device; cluster k is in block k % B."""
    given = Activations(dim)
    members_KS, *of_class, _ = host_layout(self.cluster_of(counts))
    clusters = Blocks(len(members_KS), blocks.num)
    if clusters.num_classes < blocks.num:
      raise UserError(
        f"mesh.blocks is {blocks.num}, but there are only {clusters.num_classes} "
        f"clusters: set mesh.blocks to {clusters.num_classes} or less, or use more "
        "clusters"
      )

    def part(x, of: Blocks, number, fill):
      rows = x[of.classes(number)]
      missing = [(0, of.size - len(rows))] + [(0, 0)] * (x.ndim - 1)
      return jnp.array(np.pad(rows, missing, constant_values=fill))

    def of_block(number):
      of_rows = jax.random.fold_in(key, number)
      own_KS = part(members_KS, clusters, number, blocks.num_classes)
      cluster_S, slot_S = (part(x, blocks, number, 0) for x in of_class)
      where = ClusterLayout(own_KS, cluster_S, slot_S, clusters)
      return self._state(of_rows, where, given)

    return of_block

  def sharding(self, state: HierarchicalState) -> HierarchicalState:
    """How the clusters, and the places of the classes, are sharded."""
    where = dict.fromkeys(("members_KS", "cluster_V", "slot_V"), ROWS)
    return super().sharding(state)._replace(**where)

  def cluster_of(self, counts: Counts) -> np.ndarray:
    """The cluster of each class, int[V].

    Raises:
      UserError: the file is missing or invalid for these classes; or the binning needs
        a token stream, and there is none.

    >>> Hierarchical(num_clusters=3).cluster_of(as_counts([1, 5, 3, 4])).tolist()
    [2, 0, 1, 0]
    """
    V = counts.num_classes
    if self.clusters:
      return _read_clusters(self.clusters, V)
    num = min(self.num_clusters or math.ceil(math.sqrt(V)), V)
    most = max(int(self.slack * V / num), -(-V // num))
    return BINNINGS[self.binning](counts, num, most)

  def backward(
    self, state: HierarchicalState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    wide_ND, y = read_training_batch(h_ND, y, len(state.cluster_V), state.activations)
    mean_w_NP = y.w_NP / total_weight(y)
    x_ND = self.features(wide_ND)
    loss, d = two_level_loss(x_ND, *state.model, y.ids_NP, mean_w_NP, dtype=self.dtype)
    grads = HierarchicalGrads(d.clusters_KD, d.leaves)
    return head_step(loss, d.x_ND, h_ND, grads, self.sq_norm(state, grads))

  def sq_norm(self, state: HierarchicalState, grads: HierarchicalGrads) -> jax.Array:
    of_leaves = blocks.sq_norm(grads.leaves, len(grads.clusters_KD))
    return shards.psum(sq_norm(grads.clusters_KD) + of_leaves)

  def update(
    self,
    state: HierarchicalState,
    grads: HierarchicalGrads,
    lr: ArrayLike,
    scale: ArrayLike = 1.0,
  ) -> HierarchicalState:
    check_grads(grads, HierarchicalGrads)
    step = self.optimizer.dense_update(state.clusters, grads.clusters_KD, lr, scale)
    leaves = self.optimizer.update(state.leaves, grads.leaves, lr, scale)
    return state._replace(clusters=step, leaves=leaves)

  def refresh(self, state: HierarchicalState, key: jax.Array) -> HierarchicalState:
    """Decays all rows up to now, if the optimiser's weight decay is decoupled."""
    return state._replace(leaves=self.optimizer.settled(state.leaves))

  def evaluate(
    self, state: HierarchicalState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, exact, in nats."""
    h_ND, y = read_batch(h_ND, y, len(state.cluster_V), state.activations)
    x_ND = self.features(h_ND)
    nll_NP = two_level_nll(x_ND, *state.model, y.ids_NP, dtype=self.dtype)
    return {"nll": weighted_mean(nll_NP, y.w_NP)}

  def top_k(
    self, state: HierarchicalState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k most probable classes and their log-probabilities, best first."""
    x_ND = self.features(wide(activations(h_ND, state.activations)))
    return two_level_top_k(x_ND, *state.model, k, dtype=self.dtype)

  def class_rows(self, state: HierarchicalState, ids_R: jax.Array) -> jax.Array:
    """The row of the class plus that of its cluster.

    log p(c | h) is <their sum, h> minus the log-partition functions of both softmaxes.
    """
    clusters_KD, _, where = state.model
    k_R, slot_R = places(where, shards.own_rows(ids_R, len(where.cluster_V)))
    of_clusters_RD = state.clusters.rows_at(k_R, mode="fill", fill_value=0)
    dim = clusters_KD.shape[1]
    of_leaves_RD = blocks.rows_within(state.leaves.w_VD, k_R, slot_R, dim)
    return shards.psum(of_clusters_RD + wide(of_leaves_RD))


def _read_clusters(path: str, V: int) -> np.ndarray:
  """The cluster of each of V classes from a file."""
  try:
    cluster_V = np.load(os.path.expanduser(path))
  except FileNotFoundError:
    raise UserError(
      f"head.clusters: {path} is missing: name a .npy file with the cluster of each "
      "class, or leave head.clusters empty for clusters by frequency"
    ) from None
  except (OSError, ValueError, EOFError, zipfile.BadZipFile, tokenize.TokenError):
    raise UserError(
      f"head.clusters: {path} is not a .npy file of numbers: write it with numpy.save"
    ) from None
  if not isinstance(cluster_V, np.ndarray) or cluster_V.dtype.kind not in "iu":
    raise UserError(
      f"head.clusters: {path} does not hold an array of integers: save i32[V]"
    )
  if cluster_V.shape != (V,):
    raise UserError(
      f"head.clusters: {path} has shape {cluster_V.shape}, but there are {V} classes: "
      f"save the cluster of each class, with shape ({V},)"
    )
  if cluster_V.min() < 0:
    c = int(np.argmax(cluster_V < 0))
    raise UserError(
      f"head.clusters: {path} puts class {c} into cluster {cluster_V[c]}: number "
      "clusters from 0"
    )
  _, size_K = np.unique(cluster_V, return_counts=True)
  slots = len(size_K) * int(size_K.max())
  if slots > _MOST_SLOTS * V:
    raise UserError(
      f"head.clusters: {path} has {len(size_K)} clusters of up to {size_K.max()} "
      f"classes, which takes {slots} slots for {V} classes, more than {_MOST_SLOTS} "
      "times as many: split the largest clusters"
    )
  return cluster_V
