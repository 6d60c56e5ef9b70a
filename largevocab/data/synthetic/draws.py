"""Draws from distributions that the synthetic documents share."""

from collections.abc import Callable

import numpy as np

from largevocab.data.labels.documents import Documents, pointers

_CHUNK = 20_000  # documents sampled at a time
SHAPE = 2  # shape of the negative binomial distribution of lengths


def zipf(number: int, exponent: float) -> np.ndarray:
  """Cumulative Zipf distribution: a uniform u selects the first entry above it.

  >>> zipf(2, 1.0).round(3).tolist()
  [0.667, 1.0]
  """
  cumulative = np.cumsum(np.arange(1, number + 1) ** -float(exponent))
  return cumulative / cumulative[-1]


def lengths(rng: np.random.Generator, size: int, mean: float) -> np.ndarray:
  """Draws 1 + NB with the given mean, i64[size]."""
  return 1 + rng.negative_binomial(SHAPE, SHAPE / (SHAPE + mean - 1), size)


def noisy_features(
  rng: np.random.Generator,
  own_NK: np.ndarray,
  at: np.ndarray,
  noise: float,
  noise_law: np.ndarray,
) -> np.ndarray:
  """Draws a feature for each entry of `at`: noise, or uniform in that row of `own_NK`.

  Args:
    noise: probability of a feature from `noise_law`, which is cumulative.
  """
  features = own_NK[at, rng.integers(own_NK.shape[1], size=len(at))]
  is_noise = rng.random(len(at)) < noise
  features[is_noise] = np.searchsorted(noise_law, rng.random(is_noise.sum()))
  return features


def distinct(
  lengths: np.ndarray, ids: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Row pointers, the distinct ids of each row, and their counts.

  >>> [part.tolist() for part in distinct(np.array([3, 1]), np.array([4, 2, 4, 2]), 5)]
  [[0, 2, 3], [2, 4, 2], [1.0, 2.0, 1.0]]
  """
  rows = np.repeat(np.arange(len(lengths)), lengths)
  key, times = np.unique(rows * limit + ids, return_counts=True)
  ptr = pointers(np.bincount(key // limit, minlength=len(lengths)))
  return ptr, (key % limit).astype(np.int32), times.astype(np.float32)


def split_documents(
  num_train: int, num_held_out: int, sample: Callable[[int], Documents]
) -> dict[str, Documents]:
  """Draws the documents of each split.

  Args:
    num_train: number of training documents.
    num_held_out: number of validation documents, and of test documents.
    sample: function that draws a given number of documents; it is called several times
      for a large split.
  """
  sizes = {"train": num_train, "valid": num_held_out, "test": num_held_out}
  return {
    split: _join([sample(min(_CHUNK, size - i)) for i in range(0, size, _CHUNK)])
    for split, size in sizes.items()
  }


def _join(parts: list[Documents]) -> Documents:
  """The documents of all parts, in order."""
  lengths = np.concatenate([part.lengths for part in parts])
  return Documents(
    pointers(lengths[:, 0]),
    np.concatenate([part.feature_ids for part in parts]),
    np.concatenate([part.values for part in parts]),
    pointers(lengths[:, 1]),
    np.concatenate([part.label_ids for part in parts]),
  )
