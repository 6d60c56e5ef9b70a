"""The bigram baseline: class frequencies given the previous class."""

import numpy as np
from scipy import sparse

from largevocab.baselines.by_counts import DISCOUNT, ByCounts


class AfterLast:
  """p(c | a) = max(n(a, c) - d, 0) / n(a) + d U(a) / n(a) p(c).

  n(a, c) is the count of c after a, n(a) its sum over c, U(a) the number of distinct c,
  and p(c) the distribution of `ByCounts`, which is used alone if a has no successors.

  Args:
    pairs: [A, V], n(a, c) in compressed sparse rows; contexts beyond A are unseen.
    alone: the distribution p(c).

  Source: interpolated absolute discounting (Ney, Essen and Kneser 1994, section 2; Chen
    and Goodman 1999, section 2.6).
  Deviation: d is a constant, 0.75, and lower-order counts are plain, not those of
    Kneser-Ney.
  Cost: memory for the distinct pairs; O(log V) for a probability.

  >>> pairs = sparse.csr_array(np.array([[0, 2, 0], [1, 0, 0], [0, 0, 0]]))
  >>> law = AfterLast(pairs, ByCounts(np.array([1, 2, 0])))
  >>> p_NV = np.exp(law.log_p(np.array([0, 2]), np.array([[0, 1, 2]] * 2)))
  >>> p_NV.round(2).tolist()
  [[0.09, 0.84, 0.06], [0.25, 0.58, 0.17]]
  >>> law.top_k(np.array([1]), 2).tolist()
  [[0, 1]]
  """

  def __init__(self, pairs: sparse.csr_array, alone: ByCounts):
    self._alone = alone
    self._pairs = sparse.csr_array(pairs)
    self._pairs.sum_duplicates()
    total_A = np.asarray(self._pairs.sum(axis=1), np.float64).ravel()
    types_A = np.diff(self._pairs.indptr)
    self._scale_A = 1 / np.maximum(total_A, 1)
    self._rest_A = np.where(total_A, DISCOUNT * types_A * self._scale_A, 1.0)
    self._best: dict[tuple[int, int], np.ndarray] = {}

  def log_p(self, context_N: np.ndarray, ids_NP: np.ndarray) -> np.ndarray:
    """Log-probabilities f64[N, P], in nats; ids are below V."""
    context_N, is_known_N = self._rows(context_N)
    context_NP = np.broadcast_to(context_N[:, None], ids_NP.shape)
    count = np.asarray(self._pairs[context_NP.ravel(), ids_NP.ravel()], np.float64)
    count_NP = count.reshape(ids_NP.shape)
    own_NP = np.maximum(count_NP - DISCOUNT, 0) * self._scale_A[context_NP]
    rest_NP = np.where(is_known_N[:, None], self._rest_A[context_NP], 1.0)
    p_NP = is_known_N[:, None] * own_NP + rest_NP * self._alone.p_V[ids_NP]
    return np.log(p_NP)

  def top_k(self, context_N: np.ndarray, k: int) -> np.ndarray:
    """i32[N, k], the most probable classes, best first; ties by lower id."""
    contexts, of_N = np.unique(context_N, return_inverse=True)
    return np.stack([self._top_k_of(int(a), k) for a in contexts])[of_N]

  def _top_k_of(self, context: int, k: int) -> np.ndarray:
    """The best k among the successors and the k most frequent classes.

    All other classes score lower.
    """
    if context >= len(self._scale_A):
      return self._alone.order_V[:k]
    if (context, k) not in self._best:
      begin, end = self._pairs.indptr[context : context + 2]
      candidates = np.union1d(self._pairs.indices[begin:end], self._alone.order_V[:k])
      score = self.log_p(np.array([context]), candidates[None])[0]
      best = candidates[np.argsort(-score, kind="stable")[:k]]
      self._best[context, k] = best.astype(np.int32)
    return self._best[context, k]

  def _rows(self, context_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Contexts, with 0 in place of contexts beyond A, and the mask of the others."""
    is_known_N = context_N < len(self._scale_A)
    return np.where(is_known_N, context_N, 0), is_known_N
