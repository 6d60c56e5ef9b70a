"""Item histories as arrays."""

from typing import NamedTuple

import numpy as np


class Histories(NamedTuple):
  """Items in the order in which someone came to them, one history after another.

  Attributes:
    items_I: i64[I], as they are called in the files.
    lengths_H: i64[H], items of each history; their sum is I.
    split_I: i8[I], the split, as an index to `SPLITS`, of the example whose next item
      stands here. The first item of a history is the next one of no example.
  """

  items_I: np.ndarray
  lengths_H: np.ndarray
  split_I: np.ndarray

  def places(self) -> np.ndarray:
    """i64[I], how many items of the same history stand before each.

    >>> nothing = np.zeros(5)
    >>> Histories(nothing, np.array([3, 0, 2]), nothing).places()
    array([0, 1, 2, 0, 1])
    """
    begins_H = np.cumsum(self.lengths_H) - self.lengths_H
    return np.arange(len(self.items_I)) - np.repeat(begins_H, self.lengths_H)
