"""Inclusion probabilities: how likely each class is to be in a random set of classes.

The size of a set is counted in one of two ways: all its classes, or those other than a
label, which itself is a random class of known law f. A set is then to hold
sum over c of (1 - f(c)) pi(c) classes.
"""

import numpy as np

_ROUNDING = 1e-12


def capped_probabilities(
  weight_V: np.ndarray, size: float, label_V: np.ndarray | None = None
) -> np.ndarray:
  """pi = min(1, lam * weight) for sets of the given expected size, as f64[V].

  With the k heaviest classes certain, lam = (size - their share of it) / (sum of the
  other weights); k is the least for which no other class exceeds 1.

  Args:
    weight_V: f64[V], non-negative, not all zero.
    size: from 1; classes of weight 0 are never in a set, so with as large a size as
      can be had, or more, all others are certain.
    label_V: f64[V], the law of a label that does not count; None: all classes count.

  Source: the cap at 1 is Hajek's.
  Cost: O(V + size log size) time.

  >>> capped_probabilities(np.array([6.0, 1.0, 1.0, 2.0]), 2).tolist()
  [1.0, 0.25, 0.25, 0.5]
  >>> capped_probabilities(np.array([2.0, 1.0, 1.0]), 1, np.array([0.5, 0.25, 0.25]))
  array([0.8, 0.4, 0.4])
  """
  share_V = np.ones(len(weight_V)) if label_V is None else 1 - label_V
  if size >= share_V[weight_V > 0].sum() * (1 - _ROUNDING):
    return (weight_V > 0).astype(np.float64)
  # Shares of certain classes sum to their number less at most one label.
  most = min(int(size) + 2, len(weight_V))
  order_V = np.argpartition(weight_V, len(weight_V) - most)
  light, heavy_M = order_V[:-most], order_V[-most:]
  heavy_M = heavy_M[np.argsort(-weight_V[heavy_M], kind="stable")]
  weight_M, share_M = weight_V[heavy_M], share_V[heavy_M]
  before_M = np.cumsum(share_M) - share_M  # of the k heaviest
  weight_M, share_M, left_M = (
    x[before_M < size] for x in (weight_M, share_M, size - before_M)
  )
  beyond = heavy_M[len(weight_M) :]
  lightest = share_V[light] @ weight_V[light] + share_V[beyond] @ weight_V[beyond]
  rest_M = lightest + np.cumsum((share_M * weight_M)[::-1])[::-1]
  fits_M = weight_M * left_M < rest_M
  k = int(np.argmax(fits_M)) if fits_M.any() else len(weight_M) - 1
  lam = left_M[k] / rest_M[k]
  # Where rounding takes an uncertain class to 1, the others must keep their share.
  pi_V = np.minimum(lam * weight_V, np.nextafter(1, 0))
  return np.where(weight_V > weight_M[k], 1.0, pi_V)


def solve_power(label_V: np.ndarray, size: float) -> float:
  """The alpha >= 0 for which pi = label^alpha gives sets of the given expected size.

  The size is that without the label: sum over c of (1 - label(c)) label(c)^alpha. With
  as large a size as can be had, or more, alpha is 0: all classes that can be a label
  are certain.

  Args:
    label_V: f64[V], the law of the label.
    size: from 1, so that alpha is below 1.

  Source: Barber & Botev 2016, section 2.1.2. Deviation: there the size is that without
    the label of one example; sets that a batch shares have the mean of it over labels.
  Cost: O(V log V) time.

  >>> solve_power(np.array([0.5, 0.25, 0.25]), 2)
  0.0
  >>> round(solve_power(np.full(4, 0.25), 1.5), 12)  # 3 / 4^alpha = 1.5
  0.5
  """
  value_U, times_U = np.unique(label_V[label_V > 0], return_counts=True)
  share_U = times_U * (1 - value_U)
  if size >= share_U.sum() * (1 - _ROUNDING):
    return 0.0
  low, high = 0.0, 1.0
  for _ in range(60):
    middle = (low + high) / 2
    too_many = share_U @ value_U**middle > size
    low, high = (middle, high) if too_many else (low, middle)
  return high


def power_probabilities(label_V: np.ndarray, size: float) -> np.ndarray:
  """pi = label^alpha with the alpha of `solve_power`, as f64[V]; 0 where the label is.

  >>> power_probabilities(np.array([0.5, 0.5, 0.0]), 2).tolist()
  [1.0, 1.0, 0.0]
  """
  # 0 ** 0 must not revive a class.
  return np.where(label_V > 0, label_V ** solve_power(label_V, size), 0.0)
