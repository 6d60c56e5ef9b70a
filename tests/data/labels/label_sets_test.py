"""Removal of rare labels and of occurrences of frequent ones: a near-uniform law."""

import numpy as np
import pytest

from largevocab.data.labels.documents import from_rows
from largevocab.data.labels.label_sets import LabelSet, cut_validation, thin_labels

NUM_LABELS = 60


def zipf_labels(seed, number):
  rng = np.random.default_rng(seed)
  p = 1 / np.arange(1, NUM_LABELS + 1)
  labels = [
    np.unique(rng.choice(NUM_LABELS, 3, p=p / p.sum())).tolist() for _ in range(number)
  ]
  return from_rows([[i] for i in range(number)], [[1.0]] * number, labels)


@pytest.fixture(scope="module")
def labels():
  splits = {"train": zipf_labels(0, 900), "valid": zipf_labels(1, 90),
            "test": zipf_labels(2, 450)}  # fmt: skip
  return LabelSet(splits, 900, [f"l{i}" for i in range(NUM_LABELS)])


def occurrences(labels, split):
  """{(document, label's name)}."""
  documents = labels.splits[split]
  own = np.repeat(documents.feature_ids, np.diff(documents.label_ptr)).tolist()
  return {
    (i, labels.names[j]) for i, j in zip(own, documents.label_ids.tolist(), strict=True)
  }


def counts(labels, split):
  found = [name for _, name in occurrences(labels, split)]
  return {name: found.count(name) for name in set(found)}


@pytest.mark.parametrize(("least", "most"), [(10, 0), (0, 20), (12, 15), (30, 10)])
def test_rare_labels_and_frequent_occurrences_are_removed(labels, least, most):
  thinned = thin_labels(labels, least, most)
  before = counts(labels, "train")
  kept = [n for n in labels.names if before.get(n, 0) >= least]
  assert thinned.names == kept
  for split in ("train", "valid", "test"):
    documents = thinned.splits[split]
    assert np.diff(documents.label_ptr).min() > 0  # no document is without labels
    assert occurrences(thinned, split) <= occurrences(labels, split)
    was, now = counts(labels, split), counts(thinned, split)
    for name in kept:
      share = min(1, most / max(before.get(name, 0), 1)) if most else 1
      assert now.get(name, 0) == np.ceil(was.get(name, 0) * share - 1e-9)
  if most:
    assert max(counts(thinned, "train").values()) == most


def test_nothing_is_removed_by_default(labels):
  assert thin_labels(labels, 0, 0) is labels


def test_kept_occurrences_are_random_but_reproducible(labels):
  first, again = (occurrences(thin_labels(labels, 0, 20), "train") for _ in range(2))
  assert first == again
  of_most_frequent = [i for i, name in first if name == "l0"]
  assert np.mean(np.array(of_most_frequent) < 450) == pytest.approx(0.5, abs=0.4)
  assert min(of_most_frequent) < 300 < 600 < max(of_most_frequent)


@pytest.mark.parametrize("share", [0.05, 0.1, 1 / 3, 0.9])
def test_validation_is_spread_evenly(share):
  number = 100
  train, valid = cut_validation(zipf_labels(0, number), share)
  at = valid.feature_ids
  assert len(at) == int(share * number + 1e-9)
  assert sorted([*train.feature_ids, *at]) == list(range(number))
  assert set(np.diff(at)) <= {int(1 / share), int(1 / share) + 1}
