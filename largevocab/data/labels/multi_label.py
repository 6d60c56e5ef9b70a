"""Examples with sparse features and several labels.

Here W is the padded number of features or labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from largevocab.data.batches import Batch, FeatureBag
from largevocab.data.classes import Classes
from largevocab.data.example_batches import check_unroll
from largevocab.data.labels.bucketed import BucketedExamples, HeldOutBuckets, capacities
from largevocab.data.labels.documents import Documents
from largevocab.data.labels.label_sets import LabelSet
from largevocab.errors import UserError
from largevocab.fields import Ascending, OneOf, ProperShare, Seed, settings
from largevocab.labels import Counts, Targets


@dataclass(frozen=True, eq=False)
class LabelledDocuments:
  """Documents as examples: bags of features, and all labels at equal weight.

  An example without labels has weight 0.

  Attributes:
    documents: the documents, which may be memory-mapped; their label ids are class ids.
    num_features: D, the padding id of features.
    num_classes: V, the padding id of labels.
    unit_norm: whether to divide the values of each document by their Euclidean norm.

  >>> from largevocab.data.labels.documents import from_rows
  >>> documents = from_rows([[4], [1, 2]], [[3], [3, 4]], [[], [6, 0]])
  >>> examples = LabelledDocuments(documents, num_features=5, num_classes=7)
  >>> batch = examples.batch(np.array([1, 0]), np.ones(2), num_features=3, num_labels=4)
  >>> batch.x.ids_BF.tolist(), batch.x.values_BF.round(2).tolist()[0]
  ([[1, 2, 5], [4, 5, 5]], [0.6000000238418579, 0.800000011920929, 0.0])
  >>> batch.y.ids_NP.tolist(), batch.y.w_NP.tolist(), batch.y.context_N.tolist()
  ([[6, 0, 7, 7], [7, 7, 7, 7]], [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [1, 0])
  """

  documents: Documents
  num_features: int
  num_classes: int
  unit_norm: bool = True

  @cached_property
  def lengths(self) -> np.ndarray:
    """i64[n, 2], number of features and labels of each document."""
    return self.documents.lengths

  def batch(
    self, at_B: np.ndarray, weight_B: np.ndarray, num_features: int, num_labels: int
  ) -> Batch:
    """The examples with the numbers `at_B`, padded to the given lengths."""
    documents = self.documents
    places = _Places(documents.feature_ptr, at_B, num_features)
    ids_BF = places.padded(documents.feature_ids, self.num_features)
    values_BF = places.padded(documents.values, 0)
    if self.unit_norm:
      # Scaled by powers of two, so that no square overflows or vanishes.
      exponent_B = np.frexp(np.abs(values_BF).max(axis=1, initial=0))[1]
      values_BF = np.ldexp(values_BF, -exponent_B[:, None])
      norm_B = np.linalg.norm(values_BF, axis=1)
      values_BF /= np.where(norm_B > 0, norm_B, 1)[:, None]
    places = _Places(documents.label_ptr, at_B, num_labels)
    ids_BP = places.padded(documents.label_ids, self.num_classes)
    share_B = weight_B / np.maximum(places.inside.sum(axis=1), 1)
    targets = Targets(
      ids_BP,  # pyrefly: ignore
      np.where(places.inside, share_B[:, None], 0).astype(np.float32),  # pyrefly: ignore
      at_B.astype(np.int32),  # pyrefly: ignore
    )
    return Batch(FeatureBag(ids_BF, values_BF), targets, np.bool_(True))


class _Places:
  """The places of some rows in a flat array, and in a padded array."""

  def __init__(self, ptr: np.ndarray, at_B: np.ndarray, width: int):
    begin_B, end_B = np.asarray(ptr[at_B]), np.asarray(ptr[at_B + 1])
    at_BW = begin_B[:, None] + np.arange(width)[None, :]
    self.inside = at_BW < end_B[:, None]
    self._flat = at_BW[self.inside]

  def padded(self, flat: np.ndarray, padding: float) -> np.ndarray:
    padded_BW = np.full(self.inside.shape, padding, flat.dtype)
    padded_BW[self.inside] = flat[self._flat]
    return padded_BW


@dataclass(frozen=True, eq=False)
class MultiLabel:
  """Loaded documents with labels.

  Attributes:
    vocabulary: all labels, with counts of the training documents.
    num_inputs: D, the number of features.
    train, valid, test: the documents of each split.
    unit_norm: see `LabelledDocuments`.
    shares: shares of the training documents for buckets; see `bucketed.capacities`.
    seed: seed of the order of training examples.
  """

  inputs_are_classes = False  # numbered separately, even if both are items

  vocabulary: Classes
  num_inputs: int
  train: Documents
  valid: Documents
  test: Documents
  unit_norm: bool = True
  shares: Sequence[float] = (0.5, 0.9)
  seed: int = 0

  @property
  def counts(self) -> Counts:
    """Class counts of the training labels, without a token stream."""
    return Counts(self.vocabulary.counts_V, examples=self.train.number)

  @property
  def summary(self) -> str:
    """Numbers of documents, features and labels."""
    features, labels = self.train.lengths.mean(axis=0)
    return (
      f"{self.train.number} training documents with {features:.1f} of "
      f"{self.num_inputs} features and {labels:.1f} of {len(self.vocabulary)} labels "
      "on average"
    )

  def examples(self, split: str) -> LabelledDocuments:
    """The documents of a split as examples."""
    return LabelledDocuments(
      getattr(self, split), self.num_inputs, len(self.vocabulary), self.unit_norm
    )

  def training_batches(self, batch_size: int, unroll: int) -> BucketedExamples:
    """Documents of similar lengths together, shuffled anew each epoch."""
    check_unroll(unroll)
    return BucketedExamples(
      self.examples("train"), batch_size, self._capacities, seed=self.seed
    )

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> HeldOutBuckets:
    """Every document of a split once.

    Raises:
      UserError: none of the documents has a label, so that metrics are undefined.
    """
    check_unroll(unroll)
    if not getattr(self, split).lengths[:, 1].any():
      raise UserError(
        f"no document of the {split} data has a label, so nothing can be measured on "
        "it; give documents with labels"
      )
    return HeldOutBuckets(self.examples(split), batch_size, self._capacities)

  @cached_property
  def _capacities(self) -> np.ndarray:
    """Capacities, which are the same for all splits so that a shape compiles once."""
    held_out = [part.lengths for part in (self.valid, self.test) if part.number]
    return capacities(self.train.lengths, self.shares, held_out)


@settings(kw_only=True)
class DocumentBatches:
  """Batching settings shared by all data sets of documents.

  Attributes:
    normalize: 'l2': the values of a document are divided by their Euclidean norm;
      'none': they are used as given.
    buckets: shares of the documents that the first buckets can hold, by the numbers of
      features and of labels; the last bucket can hold all documents. A batch has
      documents of similar lengths, from one bucket. Each bucket is compiled separately.
    seed: seed of the order of training documents.
  """

  normalize: Annotated[str, OneOf("none", "l2")] = "l2"
  buckets: Annotated[tuple[ProperShare, ...], Ascending()] = (0.5, 0.9)
  seed: Seed = 0

  def loaded(self, classes, labels: LabelSet) -> MultiLabel:
    """Makes `MultiLabel` data from documents with class ids."""
    return MultiLabel(
      classes,
      labels.num_features,
      **labels.splits,
      unit_norm=self.normalize == "l2",
      shares=self.buckets,
      seed=self.seed,
    )
