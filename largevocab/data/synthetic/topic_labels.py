"""Synthetic documents with labels, whose Bayes classifier is known."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from largevocab.data.labels.documents import Documents
from largevocab.data.labels.label_sets import LabelSet, number_labels
from largevocab.data.labels.multi_label import DocumentBatches, MultiLabel
from largevocab.data.synthetic import draws
from largevocab.data.synthetic.topic_law import BayesClassifier, TopicLaw
from largevocab.data.synthetic.zipf import Exponent, NumClasses, NumExamples
from largevocab.errors import UserError
from largevocab.fields import Between, ProperShare, settings


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicDocuments(MultiLabel):
  """Documents, and the distribution that they were drawn from."""

  law: TopicLaw

  def true_law(self, split: str) -> BayesClassifier:
    """The Bayes classifier of a split: no classifier is better in expectation."""
    return BayesClassifier(self.law, getattr(self, split))


@settings(kw_only=True)
class TopicLabels(DocumentBatches):
  """Documents with one hidden topic each, which has its own labels and features.

  The topic is drawn from Zipf's distribution. Each label of the topic is a label of the
  document with probability `label_share`; if none is, one is chosen at random. The
  document has 1 + NB draws of features, where NB is negative binomial of shape 2. With
  probability `noise`, a draw is any feature, from Zipf's distribution of exponent 1.
  Otherwise it is uniform over the topic's own features. Repeated features are merged,
  and the value of a feature is the number of its draws. Validation and test each have
  `held_out_share` times as many documents as training.

  The labels of topics are cut from permutations of all labels. The numbers of topics
  that two labels belong to therefore differ by at most one. The features of topics are
  drawn uniformly.

  The posterior can be summed; see
  `largevocab.data.synthetic.topic_law.BayesClassifier`. This is not possible for
  `ZipfLabels`, where each set of labels is a cause of features.

  Attributes:
    num_classes: V.
    num_features: D.
    num_examples: number of training documents.
    num_topics: T.
    labels_per_topic: L, at most V.
    label_share: expected share of the topic's labels that a document has.
    features_per_topic: K.
    features_per_example: mean number of draws of features.
    exponent: exponent of the distribution of topics; 0: all are equally likely.
    noise: share of draws that do not depend on the topic.
    held_out_share: number of validation documents, and of test documents, per training
      document.

  Cost: O(num_examples (features_per_example + L) + T (K + L) + V) time and memory.

  Raises:
    UserError: a topic has more labels than there are classes.
  """

  num_classes: NumClasses = 1000
  num_features: Annotated[int, Between(1, 2**28)] = 500
  num_examples: NumExamples = 5000
  num_topics: Annotated[int, Between(1, 2**24)] = 300
  labels_per_topic: Annotated[int, Between(1, 1000)] = 5
  label_share: ProperShare = 0.6
  features_per_topic: Annotated[int, Between(1, 10_000)] = 8
  features_per_example: Annotated[float, Between(1, 10_000)] = 20.0
  exponent: Exponent = 0.5
  noise: ProperShare = 0.3
  held_out_share: ProperShare = 0.1

  def tiny(self) -> "TopicLabels":
    return TopicLabels()

  def load(self) -> TopicDocuments:
    """Samples the distribution and the documents.

    >>> data = TopicLabels(num_classes=9, num_topics=4, num_examples=50).load()
    >>> data.true_law("test").top_k(np.arange(2), 3).shape
    (2, 3)
    """
    rng = np.random.default_rng(self.seed)
    shape = self.num_topics, self.features_per_topic
    own_TK = rng.integers(self.num_features, size=shape)
    labels_TL = self._labels(rng)
    held_out = math.ceil(self.num_examples * self.held_out_share)
    topic_law = draws.zipf(self.num_topics, self.exponent)
    noise_law = draws.zipf(self.num_features, 1.0)
    sample = lambda size: self._documents(
      rng, size, own_TK, labels_TL, topic_law, noise_law
    )
    splits = draws.split_documents(self.num_examples, held_out, sample)
    names = [f"{number}" for number in range(self.num_classes)]
    classes, labels = number_labels(LabelSet(splits, self.num_features, names))
    id_of_V = np.argsort(np.array(classes.words).astype(np.int64))
    law = TopicLaw(
      np.diff(topic_law, prepend=0), own_TK, id_of_V[labels_TL],
      self.noise, np.diff(noise_law, prepend=0), self.num_classes,
    )  # fmt: skip
    return TopicDocuments(**vars(self.loaded(classes, labels)), law=law)

  def _labels(self, rng: np.random.Generator) -> np.ndarray:
    """i64[T, L], distinct in each row."""
    num, own, V = self.num_topics, self.labels_per_topic, self.num_classes
    if own > V:
      raise UserError(
        f"data.labels_per_topic is {own}, but there are only {V} labels: lower it, or "
        "raise data.num_classes"
      )
    turns = [rng.permutation(V) for _ in range(-(-num * own // V))]
    labels_TL = np.concatenate(turns)[: num * own].reshape(num, own)
    ordered_TL = np.sort(labels_TL, axis=1)
    # Only rows that cross two permutations can have duplicates.
    for row in np.flatnonzero((np.diff(ordered_TL, axis=1) == 0).any(axis=1)):
      labels_TL[row] = rng.choice(V, own, replace=False)
    return labels_TL

  def _documents(
    self,
    rng: np.random.Generator,
    size: int,
    own_TK: np.ndarray,
    labels_TL: np.ndarray,
    topic_law: np.ndarray,
    noise_law: np.ndarray,
  ) -> Documents:
    topic_N = np.searchsorted(topic_law, rng.random(size))
    has_NL = rng.random((size, self.labels_per_topic)) < self.label_share
    has_NL[
      np.arange(size), rng.integers(self.labels_per_topic, size=size)
    ] |= ~has_NL.any(axis=1)
    labels = labels_TL[topic_N][has_NL]
    label_ptr, labels, _ = draws.distinct(has_NL.sum(axis=1), labels, self.num_classes)
    num_draws = draws.lengths(rng, size, self.features_per_example)
    features = draws.noisy_features(
      rng, own_TK, np.repeat(topic_N, num_draws), self.noise, noise_law
    )
    feature_ptr, features, values = draws.distinct(
      num_draws, features, self.num_features
    )
    return Documents(feature_ptr, features, values, label_ptr, labels)
