"""Clusters of classes by frequency: a short list, and tails with narrower rows."""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_ALIGN = 8  # examples


class Clusters(NamedTuple):
  """Classes by decreasing count, cut into a short list and tails.

  Plain numbers: shapes and capacities are made of them.

  Attributes:
    sizes: classes of each, that of the short list first.
    widths: of their rows; the first is that of the activations, D.
    masses: share of the training examples whose class is in each; they sum to 1.
    labels: true classes of a training example, on average.
  """

  sizes: tuple[int, ...]
  widths: tuple[int, ...]
  masses: tuple[float, ...]
  labels: float = 1.0


def widths(dim: int, num: int, factor: int, align: int = 1) -> tuple[int, ...]:
  """D, D / factor, D / factor^2 ...: rounded up to a multiple of `align`, never 0.

  Args:
    dim: D.
    num: clusters, the short list among them.
    factor: by which the rows of a tail are narrower than those before.
    align: products of widths that are multiples of 8 are faster.

  >>> widths(200, 5, 4), widths(200, 5, 4, align=8)
  ((200, 50, 12, 3, 1), (200, 56, 16, 8, 8))
  """
  narrower = (max(dim // factor**i, 1) for i in range(1, num))
  return (dim, *(min(-(-width // align) * align, dim) for width in narrower))


def places(mean: ArrayLike, num: int) -> np.ndarray:
  """How many of a batch's true classes a tail should be ready for: the mean and four
  standard deviations, as a multiple of 8, but not more than there are.

  Args:
    mean: how many of them are to be expected there.
    num: how many there are.

  >>> places([200, 100, 0.1, 990], 1000).tolist()
  [264, 144, 8, 1000]
  """
  wanted = np.asarray(mean) + 4 * np.sqrt(mean)
  aligned = np.maximum(np.ceil(wanted / _ALIGN), 1) * _ALIGN
  return np.minimum(aligned, num).astype(np.int64)


def head_mass(counts_V: np.ndarray, size: int) -> float:
  """Share of the examples whose class is among the `size` most frequent ones.

  >>> head_mass(np.array([1, 6, 3]), 2)
  0.9
  """
  first = -np.partition(-np.asarray(counts_V, np.float64), size - 1)[:size]
  return float(first.sum() / counts_V.sum())


def cut(
  counts_V: np.ndarray, cutoffs: tuple[int, ...], widths: tuple[int, ...]
) -> Clusters:
  """The clusters that end after the given numbers of classes, and a last one.

  Args:
    counts_V: int[V], in any order.
    cutoffs: ends of all clusters but the last, ascending, below V.
    widths: of each, one more than cutoffs.

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
