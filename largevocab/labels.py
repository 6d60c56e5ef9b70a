"""What a head is told: `Targets` of each batch, and `Counts` of the classes."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


class Targets(NamedTuple):
  """The true classes of N examples.

  Attributes:
    ids_NP: i32[N, P], the true classes; padding is V (the number of classes).
    w_NP: f32[N, P], their weights, 0 on padding. A row sums to the example's weight:
      1/P each for P equally true classes, all 0 for an example that does not count.
    context_N: i32[N], what a head may keep something for: of a language model the
      current input token, of item histories the last item, of examples with features
      of their own the number of the example; 0 where there is no such thing.
  """

  ids_NP: jax.Array
  w_NP: jax.Array
  context_N: jax.Array


def single_targets(ids_N: ArrayLike, weight_N: ArrayLike | None = None) -> Targets:
  """Targets with one true class per example, each of weight 1 unless told.

  >>> single_targets(np.array([3, 1])).ids_NP.shape
  (2, 1)
  """
  ids_N = jnp.asarray(ids_N, jnp.int32)
  if weight_N is None:
    weight_N = jnp.ones(ids_N.shape)
  weight_N = jnp.asarray(weight_N, jnp.float32)
  return Targets(ids_N[:, None], weight_N[:, None], jnp.zeros_like(ids_N))


@dataclass(frozen=True)
class Counts:
  """How often each class occurs in the training data.

  Attributes:
    unigram_V: i64[V], occurrences of each class.
    tokens: the training stream itself as class ids (memory-mapped is fine), or None.
      What needs more than unigram counts (bigrams, clusters) counts it from here.
    examples: how many training examples there are, where they have several classes or
      none; 0: one for each occurrence.
  """

  unigram_V: np.ndarray
  tokens: np.ndarray | None = None
  examples: int = 0

  @property
  def num_classes(self) -> int:
    return len(self.unigram_V)

  @property
  def classes_per_example(self) -> float:
    """On average.

    >>> Counts(np.array([4, 2]), examples=2).classes_per_example
    3.0
    """
    return float(self.unigram_V.sum() / self.examples) if self.examples else 1.0


def as_counts(counts: "Counts | ArrayLike") -> Counts:
  """`Counts` from a plain array of unigram counts.

  >>> as_counts([5, 3, 1]).num_classes
  3

  Raises:
    ValueError: counts are not a non-empty vector of non-negative numbers.
  """
  if isinstance(counts, Counts):
    return counts
  unigram_V = np.asarray(counts)
  if unigram_V.ndim != 1 or not len(unigram_V):
    raise ValueError(f"counts must be a non-empty vector, got shape {unigram_V.shape}")
  if not np.issubdtype(unigram_V.dtype, np.number) or (unigram_V < 0).any():
    raise ValueError("counts must be non-negative numbers")
  return Counts(unigram_V.astype(np.int64))
