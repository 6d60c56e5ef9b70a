"""Synthetic softmax regression: the labels follow the stated law."""

import numpy as np
import pytest
from scipy import stats

from largevocab.data import DATASETS
from largevocab.errors import UserError

SoftmaxRegression = DATASETS["softmax_regression"]
# Flat enough that most classes occur for any x.
SMALL = {"num_classes": 7, "num_examples": 20_000, "dim": 3, "scale": 0.7}


@pytest.fixture(scope="module")
def data():
  return SoftmaxRegression(**SMALL).load()


def ranks(log_prob_NV, ids_N, num=5):
  """How many labels are the likeliest class of their example, the second, ...; how many
  are to be expected."""
  order_NV = np.argsort(-log_prob_NV, axis=1)
  at_N = np.argmax(order_NV == ids_N[:, None], axis=1)
  p_NV = -np.sort(-np.exp(log_prob_NV), axis=1)
  return np.bincount(at_N, minlength=p_NV.shape[1]), p_NV


def z_scores(log_prob_NV, ids_N):
  """(observed - expected) / standard deviation for each rank: labels of different
  examples are independent."""
  count_V, p_NV = ranks(log_prob_NV, ids_N)
  spread_V = np.sqrt((p_NV * (1 - p_NV)).sum(axis=0))
  return (count_V - p_NV.sum(axis=0)) / spread_V


@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_follow_the_true_law(data, split):
  part = getattr(data, split)
  log_prob_NV = data.true_log_prob(part.x_ND)
  limit = stats.norm.isf(1e-4 / 7 / 2)
  assert np.abs(z_scores(log_prob_NV, part.ids_N)).max() < limit
  # Another model, a wrong scale, and labels of other examples are rejected.
  other = SoftmaxRegression(**SMALL, seed=1).load()
  wrong = [
    (other.true_log_prob(part.x_ND), part.ids_N),
    (data.true_log_prob(0.9 * part.x_ND), part.ids_N),
    (log_prob_NV, np.roll(part.ids_N, 1)),
  ]
  for law_NV, ids_N in wrong:
    law_NV = law_NV - np.logaddexp.reduce(law_NV, axis=1, keepdims=True)
    assert np.abs(z_scores(law_NV, ids_N)).max() > limit


def test_features_and_rows_follow_their_stated_laws():
  data = SoftmaxRegression(num_classes=500, num_examples=3000, dim=40, scale=0.5).load()
  for values, scale in ((data.train.x_ND, 1), (data.test.x_ND, 1), (data.true_VD, 0.5)):
    assert stats.kstest(values.ravel() / scale, "norm").pvalue > 1e-4
  assert not np.array_equal(data.train.x_ND, data.test.x_ND)


def test_classes_are_ordered_by_count(data):
  counts_V = np.bincount(data.train.ids_N, minlength=7)
  np.testing.assert_array_equal(data.counts.unigram_V, counts_V)
  assert (np.diff(counts_V) <= 0).all()
  assert len(set(data.vocabulary.words)) == 7


def test_batches_hold_the_numbers_of_their_examples(data):
  batches = data.training_batches(50, 1)
  read = [batches.batch(step) for step in range(batches.steps_per_epoch)]
  at_N = np.concatenate([batch.y.context_N for batch in read])
  assert sorted(at_N) == list(range(20_000))
  for batch in read[:3]:
    at_B = batch.y.context_N
    np.testing.assert_array_equal(batch.x[:, 0], data.train.x_ND[at_B])
    np.testing.assert_array_equal(batch.y.ids_NP[:, 0], data.train.ids_N[at_B])
    assert batch.x.dtype == np.float32
    assert batch.x.shape == (50, 1, 3)
    assert batch.y.ids_NP.dtype == batch.y.context_N.dtype == np.int32


def test_validation_data_is_the_training_data(data):
  for split, part in (
    ("train", data.train),
    ("valid", data.train),
    ("test", data.test),
  ):
    (batch, *_) = data.evaluation_batches(split, 10, 1)
    np.testing.assert_array_equal(batch.x[:, 0], part.x_ND[:10])
  with pytest.raises(UserError, match="unroll is 3"):
    data.training_batches(10, 3)


def test_seed_determines_the_data():
  one, again, other = (
    SoftmaxRegression(num_examples=20, seed=seed).load() for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(one.train.x_ND, again.train.x_ND)
  np.testing.assert_array_equal(one.train.ids_N, again.train.ids_N)
  np.testing.assert_array_equal(one.true_VD, again.true_VD)
  assert not np.array_equal(one.true_VD, other.true_VD)


def test_labels_do_not_depend_on_chunks(monkeypatch):
  from largevocab.data.synthetic import softmax_regression

  one = SoftmaxRegression(num_examples=20, num_classes=30, dim=4).load()
  monkeypatch.setattr(softmax_regression, "_CHUNK", 90)
  again = SoftmaxRegression(num_examples=20, num_classes=30, dim=4).load()
  np.testing.assert_array_equal(one.train.ids_N, again.train.ids_N)


@pytest.mark.parametrize(
  ("key", "value"), [("num_classes", 1), ("dim", 0), ("scale", float("nan"))]
)
def test_invalid_sizes_are_named(key, value):
  with pytest.raises(UserError, match=rf"Regression\.{key} is {value}; it must"):
    SoftmaxRegression(**{key: value})
