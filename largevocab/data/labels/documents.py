"""Documents with sparse features, and labels, as flat arrays."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

Row = Sequence[float] | np.ndarray


class Documents(NamedTuple):
  """n documents in compressed sparse rows (CSR), which may be memory-mapped.

  Document i has the features `feature_ids[feature_ptr[i]:feature_ptr[i + 1]]`, with the
  values at the same places. Labels are stored in the same way.

  Attributes:
    feature_ptr: i64[n + 1].
    feature_ids: i32[number of non-zeros], distinct in each document.
    values: f32[number of non-zeros].
    label_ptr: i64[n + 1].
    label_ids: i32[number of labels], distinct in each document.
  """

  feature_ptr: np.ndarray
  feature_ids: np.ndarray
  values: np.ndarray
  label_ptr: np.ndarray
  label_ids: np.ndarray

  @property
  def number(self) -> int:
    """n, since the length of a named tuple is the number of its fields."""
    return len(self.label_ptr) - 1

  @property
  def lengths(self) -> np.ndarray:
    """i64[n, 2], number of features and labels of each document."""
    return np.stack([np.diff(self.feature_ptr), np.diff(self.label_ptr)], axis=1)

  def take(self, at: np.ndarray) -> Self:
    """The documents at these indices.

    >>> documents = from_rows([[0], [1, 2]], [[0.5], [1, 1]], [[3], []])
    >>> documents.take(np.array([1])).feature_ids.tolist()
    [1, 2]
    """
    feature_ptr, features = _rows(self.feature_ptr, at)
    label_ptr, labels = _rows(self.label_ptr, at)
    return self._replace(
      feature_ptr=feature_ptr,
      feature_ids=self.feature_ids[features],
      values=self.values[features],
      label_ptr=label_ptr,
      label_ids=self.label_ids[labels],
    )

  def with_labels(self, kept: np.ndarray, id_of: np.ndarray) -> Self:
    """Selects and renumbers labels.

    Args:
      kept: bool[number of labels], which occurrences to keep.
      id_of: i[ids], the new id of each label.
    """
    before = np.append(0, np.cumsum(kept))
    return self._replace(
      label_ptr=before[self.label_ptr],
      label_ids=id_of[self.label_ids[kept]].astype(np.int32),
    )


def from_rows(
  features: Sequence[Row], values: Sequence[Row], labels: Sequence[Row]
) -> Documents:
  """Makes documents from rows of features and labels.

  >>> from_rows([[0], [1, 2]], [[0.5], [1, 1]], [[3], []]).lengths.tolist()
  [[1, 1], [2, 0]]
  """
  return Documents(
    pointers([len(row) for row in features]),
    _flat(features, np.int32),
    _flat(values, np.float32),
    pointers([len(row) for row in labels]),
    _flat(labels, np.int32),
  )


def pointers(lengths) -> np.ndarray:
  """The start of each row, i64[n + 1], computed from the lengths of rows.

  >>> pointers([2, 0, 1]).tolist()
  [0, 2, 2, 3]
  """
  return np.append(0, np.cumsum(lengths, dtype=np.int64))


def _flat(rows: Sequence[Row], dtype: type) -> np.ndarray:
  return np.concatenate([np.zeros(0, dtype), *(np.asarray(r, dtype) for r in rows)])


def _rows(ptr: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Pointers for the rows `at`, and the places of the entries of these rows."""
  lengths = ptr[at + 1] - ptr[at]
  new_ptr = pointers(lengths)
  shift = np.repeat(ptr[at] - new_ptr[:-1], lengths)
  return new_ptr, np.arange(new_ptr[-1]) + shift
