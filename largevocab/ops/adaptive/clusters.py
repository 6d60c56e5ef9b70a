"""Clusters of classes by frequency: a short-list, and tails with narrower rows."""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_ALIGN = 8  # capacities are multiples of this number of examples


class Clusters(NamedTuple):
  """Classes by decreasing count, cut into a short-list (head cluster) and tails.

  These are plain numbers, since shapes and capacities depend on them.

  Attributes:
    sizes: number of classes of each cluster, the short-list first.
    widths: width of the rows of each cluster; the first is D, the width of the
      activations.
    masses: share of the training examples whose class is in each cluster; they sum to
      1.
    labels: mean number of true classes of a training example.
  """

  sizes: tuple[int, ...]
  widths: tuple[int, ...]
  masses: tuple[float, ...]
  labels: float = 1.0


def widths(dim: int, num: int, factor: int, align: int = 1) -> tuple[int, ...]:
  """D, D / factor, D / factor^2 ...: rounded up to a multiple of `align`, never 0.

  Args:
    dim: D.
    num: number of clusters, including the short-list.
    factor: ratio of widths of successive clusters.
    align: multiple to round to; 8 gives faster products.

  >>> widths(200, 5, 4), widths(200, 5, 4, align=8)
  ((200, 50, 12, 3, 1), (200, 56, 16, 8, 8))
  """
  narrower = (max(dim // factor**i, 1) for i in range(1, num))
  return (dim, *(min(-(-width // align) * align, dim) for width in narrower))


def capacity_of(mean: ArrayLike, num: int) -> np.ndarray:
  """Capacity of a tail for the true classes of a batch.

  It is the mean plus four standard deviations, as a multiple of 8, and at most the
  number of true classes.

  Args:
    mean: expected number of true classes in the tail.
    num: number of true classes in the batch.

  >>> capacity_of([200, 100, 0.1, 990], 1000).tolist()
  [264, 144, 8, 1000]
  """
  wanted = np.asarray(mean) + 4 * np.sqrt(mean)
  aligned = np.maximum(np.ceil(wanted / _ALIGN), 1) * _ALIGN
  return np.minimum(aligned, num).astype(np.int64)


def head_mass(counts_V: np.ndarray, size: int) -> float:
  """Share of the examples whose class is among the `size` most frequent.

  >>> head_mass(np.array([1, 6, 3]), 2)
  0.9
  """
  first = -np.partition(-np.asarray(counts_V, np.float64), size - 1)[:size]
  return float(first.sum() / counts_V.sum())


def cut(
  counts_V: np.ndarray, cutoffs: tuple[int, ...], widths: tuple[int, ...]
) -> Clusters:
  """The clusters with the given cutoffs, and a last cluster up to V.

  Args:
    counts_V: int[V], in any order.
    cutoffs: ends of all clusters but the last, ascending, below V.
    widths: widths of all clusters, one more than cutoffs.

  Raises:
    ValueError: cutoffs do not ascend or are not in 1 ... V - 1.

  >>> cut(np.array([1, 6, 3]), (1,), (8, 2))
  Clusters(sizes=(1, 2), widths=(8, 2), masses=(0.6, 0.4), labels=1.0)
  """
  V = len(counts_V)
  ends = (0, *cutoffs, V)
  if any(a >= b for a, b in itertools.pairwise(ends)):
    raise ValueError(f"cutoffs {cutoffs} must ascend within 1 ... V - 1 = {V - 1}")
  sorted_V = -np.sort(-np.asarray(counts_V, np.float64))
  total = sorted_V.sum()
  sums = np.add.reduceat(sorted_V, ends[:-1]) / total if total else np.diff(ends) / V
  return Clusters(tuple(np.diff(ends).tolist()), widths, tuple(sums.tolist()))
