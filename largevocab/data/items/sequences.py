"""Sequences of users' items, of which the last ones are held out.

Here H is the number of users and I the number of their items.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from largevocab.data.classes import Classes
from largevocab.data.encoded import damaged
from largevocab.data.example_batches import HeldOutExamples, ShuffledExamples
from largevocab.data.items.interaction_lines import ByUser
from largevocab.data.items.item_data import ItemData
from largevocab.data.items.packed_examples import PackedExamples
from largevocab.data.items.sequence_examples import SequenceExamples
from largevocab.data.labels.bucketed import HeldOutBuckets, capacities
from largevocab.errors import UserError

_SHARES = (0.9, 0.99)  # buckets of held-out examples by seen items, for few shapes


@dataclass(frozen=True, eq=False)
class ItemSequences(ItemData):
  """Items of users in order of time, split by leaving the last ones out.

  A user's last item is a test label, and the last but one is a validation label. All
  earlier items are for training. All items of users with fewer than 3 items are for
  training.

  Attributes:
    vocabulary: all items, with counts as labels in the training split.
    users: names of the users.
    items: i32[I], the items of one user after another.
    lengths: i64[H], number of items of each user.
    one_label: whether a training example has one label; see `Interactions.one_label`.
    packed: whether training examples share rows; see `Interactions.packed`.
    seed: seed of the order of training examples.
  """

  users: Sequence[str]
  items: np.ndarray
  lengths: np.ndarray
  one_label: bool = False
  packed: bool = False
  seed: int = 0

  @property
  def summary(self) -> str:
    """Number of users, items and interactions."""
    return (
      f"{len(self.users)} users, {len(self.vocabulary)} items, {len(self.items)} "
      "interactions"
    )

  def training_batches(self, batch_size: int, unroll: int) -> ShuffledExamples:
    """Examples with at most T = `unroll` inputs, shuffled anew each epoch."""
    examples = self._examples("train", unroll)
    if self.packed:
      examples = PackedExamples(examples, self.seed)
    return ShuffledExamples(examples, batch_size, self.seed)

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> HeldOutExamples | HeldOutBuckets:
    """Every example of a split once, with at most T = `unroll` inputs."""
    examples = self._examples(split, unroll)
    if split == "train":
      return HeldOutExamples(examples, batch_size)
    shapes = capacities(examples.lengths, _SHARES)
    return HeldOutBuckets(examples, batch_size, shapes)

  def history(self, user: int) -> np.ndarray:
    """i32[n], all items of a user."""
    end = self._ends[user]
    return np.asarray(self.items[end - self.lengths[user] : end])

  def _examples(self, split: str, steps: int) -> SequenceExamples:
    begin_H, end_H = self._ends - self.lengths, self._ends
    every = split == "train" and not self.one_label
    if split == "train":
      place_H = begin_H + num_training(self.lengths) - 1
      has_any_H = place_H > begin_H
      begin, place = begin_H[has_any_H], place_H[has_any_H]
      if self.one_label:
        num = place - begin
        begin = np.repeat(begin, num)
        place = begin + 1 + np.arange(num.sum()) - np.repeat(np.cumsum(num) - num, num)
    else:
      is_long_H = self.lengths >= 3
      begin = begin_H[is_long_H]
      place = end_H[is_long_H] - (1 if split == "test" else 2)
    return SequenceExamples(
      self.items, begin, place, steps, len(self.vocabulary), every
    )

  @cached_property
  def _ends(self) -> np.ndarray:
    return np.cumsum(self.lengths)


def num_training(lengths_H: np.ndarray) -> np.ndarray:
  """Number of each user's items that are for training.

  >>> num_training(np.array([1, 2, 3, 5])).tolist()
  [1, 2, 1, 3]
  """
  return np.where(lengths_H >= 3, lengths_H - 2, lengths_H)


def number_sequences(found: ByUser) -> ItemSequences:
  """Numbers items as class ids, in order of decreasing count, ties by first line.

  An item counts as often as it is a label in the training split, where every item
  except a user's first is a label. Every item is a class, even if it is never a
  training label.

  Raises:
    UserError: there are fewer than two items, or a split has no examples.
  """
  if len(found.items) < 2:
    raise UserError(
      f"there are {len(found.items)} different items: give at least 2, or lower "
      "data.min_of_user and data.min_of_item"
    )
  lengths_H = np.bincount(found.user_I, minlength=len(found.users))
  begin_H = np.cumsum(lengths_H) - lengths_H
  place_I = np.arange(len(found.item_I)) - begin_H[found.user_I]
  is_label_I = (place_I > 0) & (place_I < num_training(lengths_H)[found.user_I])
  if not is_label_I.any() or lengths_H.max() < 3:
    raise UserError(
      "a split has no examples after the last two items of each user are left out: "
      "give users with at least 4 items"
    )
  counts = np.bincount(found.item_I[is_label_I], minlength=len(found.items))
  order_V = np.argsort(-counts, kind="stable")
  class_of = np.argsort(order_V).astype(np.int32)
  classes = Classes([found.items[i] for i in order_V], counts[order_V])
  return ItemSequences(classes, found.users, class_of[found.item_I], lengths_H)


def save_sequences(directory: Path, data: ItemSequences) -> None:
  """Writes the files that `open_sequences` reads."""
  np.save(directory / "items.npy", data.items)
  np.save(directory / "lengths.npy", data.lengths)
  (directory / "users.txt").write_text("\n".join(data.users) + "\n", "utf-8")
  data.vocabulary.save(directory / "vocabulary.txt")
  sizes = [len(data.users), len(data.vocabulary), len(data.items)]
  (directory / "sequences.json").write_text(json.dumps(sizes) + "\n")


def open_sequences(directory: Path) -> ItemSequences:
  """Opens the sequences written in a directory, with memory-mapped items.

  Raises:
    UserError: a file is missing, truncated or of another kind.
  """
  try:
    sizes = json.loads((directory / "sequences.json").read_text())
    classes = Classes.load(directory / "vocabulary.txt")
    users = (directory / "users.txt").read_text("utf-8").split()
    lengths = np.load(directory / "lengths.npy")
    items = np.load(directory / "items.npy", mmap_mode="r")
    labels = np.maximum(num_training(lengths) - 1, 0).sum()
    is_sound = (
      sizes == [len(users), len(classes), len(items)]
      and (items.dtype, lengths.dtype) == (np.int32, np.int64)
      and (len(lengths), lengths.sum()) == (len(users), len(items))
      and 0 <= items.min() <= items.max() < len(classes)
      and int(classes.counts_V.sum()) == labels
    )
  except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
    raise damaged(directory, str(error)) from error
  if not is_sound:
    raise damaged(directory, "sizes or class ids differ from those written")
  return ItemSequences(classes, users, items, lengths)
