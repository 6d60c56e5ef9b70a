"""Batches of independent examples: pure functions of the step, with lazy reads."""

import functools
import itertools
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from largevocab.data.batches import ALL, Batch
from largevocab.errors import UserError
from largevocab.fields import BatchSize, Seed, settings


class Examples(Protocol):
  """Examples of any kind, accessed by number."""

  def __len__(self) -> int: ...

  def batch(self, at_B: np.ndarray, weight_B: np.ndarray) -> Batch:
    """The examples with the numbers `at_B`, with the weights `weight_B`."""
    ...


@settings
class ShuffledExamples:
  """Training batches: all examples, shuffled anew each epoch.

  The order is a function of seed and epoch, so that the global step is the iterator's
  whole state. Up to B - 1 examples at the end of an epoch are not read; they are
  different ones each time.

  Attributes:
    examples: the examples, which may be memory-mapped; only those of a batch are read.
    batch_size: B.
    seed: seed of the orders.

  Raises:
    UserError: there are too few examples for a single batch.

  >>> from largevocab.data.items.next_item import ItemRows
  >>> rows = ItemRows(np.arange(12).reshape(4, 3))
  >>> batches = ShuffledExamples(rows, batch_size=2, seed=0)
  >>> batches.steps_per_epoch
  2
  >>> batch = batches.batch(1)
  >>> batch.x.shape, batch.y.ids_NP.shape
  ((2, 2), (2, 1))
  """

  examples: Examples
  batch_size: BatchSize
  seed: Seed

  def __post_init__(self):
    if not self.steps_per_epoch:
      raise UserError(
        f"there are {len(self.examples)} training examples, but a batch takes "
        f"{self.batch_size}: reduce train.batch_size"
      )

  @property
  def steps_per_epoch(self) -> int:
    return len(self.examples) // self.batch_size

  def batch(self, step: int, rows: slice = ALL) -> Batch:
    """The batch of a global step, or some rows of it; epochs repeat without end."""
    epoch, t = divmod(int(step), self.steps_per_epoch)
    order = _order(self.seed, epoch, len(self.examples))
    chosen = order[t * self.batch_size : (t + 1) * self.batch_size][rows]
    return self.examples.batch(chosen, np.ones(len(chosen)))


@functools.lru_cache(maxsize=1)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
  """A permutation of range(size)."""
  return np.random.default_rng([seed, epoch]).permutation(size)


@settings
class HeldOutExamples:
  """Every example exactly once, in order.

  The last batch is padded with the last example, at weight 0.

  Attributes:
    examples: the examples, at least one.
    batch_size: B.

  >>> from largevocab.data.items.next_item import ItemRows
  >>> batches = HeldOutExamples(ItemRows(np.arange(6).reshape(3, 2)), batch_size=2)
  >>> [batch.x.tolist() for batch in batches]
  [[[0], [2]], [[4], [4]]]
  >>> sum(batch.y.w_NP.sum() for batch in batches)
  np.float32(3.0)
  """

  examples: Examples
  batch_size: BatchSize

  @property
  def num_examples(self) -> int:
    return len(self.examples)

  def __len__(self) -> int:
    return -(-len(self.examples) // self.batch_size)

  def __iter__(self) -> Iterator[Batch]:
    return self.read()

  def read(self, rows: slice = ALL) -> Iterator[Batch]:
    """All batches, or only some of their rows."""
    size = len(self.examples)
    for step in range(len(self)):
      at_B = np.arange(step * self.batch_size, (step + 1) * self.batch_size)[rows]
      yield self.examples.batch(np.minimum(at_B, size - 1), at_B < size)

  def one_of_each_shape(self, rows: slice = ALL) -> Iterator[Batch]:
    """The first batch, whose shape all batches have."""
    return itertools.islice(self.read(rows), 1)


def check_unroll(unroll: int) -> None:
  """Raises a UserError unless there is a single time step."""
  if unroll != 1:
    raise UserError(
      f"unroll is {unroll}, but the examples of this data are not sequences: set "
      "train.unroll and eval.unroll to 1"
    )
