"""Chooses the cutoffs of an adaptive softmax with the fastest training step.

Here G is the number of places for a cutoff, K the number of clusters, and J the number
of tails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from largevocab.ops.adaptive.clusters import Clusters, capacity_of, cut, widths
from largevocab.ops.adaptive.fastest_path import fastest_path, least_bytes
from largevocab.ops.softmax.bias import extended_width

# Seconds of a step on k classes with rows of width d for B examples; k and B may be
# arrays. `largevocab.ops.adaptive.cost_model` has fitted functions of this kind.
Seconds = Callable[..., np.ndarray]
MOST_CLUSTERS = 5  # by default: more are hardly faster, and a worse model
_BOUNDARIES = 128  # at most 11 % apart for a million classes
_ROWS = 64  # row counts of large clusters but the last are multiples, to shard evenly
_FLOAT_BYTES = 4
_MIB = 2**20


class ClusterPlan(NamedTuple):
  """Clusters with predicted times and memory.

  Attributes:
    clusters: sizes, widths and masses.
    seconds: time of a step, for the short-list and each tail.
    full_seconds: time of a step of the softmax over all classes.
    num_bytes: memory of all parameters.
  """

  clusters: Clusters
  seconds: tuple[float, ...]
  full_seconds: float
  num_bytes: int

  @property
  def cutoffs(self) -> tuple[int, ...]:
    """Ends of all clusters but the last."""
    return tuple(np.cumsum(self.clusters.sizes[:-1]).tolist())

  def __str__(self) -> str:
    """A printable table.

    >>> print(ClusterPlan(Clusters((9, 90), (8, 2), (0.8, 0.2)), (0.01, 0.003), 0.13,
    ...                   2**20))
    short list: 9 classes, 80.0 % of the examples, width 8: 10 ms
    tail 1: 90 classes, 20.0 % of the examples, width 2: 3 ms
    an adaptive softmax with cutoffs=(9,): 13 ms a step predicted, 10.0 times as fast as
    the full softmax; 1.0 MiB
    """
    names = ["short list", *(f"tail {i}" for i in range(1, len(self.seconds)))]
    lines = [
      f"{name}: {size:,} classes, {mass:.1%} of the examples, width {width}: "
      f"{1e3 * seconds:.3g} ms".replace("%", " %")
      for name, size, width, mass, seconds in zip(
        names, *self.clusters[:3], self.seconds, strict=True
      )
    ]
    total = sum(self.seconds)
    lines.append(
      f"an adaptive softmax with cutoffs={self.cutoffs}: {1e3 * total:.3g} ms a step "
      "predicted, "
      f"{self.full_seconds / total:.1f} times as fast as the full softmax; "
      f"{self.num_bytes / _MIB:.1f} MiB"
    )
    return "\n".join(lines)


@dataclass(frozen=True)
class Costs:
  """Predicted time and memory of clusters.

  Attributes:
    dim: D, width of activations.
    seconds: t(k, B, d), for arrays k and B, increasing in each.
    batch: B, number of true classes in a batch.
    bias: rows of the short-list have a bias, see `softmax.bias.extended_width`.
    tail_bias: rows of tails have a bias.
    tied: tails share the projection of the first tail.
    labels: mean number of true classes of an example.
  """

  dim: int
  seconds: Seconds
  batch: int
  bias: bool = False
  tail_bias: bool = False
  tied: bool = False
  labels: float = 1.0

  def short_list(self, size: Any, num_tails: int) -> tuple[Any, Any]:
    """Seconds and bytes of a short-list of `size` classes."""
    rows, width = size + num_tails, extended_width(self.dim) if self.bias else self.dim
    examples = max(round(self.batch / self.labels), 1)
    return self.seconds(rows, examples, width), rows * width * _FLOAT_BYTES

  def tail(self, size: Any, mass: Any, width: int, number: int) -> tuple[Any, Any]:
    """Seconds and bytes of a tail of `size` classes, the first tail being number 1."""
    mean = self.batch * np.maximum(mass, 0)
    num = capacity_of(mean, self.batch)
    row_width = extended_width(width) if self.tail_bias else width
    projection = self.seconds(width, num, self.dim)
    is_reached = -np.expm1(-mean)  # probability that the tail is not skipped
    seconds = is_reached * (projection + self.seconds(size, num, row_width))
    own = 0 if self.tied and number > 1 else width * self.dim
    return seconds, (own + size * row_width) * _FLOAT_BYTES


def plan_clusters(
  counts_V: np.ndarray,
  costs: Costs,
  *,
  num_clusters: int = 0,
  factor: int = 4,
  align: int = 8,
  min_head_mass: float = 0.8,
  max_bytes: int = 0,
) -> ClusterPlan:
  """The clusters with the least predicted time.

  The time is the sum of

    t(k + J, B, D)                                 k classes, J tails of a short-list
    P(reached) (t(d, B', D) + t(k, B', d))         projection and k classes of a tail

  where a tail has rows of width d and the capacity B', see `clusters.capacity_of`.

  Args:
    counts_V: int[V], in any order.
    costs: t, D and B, and which optional parameters there are.
    num_clusters: number of clusters, including the short-list; 0: 2 to 5, whichever is
      fastest.
    factor, align: see `clusters.widths`.
    min_head_mass: least share of the examples whose class is on the short-list. By time
      alone it would have some tens of classes, which makes a poor model. If tails of
      one class each leave less than this share, the short-list gets all they leave.
    max_bytes: limit for all parameters, of 4 bytes each; 0: no limit.

  Returns:
    The best clusters with cutoffs on a grid. The grid has all numbers below about 30,
    and steps of about a tenth above that; with up to 128 classes it has all numbers. A
    short-list of 1,024 or more rows, and the tails after it but the last, have a
    multiple of 64 rows.

  Raises:
    ValueError: no class occurs, there are fewer classes than clusters, or max_bytes
      cannot be met.

  Source: Grave et al. 2017, section 4.3: frequent classes in small clusters, dynamic
    programming for a given number of clusters. Not in the paper: the time is that of a
    training step at the width of each cluster, for capacities instead of expected
    numbers of examples; limits on the short-list and on memory, for which the dynamic
    programme keeps all plans that are Pareto-optimal in time and memory.

  Cost: O(J boundaries^2), more if max_bytes excludes the fastest plan; under a second
    for V = 800,000.

  >>> counts_V = 10**6 // np.arange(1, 10_001)
  >>> costs = Costs(64, lambda k, B, d: 1e-5 + 1e-10 * k * B * d, batch=1000)
  >>> best = plan_clusters(counts_V, costs, num_clusters=3)
  >>> best.clusters.sizes, best.clusters.widths
  ((1470, 2176, 6354), (64, 16, 8))
  """
  counts_V = np.asarray(counts_V)
  V = len(counts_V)
  if not counts_V.any():
    raise ValueError("no class occurs: there is nothing to sort classes by")
  if num_clusters > V:
    raise ValueError(f"{num_clusters} clusters, but {V} classes")
  nums = [num_clusters] if num_clusters else range(min(2, V), min(MOST_CLUSTERS, V) + 1)
  # Sorted here, so that later sorts are fast.
  sorted_V = -np.sort(-counts_V.astype(np.float64))
  found, least = [], []
  for num in nums:
    all_widths = widths(costs.dim, num, factor, align)
    ends_G, mass_G = _boundaries(sorted_V, num, min_head_mass)
    seconds_KGG, bytes_KGG = _stages(costs, ends_G, mass_G, all_widths, min_head_mass)
    planned = lambda path: price(
      cut(sorted_V, tuple(ends_G[list(path[:-1])].tolist()), all_widths),  # noqa: B023
      costs,
    )
    plan = planned(fastest_path(seconds_KGG, np.zeros_like(bytes_KGG), 0))
    if max_bytes and plan.num_bytes > max_bytes:
      least.append(least_bytes(bytes_KGG)[0, 0])
      if least[-1] > max_bytes:
        continue
      plan = planned(fastest_path(seconds_KGG, bytes_KGG, max_bytes))
    found.append(plan)
  if not found:
    raise ValueError(
      f"{max_bytes / _MIB:.3g} MiB are too few for the parameters, which take at least "
      f"{min(least) / _MIB:.3g} MiB"
    )
  return min(found, key=lambda plan: sum(plan.seconds))


def price(clusters: Clusters, costs: Costs) -> ClusterPlan:
  """Predicted times and memory of given clusters.

  >>> clusters = Clusters((9, 90), (8, 2), (1.0, 0.0))
  >>> priced = price(clusters, Costs(8, lambda k, B, d: k * B * d, batch=2))
  >>> priced.seconds, priced.full_seconds, priced.num_bytes
  ((160.0, 0.0), 1584.0, 1104)
  """
  sizes, all_widths, masses = clusters[:3]
  tails = zip(sizes[1:], masses[1:], all_widths[1:], strict=True)
  parts = [
    costs.short_list(sizes[0], len(sizes) - 1),
    *(costs.tail(*tail, number) for number, tail in enumerate(tails, start=1)),
  ]
  full_seconds, _ = costs.short_list(sum(sizes), 0)
  return ClusterPlan(
    clusters,
    tuple(float(part_seconds) for part_seconds, _ in parts),
    float(full_seconds),
    sum(int(num_bytes) for _, num_bytes in parts),
  )


def _boundaries(sorted_V, num, min_head_mass):
  """Grid of possible cutoffs, including 0 and V, and the mass of the classes before."""
  V = len(sorted_V)
  mass_V = np.append(0, np.cumsum(sorted_V)) / sorted_V.sum()
  # The shortest short-list that is long enough is often the best one.
  shortest = np.searchsorted(mass_V, min_head_mass - 1e-9)
  ends = np.unique(np.geomspace(1, V, min(_BOUNDARIES, V)).round().astype(int))
  if V <= _BOUNDARIES:
    ends = np.arange(V + 1)
  ends = np.append(ends, min(shortest, V))
  if V > _BOUNDARIES:
    # The short-list has rows for its classes and one row for each tail.
    aligned = -(-(ends + num - 1) // _ROWS) * _ROWS - (num - 1)
    ends = np.where(ends >= 16 * _ROWS, np.minimum(aligned, V), ends)
  ends_G = np.union1d(ends, [0, *range(max(V - num, 0), V + 1)])
  return ends_G, mass_V[ends_G]


def _stages(costs, ends_G, mass_G, all_widths, min_head_mass):
  """Seconds and bytes, [K, G, G], of each cluster between any two cutoffs."""
  K, G = len(all_widths), len(ends_G)
  seconds_KGG, bytes_KGG = np.zeros((2, K, G, G))
  seconds_G, bytes_G = costs.short_list(ends_G, K - 1)
  # Tolerates the rounding of sums.
  least_mass = min(min_head_mass, mass_G[ends_G == ends_G[-1] - (K - 1)][0]) - 1e-9
  seconds_KGG[0] = np.where(mass_G >= least_mass, seconds_G, np.inf)[None]
  bytes_KGG[0] = np.where(mass_G >= least_mass, bytes_G, np.inf)[None]
  sizes_GG, masses_GG = (x_G[None] - x_G[:, None] for x_G in (ends_G, mass_G))
  for k, width in enumerate(all_widths[1:], start=1):
    seconds_KGG[k], bytes_KGG[k] = costs.tail(sizes_GG.clip(0), masses_GG, width, k)
  return seconds_KGG, bytes_KGG
