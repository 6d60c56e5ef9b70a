"""Synthetic documents with labels, as in extreme classification."""

from typing import Annotated

import numpy as np

from largevocab.data.labels.documents import Documents
from largevocab.data.labels.label_sets import LabelSet, number_labels
from largevocab.data.labels.multi_label import DocumentBatches, MultiLabel
from largevocab.data.synthetic import draws
from largevocab.data.synthetic.zipf import Exponent, NumClasses, NumExamples
from largevocab.fields import Between, Share, settings


@settings(kw_only=True)
class ZipfLabels(DocumentBatches):
  """Labels with Zipf's distribution; features from a document's labels, and noise.

  Each label has `features_per_label` features of its own, drawn uniformly. A document
  has 1 + Poisson labels, drawn with probability proportional to rank ** -exponent. It
  has 1 + NB draws of features, where NB is negative binomial of shape 2. With
  probability `noise`, a draw is any feature, from Zipf's distribution. Otherwise it is
  uniform over the own features of the document's labels. Repeated labels and features
  are merged, and the value of a feature is the number of its draws. Validation and test
  each have a tenth as many documents as training.

  Documents of Amazon-670K's shape, with 76 distinct features and 5.5 labels, come from
  num_classes=670_091, num_features=135_909, num_examples=490_449, exponent=0.5,
  features_per_example=90, features_per_label=50, labels_per_example=5.5.

  Attributes:
    num_classes: V.
    num_features: D.
    num_examples: number of training documents.
    features_per_example: mean number of draws of features.
    labels_per_example: mean number of draws of labels.
    features_per_label: number of each label's own features.
    exponent: exponent of the distribution of labels; 0: all are equally likely. Noise
      features have exponent 1.
    noise: share of draws that do not depend on the labels.

  Cost: O(num_examples (features_per_example + labels_per_example)) time and memory.
  """

  num_classes: NumClasses = 1000
  num_features: Annotated[int, Between(1, 2**28)] = 500
  num_examples: NumExamples = 5000
  features_per_example: Annotated[float, Between(1, 10_000)] = 20.0
  labels_per_example: Annotated[float, Between(1, 10_000)] = 3.0
  features_per_label: Annotated[int, Between(1, 10_000)] = 8
  exponent: Exponent = 1.0
  noise: Share = 0.3

  def tiny(self) -> "ZipfLabels":
    return ZipfLabels()

  def load(self) -> MultiLabel:
    """Samples the documents.

    >>> data = ZipfLabels(num_classes=9, num_features=30, num_examples=50).load()
    >>> data.train.number, data.test.number, len(data.vocabulary), data.num_inputs
    (50, 5, 9, 30)
    """
    rng = np.random.default_rng(self.seed)
    own_VK = rng.integers(
      self.num_features, size=(self.num_classes, self.features_per_label)
    )
    label_law = draws.zipf(self.num_classes, self.exponent)
    feature_law = draws.zipf(self.num_features, 1.0)
    held_out = -(-self.num_examples // 10)
    sample = lambda size: self._documents(rng, size, own_VK, label_law, feature_law)
    splits = draws.split_documents(self.num_examples, held_out, sample)
    names = [f"c{rank}" for rank in range(1, self.num_classes + 1)]
    return self.loaded(*number_labels(LabelSet(splits, self.num_features, names)))

  def _documents(
    self,
    rng: np.random.Generator,
    size: int,
    own_VK: np.ndarray,
    label_law: np.ndarray,
    feature_law: np.ndarray,
  ) -> Documents:
    num_labels = 1 + rng.poisson(self.labels_per_example - 1, size)
    labels = np.searchsorted(label_law, rng.random(num_labels.sum()))
    label_ptr, labels, _ = draws.distinct(num_labels, labels, self.num_classes)
    num_draws = draws.lengths(rng, size, self.features_per_example)
    of = np.repeat(np.arange(size), num_draws)
    place = label_ptr[of] + rng.integers(np.diff(label_ptr)[of])
    features = draws.noisy_features(rng, own_VK, labels[place], self.noise, feature_law)
    feature_ptr, features, values = draws.distinct(
      num_draws, features, self.num_features
    )
    return Documents(feature_ptr, features, values, label_ptr, labels)
