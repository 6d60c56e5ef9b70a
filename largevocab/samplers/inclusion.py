"""Inclusion probabilities of classes in random sets of a given expected size.

The size counts either all classes, or only those that differ from a random label of
distribution f: sum over c of (1 - f(c)) pi(c).

The letter U stands for the number of distinct label probabilities.
"""

import numpy as np

from largevocab.errors import UserError
from largevocab.ops.draws.strata import MAX_STRATA

_ROUNDING = 1e-12


def check_strata(num: int) -> None:
  """Checks that a systematic draw of this many classes is possible.

  Raises:
    UserError: there are too many.

  >>> check_strata(2_000_000)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: head.num_samples makes a draw of 2,000,000 different \
classes, but a draw from a table or block has at most 1,048,576: lower \
head.num_samples, or raise mesh.blocks
  """
  if num > MAX_STRATA:
    raise UserError(
      f"head.num_samples makes a draw of {num:,} different classes, but a draw from a "
      f"table or block has at most {MAX_STRATA:,}: lower head.num_samples, or raise "
      "mesh.blocks"
    )


def capped_probabilities(
  weight_V: np.ndarray, size: float, label_V: np.ndarray | None = None
) -> np.ndarray:
  """pi = min(1, lam * weight) for sets of the given expected size, as f64[V].

  The k heaviest classes get pi = 1, and lam = (size - their share of it) / (sum of the
  other weights), where k is the smallest number for which no other class exceeds 1.

  Args:
    weight_V: f64[V], non-negative, not all zero.
    size: at least 1. Classes of weight 0 are never included. If size is at least the
      largest possible one, all other classes get pi = 1.
    label_V: f64[V], distribution f of a label that is not counted; None: all classes
      count.

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
  # The shares of the k certain classes sum to at least k - 1.
  most = min(int(size) + 2, len(weight_V))
  order_V = np.argpartition(weight_V, len(weight_V) - most)
  light, heavy_M = order_V[:-most], order_V[-most:]
  heavy_M = heavy_M[np.argsort(-weight_V[heavy_M], kind="stable")]
  weight_M, share_M = weight_V[heavy_M], share_V[heavy_M]
  before_M = np.cumsum(share_M) - share_M  # sum over the k heaviest
  weight_M, share_M, left_M = (
    x[before_M < size] for x in (weight_M, share_M, size - before_M)
  )
  beyond = heavy_M[len(weight_M) :]
  lightest = share_V[light] @ weight_V[light] + share_V[beyond] @ weight_V[beyond]
  rest_M = lightest + np.cumsum((share_M * weight_M)[::-1])[::-1]
  fits_M = weight_M * left_M < rest_M
  k = int(np.argmax(fits_M)) if fits_M.any() else len(weight_M) - 1
  lam = left_M[k] / rest_M[k]
  # Uncertain classes must stay below 1 in spite of rounding.
  pi_V = np.minimum(lam * weight_V, np.nextafter(1, 0))
  return np.where(weight_V > weight_M[k], 1.0, pi_V)


def solve_power(label_V: np.ndarray, size: float) -> float:
  """Finds alpha >= 0 for which pi = label^alpha gives sets of the given expected size.

  The size does not count the label: sum over c of (1 - label(c)) label(c)^alpha. If
  size is at least the largest possible one, alpha is 0: all classes of non-zero label
  probability are included.

  Args:
    label_V: f64[V], distribution of the label.
    size: at least 1, so that alpha is below 1.

  Source: Barber & Botev 2016, section 2.1.2. Deviation: the paper's size excludes the
    label of one example. Here a batch shares a set, and the size is the mean over
    labels.
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
  """pi = label^alpha with the alpha of `solve_power`, f64[V]; 0 where label_V is 0.

  >>> power_probabilities(np.array([0.5, 0.5, 0.0]), 2).tolist()
  [1.0, 1.0, 0.0]
  """
  # 0 ** 0 must not give a class probability 1.
  return np.where(label_V > 0, label_V ** solve_power(label_V, size), 0.0)
