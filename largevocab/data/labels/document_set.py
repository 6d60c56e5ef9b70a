"""Base of data sets of labelled documents: encoded once, cached and memory-mapped."""

import abc
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from largevocab.data.cache import cache_root, cached, class_key, content_key
from largevocab.data.classes import Classes
from largevocab.data.encoded import SPLITS, damaged
from largevocab.data.files import naming
from largevocab.data.labels.documents import Documents
from largevocab.data.labels.label_sets import LabelSet, number_labels
from largevocab.data.labels.multi_label import DocumentBatches, MultiLabel
from largevocab.data.synthetic.zipf_labels import ZipfLabels
from largevocab.fields import settings

_DTYPES = Documents(np.int64, np.int32, np.float32, np.int64, np.int32)  # pyrefly: ignore
_SUMMARY = "documents.json"


def write_documents(directory: Path, classes: Classes, labels: LabelSet) -> None:
  """Writes `{split}.{array}.npy` with class ids, `vocabulary.txt` and a summary."""
  for split in SPLITS:
    for name, dtype in _DTYPES._asdict().items():
      array = getattr(labels.splits[split], name).astype(dtype, copy=False)
      np.save(directory / f"{split}.{name}.npy", array)
  classes.check_words()
  classes.save(directory / "vocabulary.txt")
  summary = {
    "classes": len(classes),
    "features": labels.num_features,
    "sizes": {split: _sizes(labels.splits[split]) for split in SPLITS},
  }
  (directory / _SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")


def open_documents(directory: Path) -> tuple[Classes, LabelSet]:
  """Opens the files of `write_documents`, memory-mapped; validation reads all of them.

  Raises:
    UserError: a file is missing, truncated or of another kind.
  """
  try:
    summary = json.loads((directory / _SUMMARY).read_text())
    classes = Classes.load(directory / "vocabulary.txt")
    num_features = int(summary["features"])
    splits = {split: _open(directory, split) for split in SPLITS}
    counts_V = np.bincount(splits["train"].label_ids, minlength=len(classes))
    sound = (
      len(classes) == summary["classes"]
      and {split: _sizes(splits[split]) for split in SPLITS} == summary["sizes"]
      and np.array_equal(counts_V, classes.counts_V)
      and all(_sound(split, num_features, len(classes)) for split in splits.values())
    )
  except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
    raise damaged(directory, str(error)) from error
  if not sound:
    raise damaged(directory, "sizes, ids or values differ from those written")
  return classes, LabelSet(splits, num_features, classes.words)


def _open(directory: Path, split: str) -> Documents:
  names = Documents._fields
  return Documents(
    *(np.load(directory / f"{split}.{name}.npy", mmap_mode="r") for name in names)
  )


def _sizes(documents: Documents) -> list[int]:
  return [len(array) for array in documents]


def _sound(documents: Documents, num_features: int, num_classes: int) -> bool:
  return (
    all(a.dtype == dtype for a, dtype in zip(documents, _DTYPES, strict=True))
    and _points(documents.feature_ptr, documents.feature_ids)
    and _points(documents.label_ptr, documents.label_ids)
    and len(documents.feature_ptr) == len(documents.label_ptr)
    and len(documents.values) == len(documents.feature_ids)
    and _below(documents.feature_ids, num_features)
    and _below(documents.label_ids, num_classes)
    and bool(np.isfinite(documents.values).all())
  )


def _points(ptr: np.ndarray, ids: np.ndarray) -> bool:
  return ptr[0] == 0 and ptr[-1] == len(ids) and bool((np.diff(ptr) >= 0).all())


def _below(ids: np.ndarray, limit: int) -> bool:
  return not len(ids) or bool(ids.min() >= 0 and ids.max() < limit)


_FORMAT = 2  # version of the encoded files; changing it rebuilds all of them


@settings(kw_only=True)
class DocumentSet(DocumentBatches, abc.ABC):
  """Base of data sets of documents with labels that are read from files.

  Attributes:
    cache_dir: directory of encoded documents; empty: $LARGEVOCAB_CACHE, or else
      ~/.cache/largevocab.
  """

  cache_dir: str = ""

  def tiny(self) -> ZipfLabels:
    return ZipfLabels()

  @abc.abstractmethod
  def files(self) -> Sequence[Path]:
    """The files to read."""

  @abc.abstractmethod
  def options(self) -> Sequence[float | str]:
    """Anything else that the documents depend on."""

  @abc.abstractmethod
  def read(self, files: Sequence[Path]) -> LabelSet:
    """Parses the files."""

  def load(self) -> MultiLabel:
    """The documents, encoded by the first call and memory-mapped from the cache."""
    root, files = cache_root(self.cache_dir), self.files()
    name, of_class = type(self).__name__, class_key(type(self))
    key = content_key(root, files, [_FORMAT, of_class, *self.options()])

    def build(directory: Path) -> None:
      with naming(files):
        write_documents(directory, *number_labels(self.read(files)))

    return self.loaded(*open_documents(cached(root, f"{name.lower()}-{key}", build)))
