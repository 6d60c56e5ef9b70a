"""Gowalla: places that users visited, as inputs and labels."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from largevocab.data.files import find_file
from largevocab.data.items.item_histories import item_ids
from largevocab.data.labels.document_set import DocumentSet
from largevocab.data.labels.documents import Documents, from_rows
from largevocab.data.labels.label_sets import LabelSet
from largevocab.data.lines import read_lines
from largevocab.fields import ProperShare, settings

_SEED = 0  # seed of sampling the examples, the same in all runs


@settings(kw_only=True)
class Gowalla(DocumentSet):
  """Lines with a user and items, as integers, in no meaningful order.

  A training example is a user with at least two items. A random half of the items are
  the features, with value 1, and the others are the labels (for an odd number of items,
  there is one label fewer). A test example has all training items of a user as
  features, and the test items as labels. Users without training items are left out. All
  items are both features and classes. LightGCN's usual files have 29,858 users and
  40,981 items.

  Attributes:
    path: the directory of the files, each plain, .gz or .xz.
    train, test: names of the files.
    valid_share: share of the users whose training items are used for validation
      instead; their examples are made in the same way as training examples.

  Source: He et al. 2020, LightGCN, for the files; the task is our own.
  """

  path: str = ""
  train: str = "gowalla_train.txt"
  test: str = "gowalla_test.txt"
  valid_share: ProperShare = 0.05

  def files(self) -> Sequence[Path]:
    return [find_file(self.path, name, "data.path") for name in (self.train, self.test)]

  def options(self) -> Sequence[float | str]:
    return [self.valid_share]

  def read(self, files: Sequence[Path]) -> LabelSet:
    train, test = map(_items_of_users, files)
    items = np.unique(
      np.concatenate([np.zeros(0, np.int64), *train.values(), *test.values()])
    )
    number = lambda of_user: {
      user: np.searchsorted(items, own) for user, own in of_user.items()
    }
    train, test = number(train), number(test)
    rng = np.random.default_rng(_SEED)
    halves = [_halves(rng, own) for own in train.values() if len(own) > 1]
    num_valid = int(self.valid_share * len(halves))
    order = rng.permutation(len(halves))
    documents = _documents(halves)
    splits = {
      "train": documents.take(np.sort(order[num_valid:])),
      "valid": documents.take(np.sort(order[:num_valid])),
      "test": _documents(
        (train[user], own) for user, own in test.items() if user in train
      ),
    }
    return LabelSet(splits, len(items), [str(item) for item in items])


def _items_of_users(path: Path) -> dict[int, np.ndarray]:
  """The distinct items of each user, sorted."""
  found: defaultdict[int, array] = defaultdict(lambda: array("q"))
  for line_number, line in enumerate(read_lines(path), 1):
    if words := line.split():
      user, *items = item_ids(words, path, line_number)
      found[user].extend(items)
  return {
    user: np.unique(items).astype(np.int64) for user, items in found.items() if items
  }


def _halves(
  rng: np.random.Generator, items: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  items = rng.permutation(items)
  half = len(items) - len(items) // 2
  return np.sort(items[:half]), np.sort(items[half:])


def _documents(examples: Iterable[tuple[np.ndarray, np.ndarray]]) -> Documents:
  """Makes documents from features, with value 1, and labels."""
  rows = list(examples)
  features, labels = ([row[i] for row in rows] for i in range(2))
  return from_rows(features, [np.ones(len(row)) for row in features], labels)
