"""Converts labels for other packages: one label per example, by rank of count."""

from typing import NamedTuple

import numpy as np

from largevocab.labels import Targets


class Pairs(NamedTuple):
  """The true classes of a batch, as pairs of an example and one of its labels.

  Attributes:
    example_R: i64[R], the number of the example.
    rank_R: i64[R], the rank of the class.
    share_R: f32[R], the weight of the pair; weights sum to 1.
  """

  example_R: np.ndarray
  rank_R: np.ndarray
  share_R: np.ndarray


class Ranks:
  """Ranks of classes by decreasing count, from 0; equal counts are ordered by id.

  Adaptive and log-uniformly sampled softmax need this order. Words and items have it
  already, but labels of documents do not.

  Args:
    counts_V: the counts of the classes.

  >>> ranks = Ranks(np.array([3, 9, 5]))
  >>> ranks.of(np.array([1, 0])).tolist(), ranks.classes(np.array([[0, 2]])).tolist()
  ([0, 2], [[1, 0]])
  """

  def __init__(self, counts_V: np.ndarray):
    self._class_V = np.argsort(-np.asarray(counts_V), kind="stable")
    self._rank_V = np.argsort(self._class_V)

  def of(self, ids: np.ndarray) -> np.ndarray:
    """Ranks of classes."""
    return self._rank_V[ids]

  def classes(self, ranks: np.ndarray) -> np.ndarray:
    """Classes of ranks."""
    return self._class_V[ranks]

  def pairs(self, y: Targets) -> Pairs:
    """All labels with a positive weight.

    The mean loss of the batch is the sum, over these labels, of `share_R` times the
    loss of an example with a single label.

    >>> y = Targets(np.array([[2, 1], [0, 3]]), np.array([[0.5, 0.5], [1, 0]]), None)
    >>> pairs = Ranks(np.array([3, 9, 5])).pairs(y)
    >>> pairs.example_R.tolist(), pairs.rank_R.tolist(), pairs.share_R.tolist()
    ([0, 0, 1], [1, 0, 2], [0.25, 0.25, 0.5])
    """
    ids_NP, w_NP = np.asarray(y.ids_NP), np.asarray(y.w_NP, np.float32)
    example_R, place_R = np.nonzero(w_NP)
    w_R = w_NP[example_R, place_R]
    return Pairs(example_R, self.of(ids_NP[example_R, place_R]), w_R / w_R.sum())
