"""Synthetic softmax regression: features, and labels drawn from a known model."""

from dataclasses import dataclass

import numpy as np

from largevocab.data.batches import Batch
from largevocab.data.classes import Classes
from largevocab.data.example_batches import (
  HeldOutExamples,
  ShuffledExamples,
  check_unroll,
)
from largevocab.data.synthetic.zipf import NumClasses, NumExamples
from largevocab.fields import NonNegative, Seed, Width, settings
from largevocab.labels import Counts, Targets

_CHUNK = 2**22  # logits computed at a time


@dataclass(frozen=True)
class LabelledFeatures:
  """Examples with features and one label.

  Attributes:
    x_ND: f32[N, D], the features.
    ids_N: i32[N], the labels.
    first: number of the first of these examples among all examples.

  >>> examples = LabelledFeatures(np.zeros((3, 2), np.float32), np.array([5, 6, 7]))
  >>> batch = examples.batch(np.array([2, 0]), np.ones(2))
  >>> batch.x.shape, batch.y.ids_NP.tolist(), batch.y.context_N.tolist()
  ((2, 1, 2), [[7], [5]], [2, 0])
  """

  x_ND: np.ndarray
  ids_N: np.ndarray
  first: int = 0

  def __len__(self) -> int:
    return len(self.ids_N)

  def batch(self, at_B: np.ndarray, weight_B: np.ndarray) -> Batch:
    """The examples with the numbers `at_B`, with the weights `weight_B`."""
    targets = Targets(
      self.ids_N[at_B, None].astype(np.int32),  # pyrefly: ignore
      weight_B[:, None].astype(np.float32),  # pyrefly: ignore
      (self.first + at_B).astype(np.int32),  # pyrefly: ignore
    )
    return Batch(self.x_ND[at_B, None], targets, np.bool_(True))


@dataclass(frozen=True)
class KnownRegression:
  """Examples, and the model that their labels were drawn from.

  Attributes:
    vocabulary: the classes, with counts of the training labels.
    true_VD: f32[V, D], the rows of the model.
    train: training examples, also used as the valid split.
    test: other examples from the same distribution.
    seed: seed of the order of training examples.
  """

  num_inputs = 0  # inputs are dense features
  inputs_are_classes = False

  vocabulary: Classes
  true_VD: np.ndarray
  train: LabelledFeatures
  test: LabelledFeatures
  seed: int = 0

  @property
  def counts(self) -> Counts:
    """Class counts of the training labels, without a token stream."""
    return Counts(self.vocabulary.counts_V)

  @property
  def summary(self) -> str:
    """Number of examples."""
    num, dim = self.train.x_ND.shape
    return f"{num} training examples, {dim} features, {len(self.vocabulary)} classes"

  def true_log_prob(self, x_ND: np.ndarray) -> np.ndarray:
    """Log-probabilities of all classes under the model, f64[N, V].

    >>> data = SoftmaxRegression(num_classes=3, num_examples=5, dim=2).load()
    >>> np.exp(data.true_log_prob(data.train.x_ND)).sum(axis=1).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    o_NV = logits(x_ND, self.true_VD)
    return o_NV - np.logaddexp.reduce(o_NV, axis=1, keepdims=True)

  def training_batches(self, batch_size: int, unroll: int) -> ShuffledExamples:
    """Examples, shuffled anew each epoch."""
    check_unroll(unroll)
    return ShuffledExamples(self.train, batch_size, self.seed)

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> HeldOutExamples:
    """Every example of a split once; 'valid' consists of the training examples."""
    check_unroll(unroll)
    return HeldOutExamples(self.test if split == "test" else self.train, batch_size)


@settings(kw_only=True)
class SoftmaxRegression:
  """x ~ N(0, 1), rows w_c ~ N(0, scale^2), p(c | x) = exp(<w_c, x>) / sum over c.

  The problem is realisable. The valid split consists of the training examples, since
  the paper measures the training loss. The test split has the same number of new
  examples. Class ids are in order of decreasing count of training labels.

  Attributes:
    num_classes: V.
    num_examples: N.
    dim: D, number of features; must equal `model.embed`.
    scale: standard deviation of the entries of the rows; logits have a standard
      deviation of scale * sqrt(D).
    seed: seed of the model, the examples and the order of training examples.

  Source: Barber & Botev 2016, figure 2. The paper does not say how the rows are drawn;
    their scale is our choice.
  Cost: O(N V D) time on the host.
  """

  num_classes: NumClasses = 1000
  num_examples: NumExamples = 2000
  dim: Width = 100
  scale: NonNegative = 1.0
  seed: Seed = 0

  def tiny(self) -> "SoftmaxRegression":
    return SoftmaxRegression(num_classes=100, num_examples=100, dim=8)

  def load(self) -> KnownRegression:
    """Samples the model and the examples.

    >>> data = SoftmaxRegression(num_classes=9, num_examples=50, dim=4).load()
    >>> data.train.x_ND.shape, data.counts.num_classes, data.num_inputs
    ((50, 4), 9, 0)
    """
    rng = np.random.default_rng(self.seed)
    w_VD = rng.normal(0, self.scale, (self.num_classes, self.dim)).astype(np.float32)
    train, test = (self._examples(rng, w_VD) for _ in range(2))
    counts_V = np.bincount(train.ids_N, minlength=self.num_classes)
    order_V = np.argsort(-counts_V, kind="stable")
    id_of_V = np.argsort(order_V).astype(np.int32)
    train = LabelledFeatures(train.x_ND, id_of_V[train.ids_N])
    test = LabelledFeatures(test.x_ND, id_of_V[test.ids_N], first=len(train))
    names = [f"c{number}" for number in order_V]
    classes = Classes(names, counts_V[order_V])
    return KnownRegression(classes, w_VD[order_V], train, test, self.seed)

  def _examples(self, rng: np.random.Generator, w_VD: np.ndarray) -> LabelledFeatures:
    x_ND = rng.standard_normal((self.num_examples, self.dim), np.float32)
    size = max(_CHUNK // self.num_classes, 1)
    labels = []
    for start in range(0, self.num_examples, size):
      o_NV = logits(x_ND[start : start + size], w_VD)
      labels.append(np.argmax(o_NV + rng.gumbel(size=o_NV.shape), axis=1))
    return LabelledFeatures(x_ND, np.concatenate(labels).astype(np.int32))


def logits(x_ND: np.ndarray, w_VD: np.ndarray) -> np.ndarray:
  """<w_c, x_n>, f64[N, V].

  >>> logits(np.array([[2.0]]), np.array([[1.0], [3.0]])).tolist()
  [[2.0, 6.0]]
  """
  return x_ND.astype(np.float64) @ w_VD.astype(np.float64).T
