"""What all data sets of documents with labels have in common: encoded once, cached."""

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from largevocab.data.cache import cache_root, cached, content_key
from largevocab.data.encoded_documents import open_documents, write_documents
from largevocab.data.files import naming
from largevocab.data.label_sets import LabelSet, number_labels
from largevocab.data.multi_label import MultiLabel
from largevocab.fields import Ascending, OneOf, ProperShare, Seed, settings

_FORMAT = 1  # of the encoded files; a change makes all of them anew


@settings(kw_only=True)
class DocumentBatches:
  """How documents become batches: the settings of all such data sets.

  Attributes:
    normalize: 'l2': the values of a document are divided by their Euclidean norm;
      'none': they are as given.
    buckets: the documents of each batch are of like lengths: these shares of them, by
      the number of features and of labels, are in the first buckets, and the last one
      holds all. Each bucket is compiled for.
    seed: of the order of training documents.
  """

  normalize: Annotated[str, OneOf("none", "l2")] = "l2"
  buckets: Annotated[tuple[ProperShare, ...], Ascending()] = (0.5, 0.9)
  seed: Seed = 0

  def loaded(self, classes, labels: LabelSet) -> MultiLabel:
    """Documents with class ids as data."""
    return MultiLabel(
      classes,
      labels.num_features,
      **labels.splits,
      unit_norm=self.normalize == "l2",
      shares=self.buckets,
      seed=self.seed,
    )


@settings(kw_only=True)
class DocumentSet(DocumentBatches, abc.ABC):
  """Base of the data sets of documents with labels that are read from files.

  Attributes:
    cache_dir: where encoded documents are kept; empty: $LARGEVOCAB_CACHE, or else
      ~/.cache/largevocab.
  """

  cache_dir: str = ""

  @abc.abstractmethod
  def files(self) -> Sequence[Path]:
    """The files to read."""

  @abc.abstractmethod
  def options(self) -> Sequence[float | str]:
    """What else the documents depend on."""

  @abc.abstractmethod
  def read(self, files: Sequence[Path]) -> LabelSet:
    """What is in the files."""

  def load(self) -> MultiLabel:
    """The documents, encoded at the first call and memory-mapped from the cache."""
    root, files = cache_root(self.cache_dir), self.files()
    name = type(self).__name__
    key = content_key(root, files, [_FORMAT, name, *self.options()])

    def build(directory: Path) -> None:
      with naming(files):
        write_documents(directory, *number_labels(self.read(files)))

    return self.loaded(*open_documents(cached(root, f"{name.lower()}-{key}", build)))
