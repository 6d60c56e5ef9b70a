"""Data sets of the Extreme Classification Repository."""

from collections.abc import Sequence
from pathlib import Path

from largevocab.data.files import find_file
from largevocab.data.labels.document_set import DocumentSet
from largevocab.data.labels.documents import Documents
from largevocab.data.labels.label_sets import LabelSet, cut_validation, thin_labels
from largevocab.data.labels.xmlc_format import read_train_and_test
from largevocab.fields import CountOrNone, ProperShare, settings


@settings(kw_only=True)
class TrainAndTest:
  """Base of data sets with training and test documents whose labels are numbers.

  `DocumentSet` is the other base of these data sets.

  All labels are classes, including labels without a training document, unless min_count
  is set. With max_count, held-out occurrences are thinned like those in training, and
  occurrences of labels without a training document are removed. Documents without
  labels have weight 0, and are removed if min_count or max_count is set. All of this is
  the same for every seed.

  Attributes:
    valid_share: share of the training documents for validation, evenly spaced.
    min_count, max_count: if not 0, remove rare labels, and occurrences of frequent
      labels; see `label_sets.thin_labels`. Daghaghi et al. 2021 made Amazon-Uniform
      this way.
  """

  valid_share: ProperShare = 0.05
  min_count: CountOrNone = 0
  max_count: CountOrNone = 0

  def options(self) -> Sequence[float | str]:
    return [self.valid_share, self.min_count, self.max_count]

  def splits(
    self, train: Documents, test: Documents, num_features: int, num_labels: int
  ) -> LabelSet:
    """The three splits."""
    train, valid = cut_validation(train, self.valid_share)
    splits = {"train": train, "valid": valid, "test": test}
    labels = LabelSet(splits, num_features, [str(i) for i in range(num_labels)])
    return thin_labels(labels, self.min_count, self.max_count)


@settings(kw_only=True)
class Xmlc(TrainAndTest, DocumentSet):
  """Files in the format of the Extreme Classification Repository.

  Amazon-670K, Delicious-200K, WikiLSHTC-325K, EURLex-4K and others have this format,
  which `read_xmlc` describes. Features are used as they are in the file.

  Attributes:
    path: the directory of the files, each plain, .gz or .xz.
    train, test: names of the files.

  Source: Daghaghi et al. 2021, section 3.1; Bhatia et al. 2016, the extreme
    classification repository.
  """

  path: str = ""
  train: str = "train.txt"
  test: str = "test.txt"

  def files(self) -> Sequence[Path]:
    return [find_file(self.path, name, "data.path") for name in (self.train, self.test)]

  def read(self, files: Sequence[Path]) -> LabelSet:
    train, test = read_train_and_test(*files)
    sizes = train.num_features, train.num_labels
    return self.splits(train.documents, test.documents, *sizes)
