"""The unigram baseline: class frequencies."""

import numpy as np

from largevocab.errors import UserError

DISCOUNT = 0.75  # d, of every count


class ByCounts:
  """p(c) = max(n(c) - d, 0) / n + d U / (n V), independent of the context.

  n(c) is the count of a class, n the sum of the counts, and U the number of classes
  that occur. The discounts, d for each class that occurs, are divided among all V
  classes, so that unseen classes have a positive probability.

  Args:
    count_V: int[V], the counts.

  Source: absolute discounting (Ney, Essen and Kneser 1994, section 2), with the uniform
    distribution as the lower order.
  Deviation: d is 0.75, the usual constant, and is not estimated from the counts.
  Cost: O(V) memory.

  Raises:
    UserError: no class occurs.

  >>> law = ByCounts(np.array([3, 1, 0]))
  >>> [round(float(p), 4) for p in law.p_V]
  [0.6875, 0.1875, 0.125]
  """

  def __init__(self, count_V: np.ndarray):
    count_V = np.asarray(count_V, np.float64)
    total, seen = count_V.sum(), np.count_nonzero(count_V)
    if not seen:
      raise UserError(
        "no class occurs in the training data, so there is nothing to count: give "
        "counts, or data with classes"
      )
    spread = DISCOUNT * seen / total / len(count_V)
    self.p_V = np.maximum(count_V - DISCOUNT, 0) / total + spread
    self.order_V = np.argsort(-self.p_V, kind="stable").astype(np.int32)

  def log_p(self, context_N: np.ndarray, ids_NP: np.ndarray) -> np.ndarray:
    """Log-probabilities f64[N, P], in nats; ids are below V."""
    return np.log(self.p_V[ids_NP])

  def top_k(self, context_N: np.ndarray, k: int) -> np.ndarray:
    """i32[N, k], the most frequent classes, best first; ties by lower id."""
    return np.broadcast_to(self.order_V[:k], (len(context_N), k))
