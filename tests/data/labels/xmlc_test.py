"""Data sets of the Extreme Classification Repository: splits, classes, the cache."""

import dataclasses
import gzip
import lzma

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.data.labels.document_set import open_documents
from largevocab.errors import UserError

TRAIN = """8 6 7
1,3 0:1 2:2
3 1:3 2:4
 5:1
3,5 0:1
1 4:-2
3,6 0:1
5 1:1
2 3:1
"""
TEST = "3 6 7\n3,0 0:1 1:1\n 2:1\n2,1,6 4:1\n"


@pytest.fixture
def xmlc(tmp_path):
  (tmp_path / "train.txt.gz").write_bytes(gzip.compress(TRAIN.encode()))
  (tmp_path / "test.txt.xz").write_bytes(lzma.compress(TEST.encode()))
  settings = {"path": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
  return lambda **more: DATASETS["xmlc"](
    **{**settings, "valid_share": 0.25, **more}
  ).load()


def decoded(data, split):
  """The labels, by their names in the file, and the features of each document."""
  (batch,) = data.evaluation_batches(split, getattr(data, split).number, 1)
  words = np.array([*data.vocabulary.words, "-"])
  labels = [" ".join(words[row[row < len(data.vocabulary)]]) for row in batch.y.ids_NP]
  features = [
    dict(zip(ids.tolist(), values.tolist(), strict=True))
    for ids, values in zip(*batch.x, strict=True)
  ]
  for document in features:
    assert document.pop(data.num_inputs, 0) == 0
  return [
    (int(at), labels[row], features[row]) for row, at in enumerate(batch.y.context_N)
  ]


def test_documents_are_split(xmlc):
  data = xmlc(normalize="none")
  assert decoded(data, "train") == [
    (0, "1 3", {0: 1, 2: 2}), (1, "3", {1: 3, 2: 4}), (2, "", {5: 1}),
    (3, "1", {4: -2}), (4, "3 6", {0: 1}), (5, "5", {1: 1}),
  ]  # fmt: skip
  assert decoded(data, "valid") == [(0, "3 5", {0: 1}), (1, "2", {3: 1})]
  assert decoded(data, "test") == [
    (0, "3 0", {0: 1, 1: 1}), (1, "", {2: 1}), (2, "2 1 6", {4: 1})
  ]  # fmt: skip


def test_all_labels_are_classes_ordered_by_training_count(xmlc):
  data = xmlc()
  assert data.vocabulary.words == ["3", "1", "5", "6", "0", "2", "4"]
  assert data.counts.unigram_V.tolist() == [3, 2, 1, 1, 0, 0, 0]
  assert data.counts.examples == 6
  assert data.counts.tokens is None
  assert data.num_inputs == 6
  assert data.summary == (
    "6 training documents with 1.3 of 6 features and 1.2 of 7 labels on average"
  )


def test_documents_without_labels_have_no_weight(xmlc):
  (batch,) = xmlc().evaluation_batches("test", 5, 1)
  np.testing.assert_allclose(batch.y.w_NP.sum(axis=1), [1, 0, 1, 0, 0])
  assert batch.x.ids_BF.dtype == batch.y.ids_NP.dtype == np.int32
  assert batch.x.values_BF.dtype == batch.y.w_NP.dtype == np.float32
  assert batch.y.context_N.dtype == np.int32


def test_split_without_labels_is_refused(xmlc):
  data = xmlc()
  bare = data.test._replace(
    label_ptr=np.zeros_like(data.test.label_ptr), label_ids=data.test.label_ids[:0]
  )
  data = dataclasses.replace(data, test=bare)
  data.evaluation_batches("valid", 2, 1)
  with pytest.raises(UserError, match="no document of the test data has a label"):
    data.evaluation_batches("test", 2, 1)


def test_values_have_unit_norm_by_default(xmlc):
  features = [document for _, _, document in decoded(xmlc(), "train")]
  assert features[1] == pytest.approx({1: 0.6, 2: 0.8})
  assert features[3] == {4: -1}


def test_near_uniform_recipe_limits_label_counts(xmlc):
  data = xmlc(min_count=2, max_count=2, normalize="none")
  assert data.vocabulary.words == ["1", "3"]
  assert data.vocabulary.counts_V.tolist() == [2, 2]
  assert data.train.number in (3, 4)  # of 1 3, 3, 1, 3: one 3 is left out
  assert [labels for _, labels, _ in decoded(data, "test")] == ["3", "1"]


def test_loads_in_any_order_use_the_cache(xmlc, monkeypatch):
  first = xmlc()
  monkeypatch.setattr("largevocab.data.labels.xmlc.read_train_and_test", pytest.fail)
  second = xmlc(seed=1, normalize="none", buckets=(0.2,))
  for one, other in zip(first.train, second.train, strict=True):
    assert isinstance(other, np.memmap)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
  "change", [{"valid_share": 0.5}, {"min_count": 1}, {"max_count": 1}]
)
def test_changed_option_is_encoded_again(xmlc, change):
  changed = xmlc(**change)
  assert changed.counts.unigram_V.tolist() != xmlc().counts.unigram_V.tolist()


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("valid.label_ids", np.array([0, 7, 1], np.int32)),
    ("train.feature_ids", np.full(8, 6, np.int32)),
    ("train.label_ids", np.zeros(7, np.int32)),  # other counts
    ("test.values", np.array([1, np.nan, 1, 1], np.float32)),
    ("test.values", np.ones(4)),
    ("test.feature_ptr", np.array([0, 3, 2, 4])),
    ("test.label_ptr", np.array([0, 2, 2])),
  ],
)
def test_damaged_documents_are_reported_and_rebuilt(xmlc, tmp_path, name, value):
  xmlc()
  (path,) = tmp_path.glob(f"cache/*/{name}.npy")
  whole = path.read_bytes()
  np.save(path, value)
  with pytest.raises(UserError, match=r"is damaged .*: delete that directory"):
    open_documents(path.parent)
  path.unlink()
  with pytest.raises(UserError, match=r"is damaged .*: delete that directory"):
    open_documents(path.parent)
  xmlc()
  assert path.read_bytes() == whole


def test_files_of_different_sets_are_refused(xmlc, tmp_path):
  (tmp_path / "test.txt").write_text("1 6 8\n7 1:1\n")
  with pytest.raises(
    UserError,
    match=r"test\.txt, line 1: 6 features and 8 labels, but in .*train\.txt\.gz there "
    r"are 6 and 7: give two files of the same data set$",
  ):
    xmlc()


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"path": ""}, "data.path is empty: set it to the directory that holds train.txt"),
    ({"train": "x.txt"}, r"data.path: no x.txt \(or .gz, .xz\) in .*: put it there"),
    ({"valid_share": 0.0}, "^Xmlc.valid_share is 0.0; it must be above 0"),
    ({"valid_share": 0.1}, "no document of the valid split has labels: give more"),
    ({"min_count": 9}, "there are 0 different labels: .* lower data.min_count"),
    ({"min_count": -1}, "^Xmlc.min_count is -1; it must be at least 0"),
    ({"normalize": "l1"}, "^Xmlc.normalize is 'l1'; it must be one of none, l2"),
    ({"seed": -1}, "^Xmlc.seed is -1; it must be at least 0"),
    ({"buckets": (0.9, 0.5)}, r"^Xmlc.buckets is \(0.9, 0.5\); they must ascend"),
    ({"buckets": (1.0,)}, "^Xmlc.buckets is .*; each must be below 1"),
    ({"buckets": ("a",)}, "^Xmlc.buckets is .*; each must be of type float"),
  ],
)
def test_invalid_setting_is_named(xmlc, settings, message):
  with pytest.raises(UserError, match=message):
    xmlc(**settings)


def test_unroll_above_one_is_refused(xmlc):
  with pytest.raises(UserError, match=r"unroll is 20, .*: set train.unroll"):
    xmlc().training_batches(2, 20)
  with pytest.raises(UserError, match=r"unroll is 20, .* eval.unroll to 1"):
    xmlc().evaluation_batches("valid", 2, 20)
