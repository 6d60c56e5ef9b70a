"""Examples from item sequences: the items before a place, and the item there."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from largevocab.data.batches import Batch
from largevocab.labels import Targets


@dataclass(frozen=True, eq=False)
class SequenceExamples:
  """Examples: the items of a user before a place, and the item there.

  The input x, i32[B, T], has the last T items before the place, oldest first, padded
  at the end with V. With `every`, all next items are labels: N = B T, and the labels of
  padding have weight 0. Otherwise only the item at the place is a label: N = B,
  `Batch.at` is the step of its last input, and `Batch.seen` has all items before it.

  Attributes:
    items: i32[I], the items; may be memory-mapped.
    begin: i64[n], the place of the user's first item.
    place: i64[n], the place of the last label, which is above `begin`.
    steps: T.
    num_items: V.
    every: whether all next items are labels.

  >>> at = np.array([0]), np.array([3])
  >>> examples = SequenceExamples(np.array([7, 5, 6, 4]), *at, 4, 9, every=True)
  >>> batch = examples.batch(np.array([0]), np.ones(1))
  >>> batch.x.tolist(), batch.y.ids_NP[:, 0].tolist(), batch.y.w_NP[:, 0].tolist()
  ([[7, 5, 6, 9]], [5, 6, 4, 9], [1.0, 1.0, 1.0, 0.0])
  >>> examples = SequenceExamples(np.array([7, 5, 6, 4]), *at, 2, 9, every=False)
  >>> batch = examples.batch(np.array([0]), np.ones(1), num_seen=4)
  >>> batch.x.tolist(), batch.y.ids_NP.tolist(), batch.at.tolist(), batch.seen.tolist()
  ([[5, 6]], [[4]], [1], [[7, 5, 6, 9]])
  """

  items: np.ndarray
  begin: np.ndarray
  place: np.ndarray
  steps: int
  num_items: int
  every: bool

  def __len__(self) -> int:
    return len(self.place)

  @cached_property
  def num_inputs(self) -> np.ndarray:
    """i64[n], number of inputs of each example, at most T."""
    return np.minimum(self.place - self.begin, self.steps)

  @cached_property
  def lengths(self) -> np.ndarray:
    """i64[n, 2], number of seen items and of labels, for `HeldOutBuckets`."""
    return np.stack([self.place - self.begin, np.ones_like(self.place)], axis=1)

  def batch(
    self,
    at_B: np.ndarray,
    weight_B: np.ndarray,
    num_seen: int = 0,
    num_labels: int = 1,
  ) -> Batch:
    """The examples with the numbers `at_B`, with the weights `weight_B`."""
    begin_B, place_B = self.begin[at_B], self.place[at_B]
    first_B = np.maximum(begin_B, place_B - self.steps)
    x_BT = self._items(first_B, place_B, self.steps)
    weight_B = np.asarray(weight_B, np.float32)
    if not self.every:
      at = place_B - first_B - 1
      y_B1 = np.asarray(self.items)[place_B][:, None]
      last_B = np.take_along_axis(x_BT, at[:, None], axis=1)[:, 0]
      seen_BS = self._items(begin_B, place_B, num_seen) if num_seen else None
      y = Targets(y_B1, weight_B[:, None], last_B)  # pyrefly: ignore
      return Batch(x_BT, y, np.bool_(True), at.astype(np.int32), seen_BS)
    y_BT = self._items(first_B + 1, place_B + 1, self.steps)
    is_label_BT = x_BT < self.num_items
    y = Targets(
      y_BT.reshape(-1, 1),  # pyrefly: ignore
      (weight_B[:, None] * is_label_BT).reshape(-1, 1),  # pyrefly: ignore
      np.where(is_label_BT, x_BT, 0).ravel(),  # pyrefly: ignore
    )
    return Batch(x_BT, y, np.bool_(True))

  def _items(self, begin_B: np.ndarray, end_B: np.ndarray, num: int) -> np.ndarray:
    """i32[B, num], the first items between `begin` and `end`, padded with V."""
    place_BT = begin_B[:, None] + np.arange(num)
    is_item_BT = place_BT < end_B[:, None]
    items_BT = np.asarray(self.items)[np.where(is_item_BT, place_BT, 0)]
    return np.where(is_item_BT, items_BT, self.num_items).astype(np.int32)
