"""Splits labelled documents, selects labels, and numbers them as class ids."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from largevocab.data.classes import Classes
from largevocab.data.encoded import SPLITS
from largevocab.data.labels.documents import Documents
from largevocab.errors import UserError

_SEED = 0  # seed of sampling when a data set is built, the same in all runs


class LabelSet(NamedTuple):
  """Parsed documents of all splits.

  Attributes:
    splits: the documents of 'train', 'valid' and 'test'.
    num_features: D.
    names: the name of each label, without blanks.
  """

  splits: Mapping[str, Documents]
  num_features: int
  names: Sequence[str]


def cut_validation(train: Documents, share: float) -> tuple[Documents, Documents]:
  """Takes out a share of the documents, evenly spaced; returns the rest and the share.

  Args:
    share: between 0 and 1; `n share` documents, rounded down, are taken out.

  >>> from largevocab.data.labels.documents import from_rows
  >>> documents = from_rows([[i] for i in range(6)], [[1.0]] * 6, [[0]] * 6)
  >>> [part.feature_ids.tolist() for part in cut_validation(documents, 1 / 3)]
  [[0, 1, 3, 4], [2, 5]]
  """
  taken = np.floor(np.arange(train.number + 1) * (share + 1e-12))
  is_valid = np.diff(taken) > 0
  return train.take(np.flatnonzero(~is_valid)), train.take(np.flatnonzero(is_valid))


def thin_labels(labels: LabelSet, min_count: int, max_count: int) -> LabelSet:
  """Removes rare labels and occurrences of frequent labels.

  The resulting distribution is near-uniform.

  Labels in at least `min_count` training documents are kept. For each of them, at most
  max_count training occurrences are kept, chosen at random. If such a label has c
  occurrences in training and t in another split, ceil(t max_count / c) of the latter
  are kept, so that all splits have one distribution. Documents that are left without
  labels are removed.

  Args:
    labels: the documents; label ids are below the number of names.
    min_count, max_count: 0: off. If both are off, nothing is removed.

  Source: Daghaghi et al. 2021, section 3.5: Amazon-Uniform, made of Amazon-670K by
    "down sampling frequent classes", without details. Here rare labels are also
    removed, since 158,114 of 670,091 remain there. Test occurrences are removed like
    those in training, since similar shares of training and test documents remain
    there, 71 and 73 % (table 1).

  >>> from largevocab.data.labels.documents import from_rows
  >>> train = from_rows([[0], [1], [2]], [[1.0]] * 3, [[0, 2], [2], [2, 1]])
  >>> labels = LabelSet({"train": train, "valid": train, "test": train}, 3, "abc")
  >>> thinned = thin_labels(labels, min_count=2, max_count=2)
  >>> thinned.names, thinned.splits["train"].number
  (['c'], 2)
  """
  if not min_count and not max_count:
    return labels
  counts = _counts(labels, "train")
  kept = counts >= min_count
  limit = np.minimum(counts, max_count) if max_count else counts
  id_of = np.cumsum(kept) - 1
  rng = np.random.default_rng(_SEED)
  splits = {}
  for split, documents in labels.splits.items():
    own = _counts(labels, split)
    # Multiplying first is exact, and in training gives the limit itself.
    stay = -(-own * limit // np.maximum(counts, 1))
    chosen = kept[documents.label_ids] & _sample(rng, documents.label_ids, stay)
    thinned = documents.with_labels(chosen, id_of)
    splits[split] = thinned.take(np.flatnonzero(np.diff(thinned.label_ptr)))
  names = [labels.names[i] for i in np.flatnonzero(kept).tolist()]
  return labels._replace(splits=splits, names=names)


def number_labels(labels: LabelSet) -> tuple[Classes, LabelSet]:
  """Maps labels to class ids, by decreasing training count, ties by id.

  Raises:
    UserError: a split has no labels, or there are fewer than two labels.

  >>> from largevocab.data.labels.documents import from_rows
  >>> train = from_rows([[0], [1]], [[1.0]] * 2, [[1], [1, 2]])
  >>> labels = LabelSet({"train": train, "valid": train, "test": train}, 2, "abc")
  >>> classes, labels = number_labels(labels)
  >>> classes.words, classes.counts_V.tolist(), labels.splits["test"].label_ids.tolist()
  (['b', 'c', 'a'], [2, 1, 0], [0, 0, 1])
  """
  if len(labels.names) < 2:
    raise UserError(
      f"there are {len(labels.names)} different labels: give at least 2, or lower "
      "data.min_count"
    )
  for split in SPLITS:
    if not len(labels.splits[split].label_ids):
      raise UserError(
        f"no document of the {split} split has labels: give more documents, or a "
        "larger share of them"
      )
  counts = _counts(labels, "train")
  order = np.argsort(-counts, kind="stable")
  id_of = np.argsort(order)
  splits = {
    split: documents.with_labels(np.ones(len(documents.label_ids), bool), id_of)
    for split, documents in labels.splits.items()
  }
  classes = Classes([labels.names[i] for i in order.tolist()], counts[order])
  return classes, labels._replace(splits=splits, names=classes.words)


def _counts(labels: LabelSet, split: str) -> np.ndarray:
  return np.bincount(labels.splits[split].label_ids, minlength=len(labels.names))


def _sample(rng: np.random.Generator, ids: np.ndarray, stay: np.ndarray) -> np.ndarray:
  """Chooses `stay[i]` random places among those where `ids` is i, bool[n]."""
  order = rng.permutation(len(ids))
  order = order[np.argsort(ids[order], kind="stable")]
  counts = np.bincount(ids, minlength=len(stay))
  rank = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
  chosen = np.empty(len(ids), bool)
  chosen[order] = rank < stay[ids[order]]
  return chosen
