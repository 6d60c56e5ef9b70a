"""Item histories as examples: the previous items and the next item.

Here H is the number of histories and I the number of their items.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from largevocab.data.batches import Batch
from largevocab.data.classes import Classes
from largevocab.data.encoded import SPLITS, open_encoded, write_summary
from largevocab.data.example_batches import (
  HeldOutExamples,
  ShuffledExamples,
  check_unroll,
)
from largevocab.data.items.item_data import ItemData
from largevocab.errors import UserError
from largevocab.labels import Targets


class Histories(NamedTuple):
  """Items in order of time, one history after another.

  Attributes:
    items_I: i64[I], items as named in the files.
    lengths_H: i64[H], number of items in each history; their sum is I.
    split_I: i8[I], for each place, the split (index of `SPLITS`) of the example whose
      next item is there. The first item of a history is not the next item of any
      example.
  """

  items_I: np.ndarray
  lengths_H: np.ndarray
  split_I: np.ndarray

  def places(self) -> np.ndarray:
    """i64[I], number of earlier items in the same history.

    >>> nothing = np.zeros(5)
    >>> Histories(nothing, np.array([3, 0, 2]), nothing).places()
    array([0, 1, 2, 0, 1])
    """
    begins_H = np.cumsum(self.lengths_H) - self.lengths_H
    return np.arange(len(self.items_I)) - np.repeat(begins_H, self.lengths_H)


@dataclass(frozen=True)
class ItemRows:
  """Examples whose inputs are the previous items, and whose label is the next item.

  Attributes:
    rows: i32[n, K + 1], with the next item last; may be memory-mapped.

  >>> batch = ItemRows(np.array([[7, 5, 6]])).batch(np.array([0]), np.ones(1))
  >>> batch.x.tolist(), batch.y.ids_NP.tolist(), batch.y.context_N.tolist()
  ([[7, 5]], [[6]], [5])
  """

  rows: np.ndarray

  def __len__(self) -> int:
    return len(self.rows)

  def batch(self, at_B: np.ndarray, weight_B: np.ndarray) -> Batch:
    """The examples with the numbers `at_B`, with the weights `weight_B`."""
    rows_BK = np.asarray(self.rows)[at_B]
    x_BK = np.ascontiguousarray(rows_BK[:, :-1], np.int32)
    targets = Targets(
      np.ascontiguousarray(rows_BK[:, -1:], np.int32),  # pyrefly: ignore
      weight_B[:, None].astype(np.float32),  # pyrefly: ignore
      np.ascontiguousarray(x_BK[:, -1]),  # pyrefly: ignore
    )
    return Batch(x_BK, targets, np.bool_(True))


@dataclass(frozen=True)
class NextItem(ItemData):
  """Examples for next-item prediction.

  An example is a row of K + 1 class ids: the K previous items, oldest first, and the
  next item. V, the number of classes, pads histories in front.

  Attributes:
    vocabulary: all items, with counts as next items in the training split.
    train, valid, test: i32[n, K + 1], the examples of each split.
    seed: seed of the order of training examples.
  """

  train: np.ndarray
  valid: np.ndarray
  test: np.ndarray
  seed: int = 0

  @property
  def summary(self) -> str:
    """Number of examples."""
    return f"{len(self.train)} training examples, {len(self.vocabulary)} items"

  def training_batches(self, batch_size: int, unroll: int) -> ShuffledExamples:
    """Examples, shuffled anew each epoch."""
    check_unroll(unroll)
    return ShuffledExamples(ItemRows(self.train), batch_size, self.seed)

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> HeldOutExamples:
    """Every example of a split once."""
    check_unroll(unroll)
    return HeldOutExamples(ItemRows(getattr(self, split)), batch_size)


def number_histories(
  histories: Histories, num_before: int
) -> tuple[Classes, dict[str, np.ndarray]]:
  """The classes and, for each split, the examples of histories.

  Every item is a class, even if it is never the next item in the training split.
  Held-out metrics include such items, which cannot be learned. Class ids are in order
  of decreasing count, ties by item.

  Args:
    histories: items as named in the files.
    num_before: K, number of previous items in the input.

  Raises:
    UserError: a split has no examples, or there are fewer than two items.

  >>> histories = Histories(np.array([7, 5, 5, 7, 9, 5]), np.array([3, 1, 2]),
  ...                       np.array([0, 0, 0, 0, 1, 2], np.int8))
  >>> classes, splits = number_histories(histories, num_before=2)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: the valid split has no examples: give more or longer
  histories, or a larger share of them
  >>> histories = histories._replace(split_I=np.array([0, 0, 1, 0, 1, 2], np.int8))
  >>> classes, splits = number_histories(histories, num_before=2)
  >>> classes.words, classes.counts_V.tolist()
  (['5', '7', '9'], [1, 0, 0])
  >>> splits["train"].tolist(), splits["valid"].tolist()
  ([[3, 1, 0]], [[1, 0, 0]])
  """
  items, of_I = np.unique(histories.items_I, return_inverse=True)
  if len(items) < 2:
    raise UserError(f"there are {len(items)} different items: give at least 2")
  place_I = histories.places()
  is_train_I = (place_I > 0) & (histories.split_I == SPLITS.index("train"))
  counts = np.bincount(of_I[is_train_I], minlength=len(items))
  order_V = np.argsort(-counts, kind="stable")
  class_of = np.argsort(order_V).astype(np.int32)
  id_I = class_of[of_I]
  classes = Classes([str(item) for item in items[order_V]], counts[order_V])
  splits = {}
  for code, split in enumerate(SPLITS):
    (at_N,) = np.nonzero((place_I > 0) & (histories.split_I == code))
    if not len(at_N):
      raise UserError(
        f"the {split} split has no examples: give more or longer histories, or a "
        "larger share of them"
      )
    lag_K = np.arange(num_before, 0, -1)
    has_NK = place_I[at_N][:, None] >= lag_K[None]
    before_NK = np.where(has_NK, at_N[:, None] - lag_K[None], 0)
    before_NK = np.where(has_NK, id_I[before_NK], np.int32(len(items)))
    splits[split] = np.concatenate([before_NK, id_I[at_N][:, None]], axis=1)
  return classes, splits


def encode_histories(directory: Path, histories: Histories, num_before: int) -> None:
  """Writes the files that `open_next_item` reads; see `number_histories`."""
  classes, splits = number_histories(histories, num_before)
  for split, examples in splits.items():
    np.save(directory / f"{split}.npy", examples)
  classes.save(directory / "vocabulary.txt")
  write_summary(directory, classes, {s: len(part) for s, part in splits.items()})


def open_next_item(directory: Path, seed: int) -> NextItem:
  """Opens the examples encoded in a directory, memory-mapped.

  Raises:
    UserError: a file is missing, truncated or of another kind.
  """
  classes, splits = open_encoded(directory, Classes, padding=True)
  return NextItem(classes, **splits, seed=seed)
