"""Diginetica: items viewed in sessions of a web shop.

Here H is the number of sessions and I the number of their items.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_file
from largevocab.data.items.item_histories import ItemHistories, item_ids
from largevocab.data.items.next_item import Histories
from largevocab.data.lines import read_lines
from largevocab.fields import ProperShare, settings


@settings(kw_only=True)
class Diginetica(ItemHistories):
  """Sessions, one per line: integer item names, in order of time.

  The usual files are the sessions from SR-GNN's preprocessing of the CIKM Cup 2016's
  `train-item-views.csv` (items with at least 5 views; the last 7 days are the test
  data). They have 43,097 items. Every item after the first of a session is the next
  item of one example, which gives 719,470 examples for training and validation and
  60,858 for test.

  Attributes:
    train, test: the names of the files, without .gz or .xz.
    valid_share: share of the training sessions to cut off the end for validation.

  Source: Wu et al. 2019, Session-based recommendation with graph neural networks.
  """

  train: str = "diginetica_srgnn_train_sessions.txt"
  test: str = "diginetica_srgnn_test_sessions.txt"
  valid_share: ProperShare = 0.05

  def files(self) -> Sequence[Path]:
    return [find_file(self.path, name, "data.path") for name in (self.train, self.test)]

  def options(self) -> Sequence[float]:
    return [self.valid_share]

  def read(self, files: Sequence[Path]) -> Histories:
    (train_I, train_H), (test_I, test_H) = (_sessions(path) for path in files)
    num_valid = round(self.valid_share * len(train_H))
    split_H = np.full(len(train_H) + len(test_H), SPLITS.index("test"), np.int8)
    split_H[: len(train_H)] = SPLITS.index("valid")
    split_H[: len(train_H) - num_valid] = SPLITS.index("train")
    lengths_H = np.append(train_H, test_H)
    return Histories(
      np.append(train_I, test_I), lengths_H, np.repeat(split_H, lengths_H)
    )


def _sessions(path: Path) -> tuple[np.ndarray, np.ndarray]:
  """All items of a file, and the lengths of its sessions; empty lines are skipped."""
  items, lengths = array("q"), array("q")
  for number, line in enumerate(read_lines(path), 1):
    if words := line.split():
      items.extend(item_ids(words, path, number))
      lengths.append(len(words))
  return np.asarray(items), np.asarray(lengths)
