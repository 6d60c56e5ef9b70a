"""Synthetic documents: they have the requested sizes and follow the stated law."""

import numpy as np
import pytest
from scipy import stats

from largevocab.data import DATASETS
from largevocab.errors import UserError

ZipfLabels = DATASETS["zipf_labels"]
# Repeats are so rare that draws can be inferred from documents.
SMALL = {"num_classes": 50, "num_features": 4000, "num_examples": 4000}


@pytest.fixture(scope="module")
def data():
  return ZipfLabels(**SMALL, features_per_example=12.0, labels_per_example=2.0).load()


def label_names(data):
  return np.array([int(word[1:]) for word in data.vocabulary.words])


def test_documents_have_the_requested_sizes(data):
  assert [part.number for part in (data.train, data.valid, data.test)] == [
    4000, 400, 400
  ]  # fmt: skip
  assert (data.num_inputs, len(data.vocabulary)) == (4000, 50)
  assert (data.train.lengths >= 1).all()
  draws = np.add.reduceat(data.train.values, data.train.feature_ptr[:-1])
  spread = np.sqrt(11 + 11**2 / 2)  # of a negative binomial of shape 2
  assert abs(draws.mean() - 12) < 4 * spread / 4000**0.5
  assert abs(draws.std() - spread) < 0.5


def test_labels_follow_zipf():
  data = ZipfLabels(**SMALL, labels_per_example=1.0).load()
  expected = 1 / label_names(data)
  expected *= 4000 / expected.sum()
  result = stats.chisquare(data.counts.unigram_V, expected)
  assert result.pvalue > 1e-4
  wrong = np.sqrt(expected)
  assert (
    stats.chisquare(data.counts.unigram_V, wrong * 4000 / wrong.sum()).pvalue < 1e-9
  )


def test_features_come_from_the_labels_or_noise():
  for noise, labels in ((0.0, 1.0), (0.0, 3.0), (0.4, 3.0)):
    data = ZipfLabels(**SMALL, noise=noise, labels_per_example=labels).load()
    rng = np.random.default_rng(0)
    own = rng.integers(4000, size=(50, 8))[label_names(data) - 1]
    own_VF = np.zeros((50, 4000), bool)
    np.put_along_axis(own_VF, own, True, axis=1)
    of_labels = total = 0
    for split in (data.train, data.test):
      for i in range(300):
        features = slice(*split.feature_ptr[i : i + 2])
        ids = split.label_ids[slice(*split.label_ptr[i : i + 2])]
        is_own = own_VF[ids].any(axis=0)[split.feature_ids[features]]
        of_labels += split.values[features][is_own].sum()
        total += split.values[features].sum()
    assert abs(of_labels / total - (1 - noise)) < 5 * (0.25 / total) ** 0.5 + 0.01


def test_ids_are_distinct_and_classes_ordered_by_count(data):
  documents = data.train
  for ptr, ids in ((documents.feature_ptr, documents.feature_ids),
                   (documents.label_ptr, documents.label_ids)):  # fmt: skip
    rows = np.repeat(np.arange(documents.number), np.diff(ptr))
    assert len(np.unique(rows * 4000 + ids)) == len(ids)
  counts = np.bincount(documents.label_ids, minlength=50)
  np.testing.assert_array_equal(data.counts.unigram_V, counts)
  assert (np.diff(counts) <= 0).all()


def test_several_chunks_are_joined(monkeypatch):
  monkeypatch.setattr("largevocab.data.synthetic.draws._CHUNK", 30)
  data = ZipfLabels(num_classes=9, num_features=30, num_examples=100).load()
  documents = data.train
  assert documents.number == 100
  assert (
    documents.feature_ptr[-1] == len(documents.feature_ids) == len(documents.values)
  )
  assert documents.label_ptr[-1] == len(documents.label_ids)
  firsts = documents.lengths[[0, 30, 60, 90]].tolist()
  assert len({*map(tuple, firsts)}) > 1  # not the same draws again


def test_seed_determines_the_data():
  one, again, other = (ZipfLabels(num_examples=50, seed=s).load() for s in (1, 1, 2))
  np.testing.assert_array_equal(one.train.feature_ids, again.train.feature_ids)
  assert one.train.feature_ids.tolist() != other.train.feature_ids.tolist()


@pytest.mark.parametrize(
  ("key", "value"),
  [("num_classes", 1), ("features_per_example", 0.5), ("noise", 1.5), ("noise", -0.1),
   ("exponent", float("inf")), ("labels_per_example", float("nan")), ("seed", -1),
   ("normalize", "l3")],
)  # fmt: skip
def test_invalid_settings_are_named(key, value):
  with pytest.raises(UserError, match=rf"^ZipfLabels\.{key} is .*; it must"):
    ZipfLabels(**{key: value})
