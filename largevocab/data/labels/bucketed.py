"""Batches documents of similar lengths: few static shapes, without truncation."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from largevocab.data.batches import ALL, Batch
from largevocab.errors import UserError
from largevocab.fields import BatchSize, Seed, settings

_MULTIPLES = (8, 4)  # capacities for features and labels are rounded up to these


class PaddedExamples(Protocol):
  """Examples of different lengths, accessed by number."""

  @property
  def lengths(self) -> np.ndarray:
    """i64[n, 2], number of features and labels of each example."""
    ...

  def batch(
    self, at_B: np.ndarray, weight_B: np.ndarray, num_features: int, num_labels: int, /
  ) -> Batch:
    """The examples with the numbers `at_B`, padded to the given lengths."""
    ...


class _Plan(NamedTuple):
  """The batches in order: for each, its bucket and the indices of its examples."""

  bucket_S: np.ndarray
  examples: list[np.ndarray]


def capacities(
  lengths: np.ndarray, shares: Sequence[float], others: Sequence[np.ndarray] = ()
) -> np.ndarray:
  """The capacity of each bucket for features and labels of an example, i64[K, 2].

  The capacity of bucket k suffices for a share `shares[k]` of the examples by number of
  features, and for the same share by number of labels. The last bucket holds all
  examples. Buckets are nested. Numbers of features are rounded up to multiples of 8,
  and numbers of labels to multiples of 4, or to 1 if no example has more labels. Equal
  buckets are merged.

  Args:
    lengths: i64[n, 2], n >= 1, number of features and labels of each example.
    shares: increasing shares, above 0 and below 1.
    others: lengths of further examples that the last bucket must hold, i64[m, 2] each.

  >>> lengths = np.array([[3, 1], [5, 1], [9, 2], [40, 7]])
  >>> capacities(lengths, (0.5, 0.75)).tolist()
  [[8, 4], [16, 4], [40, 8]]
  >>> capacities(lengths, (0.5, 0.75), [np.array([[3, 9]])]).tolist()
  [[8, 4], [16, 4], [40, 12]]
  """
  levels = np.quantile(lengths, [*shares, 1.0], axis=0, method="inverted_cdf")
  levels[-1] = np.max([levels[-1], *(np.max(m, axis=0) for m in others)], axis=0)
  multiples = np.array(_MULTIPLES)
  rounded = np.maximum(-(-levels // multiples), 1).astype(np.int64) * multiples
  if levels[-1, 1] <= 1:
    rounded[:, 1] = 1
  return np.unique(rounded, axis=0)


def buckets_of(lengths: np.ndarray, capacities: np.ndarray) -> np.ndarray:
  """The smallest bucket that can hold each example, i64[n].

  >>> limits = np.array([[8, 4], [16, 8]])
  >>> buckets_of(np.array([[3, 1], [3, 5], [9, 1]]), limits).tolist()
  [0, 1, 1]
  """
  return np.max(
    [np.searchsorted(capacities[:, i], lengths[:, i]) for i in range(2)], axis=0
  )


@settings(eq=False)
class _Buckets:
  examples: PaddedExamples
  batch_size: BatchSize
  capacities: np.ndarray

  @functools.cached_property
  def members(self) -> list[np.ndarray]:
    """Indices of the examples in each bucket."""
    of_N = buckets_of(self.examples.lengths, self.capacities)
    return [np.flatnonzero(of_N == k) for k in range(len(self.capacities))]

  def _batch(self, at: np.ndarray, bucket: int, rows: slice) -> Batch:
    """Rows of a batch of the examples `at`, padded with the last one at weight 0."""
    at_B = np.pad(at, (0, self.batch_size - len(at)), mode="edge")
    weight_B = np.arange(self.batch_size) < len(at)
    sizes = self.capacities[bucket].tolist()
    return self.examples.batch(at_B[rows], weight_B[rows], *sizes)


@settings(eq=False)
class BucketedExamples(_Buckets):
  """Training batches: examples of similar lengths together, shuffled anew each epoch.

  The members of a bucket are permuted and cut into batches. The remaining examples,
  fewer than B, move to the next larger bucket. The examples that remain in the last
  bucket, different ones each time, are not read in that epoch. The number of batches of
  each shape is therefore the same in all epochs, and no example is excluded by its
  length. Batches of all buckets come in random order. All this is a function of seed
  and epoch, so that the global step is the iterator's whole state.

  Attributes:
    examples: the examples, which may be memory-mapped; only those of a batch are read.
    batch_size: B.
    capacities: i64[K, 2], nested; see the function of this name.
    seed: seed of the orders.

  Raises:
    UserError: there are too few examples for a single batch.

  Cost: O(N) memory and time for each epoch; a batch is O(B F).
  """

  seed: Seed = 0

  def __post_init__(self):
    if not self.steps_per_epoch:
      raise UserError(
        f"there are {len(self.examples.lengths)} training examples, but a batch "
        f"takes {self.batch_size}: reduce train.batch_size"
      )

  @property
  def steps_per_epoch(self) -> int:
    return len(self.examples.lengths) // self.batch_size

  def batch(self, step: int, rows: slice = ALL) -> Batch:
    """The batch of a global step, or some rows of it; epochs repeat without end."""
    epoch, t = divmod(int(step), self.steps_per_epoch)
    plan = _epoch(self, epoch)
    return self._batch(plan.examples[t], plan.bucket_S[t], rows)

  def plan(self, epoch: int) -> _Plan:
    """The batches of an epoch."""
    rng = np.random.default_rng([self.seed, epoch])
    plan, _ = _cut(self, rng.permutation)
    order = rng.permutation(len(plan.examples))
    return _Plan(plan.bucket_S[order], [plan.examples[i] for i in order])


@functools.lru_cache(maxsize=1)
def _epoch(batches: BucketedExamples, epoch: int) -> _Plan:
  return batches.plan(epoch)


@settings(eq=False)
class HeldOutBuckets(_Buckets):
  """Every example exactly once, examples of similar lengths together, in order.

  The remaining examples of a bucket, fewer than B, move to the next bucket. The very
  last batch is padded with the last example, at weight 0. Attributes are as in
  `BucketedExamples`.
  """

  @functools.cached_property
  def _plan(self) -> _Plan:
    plan, left = _cut(self, lambda members: members)
    if not len(left):
      return plan
    last = len(self.capacities) - 1
    return _Plan(np.append(plan.bucket_S, last), [*plan.examples, left])

  @property
  def num_examples(self) -> int:
    return len(self.examples.lengths)

  def __len__(self) -> int:
    return -(-len(self.examples.lengths) // self.batch_size)

  def __iter__(self) -> Iterator[Batch]:
    return self.read()

  def read(self, rows: slice = ALL) -> Iterator[Batch]:
    """All batches, or only some of their rows."""
    for bucket, at in zip(self._plan.bucket_S, self._plan.examples, strict=True):
      yield self._batch(at, bucket, rows)

  def one_of_each_shape(self, rows: slice = ALL) -> Iterator[Batch]:
    """The first batch of each bucket that has any."""
    for step in np.unique(self._plan.bucket_S, return_index=True)[1]:
      yield self._batch(self._plan.examples[step], self._plan.bucket_S[step], rows)


def _cut(buckets: _Buckets, order) -> tuple[_Plan, np.ndarray]:
  """Full batches, smallest bucket first, and the examples left over at the end."""
  bucket_S, examples = [], []
  left = np.zeros(0, np.int64)
  for bucket, members in enumerate(buckets.members):
    members = order(np.concatenate([left, members]))
    whole = len(members) // buckets.batch_size
    left = members[whole * buckets.batch_size :]
    batches = members[: whole * buckets.batch_size].reshape(whole, buckets.batch_size)
    examples.extend(batches)
    bucket_S.extend([bucket] * whole)
  return _Plan(np.array(bucket_S, np.int64), examples), left
