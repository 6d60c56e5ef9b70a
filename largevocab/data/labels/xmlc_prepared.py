"""Reads labelled documents that tensorflow-datasets has prepared."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from largevocab.data.labels.document_set import DocumentSet
from largevocab.data.labels.documents import Documents, from_rows
from largevocab.data.labels.label_sets import LabelSet
from largevocab.data.labels.xmlc import TrainAndTest
from largevocab.data.tfds_records import files_of, open_builder, records
from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.labels import is_class

_SIZES = ("num_features", "num_labels")  # keys in the metadata
_FIELDS = ("indices", "values", "labels")


@settings(kw_only=True)
class XmlcTfds(TrainAndTest, DocumentSet):
  """Labelled documents prepared as array_record; TensorFlow is not needed.

  `largevocab.data.labels.tfds_xmlc` has builders for sets of the Extreme Classification
  Repository.

  Attributes:
    dataset: name of the data set, for example `amazon670k`.
    data_dir: where the data set was prepared; empty: ~/tensorflow_datasets.
    train, test: splits of the data set, such as `train[:10%]`.
  """

  dataset: str = ""
  data_dir: str = ""
  train: str = "train"
  test: str = "test"

  def files(self) -> Sequence[Path]:
    builder = open_builder(self.dataset, self.data_dir)
    train = files_of(builder, self.train, "data.train")
    return [*train, *files_of(builder, self.test, "data.test")]

  def options(self) -> Sequence[float | str]:
    return [*super().options(), self.dataset, self.train, self.test]

  def read(self, files: Sequence[Path]) -> LabelSet:
    builder = open_builder(self.dataset, self.data_dir)
    metadata = builder.info.metadata or {}
    features = builder.info.features or {}
    missing = [name for name in _FIELDS if name not in features]
    missing += [f"metadata {name}" for name in _SIZES if name not in metadata]
    if missing:
      raise UserError(
        f"data.dataset: {self.dataset} has no {', '.join(missing)}: prepare it with a "
        "builder of largevocab.data.labels.tfds_xmlc"
      )
    sizes = [int(metadata[name]) for name in _SIZES]
    train, test = (
      self._documents(records(builder, split, self.data_dir), split, sizes)
      for split in (self.train, self.test)
    )
    return self.splits(train, test, *sizes)

  def _documents(self, rows, split: str, sizes: Sequence[int]) -> Documents:
    progress = tqdm(rows, desc=split, unit=" documents", disable=None)
    columns = [[row[name] for name in _FIELDS] for row in progress]
    for number, row in enumerate(columns):
      indices, values, labels = map(np.asarray, row)
      if fault := _fault(indices, values, labels, sizes):
        raise UserError(
          f"data.dataset: {self.dataset}, {split}, record {number}: {fault}: prepare "
          "the set again"
        )
    return from_rows(*([row[i] for row in columns] for i in range(len(_FIELDS))))


def _fault(
  indices: np.ndarray, values: np.ndarray, labels: np.ndarray, sizes: Sequence[int]
) -> str:
  """What is wrong with a record; empty if nothing is wrong."""
  for name, ids, size in (("indices", indices, sizes[0]), ("labels", labels, sizes[1])):
    wrong = ids[~is_class(ids, size)]
    if len(wrong):
      return (
        f"{wrong[0]} in {name} is not from 0 to {size - 1}, the range in the metadata"
      )
    found, times = np.unique(ids, return_counts=True)
    if len(found) < len(ids):
      return f"{found[times > 1][0]} is repeated in {name}"
  if len(values) != len(indices):
    return f"{len(indices)} indices, but {len(values)} values"
  with np.errstate(over="ignore"):
    wrong = indices[~np.isfinite(values.astype(np.float32))]
  return f"the value of index {wrong[0]} is not a finite number" if len(wrong) else ""
