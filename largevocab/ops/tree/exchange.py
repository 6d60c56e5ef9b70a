"""Brown clusters of words by the exchange algorithm, on the host.

Here P is the number of distinct bigrams, K the number of clusters, and J the number of
clusters adjacent to a word.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_LEAST = 1e-7  # least gain of a move in nats, so that rounding causes no moves


class Sweep(NamedTuple):
  """Result of one pass over all words.

  Attributes:
    cluster_V: i32[V], the cluster of each word.
    moved: number of words moved.
    log_likelihood: log-likelihood of the text in nats, updated with every move.
  """

  cluster_V: np.ndarray
  moved: int
  log_likelihood: float


def log_likelihood(
  codes_P: np.ndarray, counts_P: np.ndarray, cluster_V: np.ndarray
) -> float:
  """log p(text) = sum_ab n_ab log p(cluster of b | cluster of a) p(b | its cluster).

  All probabilities are relative frequencies in the text itself.

  Args:
    codes_P: i64[P], distinct bigrams as a * V + b.
    counts_P: i64[P], n_ab, their counts.
    cluster_V: i32[V], the cluster of each word, from 0.

  Returns:
    nats; divide by the number of bigrams in the text for the mean per word.

  Source: Brown et al. 1992, section 3: the average mutual information of neighbouring
    clusters, less the entropy of words.

  Cost: O(P + K^2).

  >>> codes_P, counts_P = np.array([1, 2]), np.array([3, 2])  # 0 1, and 1 0
  >>> abs(round(log_likelihood(codes_P, counts_P, np.array([0, 1])), 4))
  0.0
  >>> round(log_likelihood(codes_P, counts_P, np.array([0, 0])), 4)  # 3 of 5, 2 of 5
  -3.3651
  """
  V = len(cluster_V)
  n_V = np.bincount(codes_P % V, counts_P, V)
  return float(_of_clusters(_pairs(codes_P, counts_P, cluster_V)) + _xlogx(n_V).sum())


def exchange(
  codes_P: np.ndarray, counts_P: np.ndarray, cluster_V: np.ndarray, most: int
) -> Iterator[Sweep]:
  """Moves words one by one to the cluster of the largest likelihood; an endless stream.

  A pass visits words by decreasing count. Each move is exact, and is the best one for
  its word with all others fixed, so `log_likelihood` never decreases. A word without
  neighbours is not moved.

  Args:
    codes_P: i64[P], distinct bigrams as a * V + b.
    counts_P: i64[P], their counts.
    cluster_V: i32[V], the initial clusters, numbered from 0.
    most: maximum number of words in a cluster. Words are never moved into a larger one.

  Yields:
    a `Sweep` for each pass. Once `moved` is 0, nothing changes.

  Source: Kneser and Ney 1993; Martin, Liermann and Ney 1998, section 2: an exchange
    algorithm for the likelihood that Brown et al. 1992 maximise by merging clusters.
    Deviation: `most`.

  Cost: for a word in a pass, K logarithms for each cluster adjacent to it; holds 4 K^2
    numbers and 24 bytes a distinct bigram.

  >>> codes_P, counts_P = np.array([2, 3, 6, 8, 13]), np.array([3, 2, 5, 4, 2])
  >>> passes = exchange(codes_P, counts_P, np.array([0, 0, 0, 1]), most=3)
  >>> next(passes).cluster_V.tolist(), next(passes).moved
  ([0, 0, 1, 1], 0)
  """
  V = len(cluster_V)
  cluster_V = cluster_V.astype(np.int32)
  size_K = np.bincount(cluster_V)
  likelihood = log_likelihood(codes_P, counts_P, cluster_V)
  tables = _Tables(_pairs(codes_P, counts_P, cluster_V))
  a_P, b_P = np.divmod(codes_P, V)
  is_self_P = a_P == b_P
  self_V = np.zeros(V)
  self_V[a_P[is_self_P]] = counts_P[is_self_P]
  a_P, b_P, counts_P = (x_P[~is_self_P] for x_P in (a_P, b_P, counts_P))
  after = _neighbours(a_P, b_P, counts_P, V)
  before = _neighbours(b_P, a_P, counts_P, V)
  count_V = np.bincount(a_P, counts_P, V) + np.bincount(b_P, counts_P, V)
  words = np.argsort(-count_V, kind="stable")[: np.count_nonzero(count_V)]
  while True:
    moved = 0
    for c in words.tolist():
      beside = (
        after.clusters(c, cluster_V, len(size_K)),
        before.clusters(c, cluster_V, len(size_K)),
        self_V[c],
      )
      old = cluster_V[c]
      tables.add(old, *beside, sign=-1)
      gain_K = tables.gains(*beside)
      stay = gain_K[old]
      new = int(np.argmax(np.where(size_K < most, gain_K, -np.inf)))
      if size_K[new] >= most or gain_K[new] <= stay + _LEAST:
        new = old
      tables.add(new, *beside)
      if new != old:
        cluster_V[c] = new
        size_K[old] -= 1
        size_K[new] += 1
        likelihood += gain_K[new] - stay
        moved += 1
    yield Sweep(cluster_V.copy(), moved, float(likelihood))


class _Neighbours(NamedTuple):
  """Neighbours on one side of each word c: other_P[first_V[c] : first_V[c + 1]]."""

  first_V: np.ndarray  # V + 1 entries
  other_P: np.ndarray
  count_P: np.ndarray

  def clusters(self, c: int, cluster_V: np.ndarray, num: int) -> np.ndarray:
    """Number of neighbours of word c in each cluster, f64[K]."""
    part = slice(self.first_V[c], self.first_V[c + 1])
    return np.bincount(cluster_V[self.other_P[part]], self.count_P[part], num)


def _neighbours(a_P, b_P, count_P, V) -> _Neighbours:
  """Neighbours b of the words a."""
  order_P = np.argsort(a_P, kind="stable")
  first_V = np.searchsorted(a_P[order_P], np.arange(V + 1))
  other_P, count_P = b_P[order_P].astype(np.int32), count_P[order_P].astype(float)
  return _Neighbours(first_V, other_P, count_P)


class _Tables:
  """Bigram counts of clusters, n_KK, and n log n of them, with transposes.

  Transposes make all reads reads of rows. Counts are integers in float64, so their sums
  are exact.

  first_K and second_K: counts of each cluster as first and as second of a bigram. While
  a word is in no cluster, they exceed the sums of n_KK.
  """

  def __init__(self, n_KK: np.ndarray):
    self.n_KK, self.t_KK = n_KK, n_KK.T.copy()
    self.f_KK, self.ft_KK = _xlogx(n_KK), _xlogx(self.t_KK)
    self.first_K, self.second_K = n_KK.sum(axis=1), n_KK.sum(axis=0)

  def add(self, k: int, after_K, before_K, own: float, sign: int = 1) -> None:
    """Adds a word to cluster k (sign = 1), or removes it (sign = -1)."""
    row_K, column_K = self.n_KK[k], self.t_KK[k]  # views
    row_K += sign * after_K
    column_K += sign * before_K
    row_K[k] = column_K[k] = row_K[k] + sign * (before_K[k] + own)
    self.n_KK[:, k], self.t_KK[:, k] = column_K, row_K
    self.f_KK[k] = self.ft_KK[:, k] = _xlogx(row_K)
    self.ft_KK[k] = self.f_KK[:, k] = _xlogx(column_K)
    self.first_K[k] += sign * (after_K.sum() + own)
    self.second_K[k] += sign * (before_K.sum() + own)

  def gains(self, after_K, before_K, own: float) -> np.ndarray:
    """Gain of log-likelihood if a word is added to each cluster, f64[K]."""
    n_K, f_K = np.diag(self.n_KK), np.diag(self.f_KK)
    each_K = f_K - _xlogx(n_K + after_K) - _xlogx(n_K + before_K)
    each_K += _xlogx(n_K + after_K + before_K + own)
    each_K += _gain(self.t_KK, self.ft_KK, after_K)
    each_K += _gain(self.n_KK, self.f_KK, before_K)
    for n_K, more in (self.first_K, after_K), (self.second_K, before_K):
      each_K -= _xlogx(n_K + more.sum() + own) - _xlogx(n_K)
    return each_K


def _gain(n_KK, f_KK, more_K) -> np.ndarray:
  """Sum over rows j of f(n_jk + more_j) - f(n_jk), with f = n log n; [K]."""
  at = np.flatnonzero(more_K)
  sum_JK = n_KK[at]
  sum_JK += more_K[at, None]
  log_JK = np.log(sum_JK)
  return np.einsum("jk,jk->k", sum_JK, log_JK) - f_KK[at].sum(axis=0)


def _xlogx(n: np.ndarray) -> np.ndarray:
  """n log n for integers, 0 at 0."""
  return n * np.log(np.maximum(n, 1))


def _pairs(codes_P, counts_P, cluster_V) -> np.ndarray:
  """Bigram counts of clusters, f64[K, K]."""
  num = int(cluster_V.max()) + 1
  a_P, b_P = np.divmod(codes_P, len(cluster_V))
  pair_P = cluster_V[a_P].astype(np.int64) * num + cluster_V[b_P]
  return np.bincount(pair_P, counts_P, num * num).reshape(num, num)


def _of_clusters(n_KK: np.ndarray) -> float:
  """The part of the log-likelihood that depends on the clusters."""
  first_K, second_K = n_KK.sum(axis=1), n_KK.sum(axis=0)
  return _xlogx(n_KK).sum() - _xlogx(first_K).sum() - _xlogx(second_K).sum()
