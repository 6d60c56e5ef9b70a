"""Frequency clusters of a head: a short-list, and tails with narrower rows."""

import abc
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import field
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.fields import (
  Ascending,
  Between,
  Count,
  CountOrNone,
  Dtype,
  FileName,
  MemoryMibOrDefault,
  OneOf,
  Share,
  Width,
  settings,
)
from largevocab.heads.base import ROWS, WHOLE, PyTree
from largevocab.labels import Counts, as_counts
from largevocab.ops import shards
from largevocab.ops.activations import Activations
from largevocab.ops.adaptive import cost_model
from largevocab.ops.adaptive.clusters import Clusters, cut, head_mass, widths
from largevocab.ops.adaptive.plan import ClusterPlan, Costs, plan_clusters, price
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.softmax.plan import METHODS
from largevocab.rows import SGD, RowOptimizer

_LOG = logging.getLogger("largevocab")
_MIB = 2**20
_BLOCKS = 2**31  # for the random numbers of blocks: no split of a key uses it


@settings
class Partitioned(abc.ABC):
  """Settings of heads with a short-list and tails with narrower rows.

  Classes are sorted by count and cut into clusters. This class stands beside
  `LinearHead`.

  The cutoffs are part of the model, and are recomputed when a run resumes. They depend
  on the counts, these attributes and the file of `cost_model`, but not on the device.
  The cost models of this package never change. Keep your own cost models with the runs
  that use them, or set `cutoffs` to the logged ones.

  On several devices the clusters are those of all classes. Each table is sharded: its
  row r is in block r % B. `place_V` and `class_V` are sharded likewise, and a batch's
  entries are looked up on the devices that have them. Projections, which are small, are
  on every device.

  Attributes:
    cutoffs: ends of the short-list and of each tail but the last, in classes. Empty:
      the cutoffs with the shortest predicted step of an adaptive softmax, see
      `largevocab.ops.adaptive.plan`, within the limits of `num_clusters`,
      `min_head_mass`, `enough_classes` and `max_mib`.
    num_clusters: number of clusters, including the short-list; 0: 2 to 5, whichever is
      fastest. 1: a short-list of all classes.
    factor: rows of each tail are narrower by this factor than those of the tail before.
    align: widths of tails are rounded up to a multiple of this.
    min_head_mass: least share of training examples whose class is on the short-list. By
      predicted time alone the short-list would be very short. 0.8 are 1,500 words of
      Europarl.
    enough_classes: a short-list of this size is long enough, whatever its mass. The
      default follows the common cutoffs of 20,000 and 60,000.
    max_mib: limit in MiB for all parameters of an adaptive softmax with these clusters,
      without optimiser statistics; 0: no limit.
    batch_examples: number of true classes per batch for which the predicted time is
      optimised: in a language model train.batch_size * train.unroll.
    cost_model: the device whose times are predicted: see
      `largevocab.ops.adaptive.cost_model.load`.
    method: how to chunk products: see `largevocab.ops.softmax.plan.plan`.
    dtype: type of the operands of matrix products, 'float32' or 'bfloat16'. Sums and
      log-partition functions are float32, and rows are of `optimizer.row_dtype`.
    budget_mib: temporary memory for loss and gradient, in MiB; 0: 64 on a CPU, 1,024
      elsewhere.
    optimizer: optimiser of rows and projections.
  """

  cutoffs: Annotated[tuple[Count, ...], Ascending()] = ()
  num_clusters: CountOrNone = 0
  factor: Width = 4
  align: Width = 8
  min_head_mass: Share = 0.8
  enough_classes: Count = 20_000
  max_mib: Annotated[float, Between(0, 2**30)] = 0.0
  batch_examples: Count = 2560
  cost_model: FileName = "cpu-float32-2026-11"
  method: Annotated[str, OneOf(*METHODS)] = "auto"
  dtype: Dtype = "float32"
  budget_mib: MemoryMibOrDefault = 0
  optimizer: RowOptimizer = field(default_factory=SGD)

  def __post_init__(self):
    num = len(self.cutoffs) + 1
    if self.cutoffs and self.num_clusters not in (0, num):
      raise UserError(
        f"head.num_clusters is {self.num_clusters}, but head.cutoffs = {self.cutoffs} "
        f"make {num} clusters: set only one of them"
      )

  def cluster_plan(self, counts: Counts, dim: int) -> ClusterPlan:
    """The clusters for these counts, and their predicted times.

    Raises:
      UserError: the limits cannot be met with these classes.
    """
    V, max_bytes = counts.num_classes, int(self.max_mib * _MIB)
    step = cost_model.load(self.cost_model).step
    labels = counts.classes_per_example
    costs = Costs(dim, step, self.batch_examples, labels=labels, **self.parameters())
    if self.cutoffs:
      if self.cutoffs[-1] >= V:
        raise UserError(
          f"head.cutoffs is {self.cutoffs}, but there are only V = {V} classes: use "
          "cutoffs below V, or leave head.cutoffs empty"
        )
      all_widths = widths(dim, len(self.cutoffs) + 1, self.factor, self.align)
      plan = price(cut(counts.unigram_V, self.cutoffs, all_widths), costs)
      if max_bytes and plan.num_bytes > max_bytes:
        raise UserError(
          f"head.max_mib is {self.max_mib}, but an adaptive softmax with "
          f"head.cutoffs = {self.cutoffs} takes {plan.num_bytes / _MIB:.3g} MiB: raise "
          "head.max_mib, or choose other head.cutoffs"
        )
      return plan
    if self.num_clusters > V:
      raise UserError(
        f"head.num_clusters is {self.num_clusters}, but there are only V = {V} "
        "classes: set it to V or less"
      )
    if not counts.unigram_V.any():
      raise UserError(
        "no class occurs in the training data, so there are no frequencies to cut "
        "clusters by: set head.cutoffs"
      )
    enough = min(self.enough_classes, V)
    try:
      return plan_clusters(
        counts.unigram_V,
        costs,
        num_clusters=self.num_clusters,
        factor=self.factor,
        align=self.align,
        min_head_mass=min(self.min_head_mass, head_mass(counts.unigram_V, enough)),
        max_bytes=max_bytes,
      )
    except ValueError as error:
      raise UserError(
        f"head.max_mib: {error}: raise head.max_mib or head.factor"
      ) from None

  @abc.abstractmethod
  def new_state(
    self,
    clusters: Clusters,
    dim: int,
    keys: tuple[jax.Array, jax.Array],
    place_V: jax.Array,
    class_V: jax.Array,
  ) -> PyTree:
    """Initial state with these clusters, or of one block of it.

    The state of a block has `shards.block_size` rows of each table.

    Args:
      clusters: the clusters of all classes.
      dim: D.
      keys: keys of the rows and of the projections; the second is the same in all
        blocks.
      place_V: see `places`; for a block, its entries.
      class_V: likewise.
    """

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> PyTree:
    counts, dim = as_counts(counts), Activations(dim).dim
    clusters = self.clusters(counts, dim)
    places = map(jnp.asarray, self.places(counts, clusters))
    return self.new_state(clusters, dim, (key, key), *places)

  def init_blocks(
    self, key: jax.Array, counts: Counts, dim: int, blocks: Blocks
  ) -> Callable[[int], PyTree]:
    """Finds clusters and places once, and takes the part of each block from them.

    Raises:
      UserError: a cluster has fewer classes than there are blocks.
    """
    dim = Activations(dim).dim
    clusters = self.clusters(counts, dim)
    if min(clusters.sizes) < blocks.num:
      raise UserError(
        f"mesh.blocks is {blocks.num}, but the clusters have {clusters.sizes} classes: "
        f"set mesh.blocks to {min(clusters.sizes)} or less, or head.cutoffs so that "
        "each cluster has at least as many classes as there are blocks"
      )
    places = self.places(counts, clusters)

    # With some generators, `fold_in` of `key` itself also gives the keys of a split.
    of_blocks = jax.random.fold_in(key, _BLOCKS)

    def of_block(number: int) -> PyTree:
      own = (_padded(x_V[blocks.classes(number)], blocks) for x_V in places)
      keys = jax.random.fold_in(of_blocks, number), key
      return self.new_state(clusters, dim, keys, *own)

    return of_block

  def sharding(self, state: PyTree) -> PyTree:
    """Rows of all arrays are sharded, except projections and counts of updates."""
    kinds = jax.tree.map(lambda leaf: ROWS if jnp.ndim(leaf) else WHOLE, state)
    downs = jax.tree.map(lambda _: WHOLE, kinds.downs)
    return dataclasses.replace(kinds, downs=downs)

  @abc.abstractmethod
  def parameters(self) -> dict[str, bool]:
    """Which optional parameters exist, as arguments of `ops.adaptive.plan.Costs`."""

  def clusters(self, counts: Counts, dim: int) -> Clusters:
    """The clusters for these counts; logs the plan."""
    plan, fitted = self.cluster_plan(counts, dim), cost_model.load(self.cost_model)
    _LOG.info(
      "clusters for batches of %d true classes, with times from cost model %s:\n%s",
      *(self.batch_examples, self.cost_model, plan),
    )
    here = jax.default_backend(), self.dtype
    if not self.cutoffs and here != (fitted.platform, fitted.dtype):
      _LOG.warning(
        "head.cost_model %s is for %s in %s, but this is %s in %s: other clusters may "
        "be faster here; largevocab/tools/fit_cost_model.py measures this device",
        *(self.cost_model, fitted.platform, fitted.dtype, *here),
      )
    return plan.clusters._replace(labels=counts.classes_per_example)

  def places(self, counts: Counts, clusters: Clusters) -> tuple[np.ndarray, np.ndarray]:
    """The place of each class and the class at each place, both i32[V].

    Clusters are in order of decreasing count (ties by id). Within a cluster, classes
    are sorted by id.
    """
    sorted_V = np.argsort(-counts.unigram_V, kind="stable")
    in_clusters = np.split(sorted_V, np.cumsum(clusters.sizes)[:-1])
    class_V = np.concatenate([np.sort(ids) for ids in in_clusters])
    return np.argsort(class_V).astype(np.int32), class_V.astype(np.int32)

  def random_downs(
    self, key: jax.Array, widths: tuple[int, ...], dim: int
  ) -> list[jax.Array]:
    """Initial projections [E, D], scaled to preserve the variance of h."""
    project = jax.nn.initializers.lecun_uniform(in_axis=1, out_axis=0)
    keys = jax.random.split(key, len(widths))
    return [project(k, (width, dim)) for k, width in zip(keys, widths, strict=True)]


def at_places(place_V: jax.Array, ids_NP: jax.Array) -> jax.Array:
  """The place of each class, V for padding; the ids must come from `read_batch`."""
  V = shards.num_classes(len(place_V))
  place_NP = place_V.at[ids_NP].get(mode="fill", fill_value=V)
  return V + shards.psum(place_NP - V)  # only the device that has the entry knows it


def places_of(place_V: jax.Array, ids_R: jax.Array) -> jax.Array:
  """The place of each class, V for ids of no class; all devices give the same ids."""
  return at_places(place_V, shards.own_rows(ids_R, len(place_V)))


def _padded(x_V: np.ndarray, blocks: Blocks) -> jax.Array:
  """Entries of a block, with V in an unused row."""
  unused = blocks.size - len(x_V)
  return jnp.asarray(np.pad(x_V, (0, unused), constant_values=blocks.num_classes))
