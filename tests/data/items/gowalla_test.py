"""Items of users as a multi-label task."""

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.errors import UserError

TRAIN = {7: [10, 11, 12, 13, 14], 3: [20], 5: [30, 31], 9: [40, 41, 42, 43]}
TEST = {7: [20, 99], 3: [10], 8: [10]}


def write(path, lines):
  text = "".join(f"{user} {' '.join(map(str, own))}\n" for user, own in lines.items())
  path.write_text(text + "\n6 \n")


@pytest.fixture
def gowalla(tmp_path):
  write(tmp_path / "gowalla_train.txt", TRAIN)
  write(tmp_path / "gowalla_test.txt", TEST)
  return lambda **more: DATASETS["gowalla"](
    **{
      "path": str(tmp_path),
      "cache_dir": str(tmp_path / "c"),
      "valid_share": 0.4,
      **more,
    }
  ).load()


def decoded(data, split):
  """Features and labels of each document, with the ids of the files."""
  documents = getattr(data, split)
  words = np.array(data.vocabulary.words).astype(int)
  items = np.sort(words)
  features = np.split(items[documents.feature_ids], documents.feature_ptr[1:-1])
  labels = np.split(words[documents.label_ids], documents.label_ptr[1:-1])
  return [
    (sorted(x.tolist()), sorted(y.tolist()))
    for x, y in zip(features, labels, strict=True)
  ]


def test_training_examples_are_halves_of_a_users_items(gowalla):
  data = gowalla()
  train, valid = decoded(data, "train"), decoded(data, "valid")
  assert (len(train), len(valid)) == (2, 1)
  whole = sorted(sorted(x + y) for x, y in train + valid)
  assert whole == [
    [10, 11, 12, 13, 14],
    [30, 31],
    [40, 41, 42, 43],
  ]  # user 3 is missing
  for x, y in train + valid:
    assert len(y) <= len(x) <= len(y) + 1


def test_test_examples_have_all_training_items_as_features(gowalla):
  assert decoded(gowalla(), "test") == [
    ([10, 11, 12, 13, 14], [20, 99]), ([20], [10])  # user 8 has no training items
  ]  # fmt: skip


def test_all_items_are_features_and_classes(gowalla):
  data = gowalla()
  assert data.num_inputs == len(data.vocabulary) == 13
  assert (np.asarray(data.train.values) == 1).all()
  labels = [item for _, y in decoded(data, "train") for item in y]
  assert data.counts.unigram_V.sum() == len(labels)
  assert {*data.vocabulary.words[: len(labels)]} == {*map(str, labels)}
  assert data.counts.examples == 2


def test_halves_are_random_but_reproducible(gowalla, tmp_path):
  write(tmp_path / "gowalla_train.txt", {u: range(40) for u in range(200)})
  first, again = gowalla(), gowalla(cache_dir=str(tmp_path / "other"), seed=4)
  assert decoded(first, "train") == decoded(again, "train")
  share = np.bincount(first.train.feature_ids, minlength=40) / first.train.number
  assert np.abs(share[:40].mean() - 0.5) < 0.01
  assert np.abs(share - 0.5).max() < 5 * 0.5 / 120**0.5


@pytest.mark.parametrize(
  ("text", "message"),
  [("3 x4", r"gowalla_train\.txt, line 2: 'x4' is not an item id"),
   ("3 -4", "line 2: '-4' is not an item id"),
   ("a 4", "line 2: 'a' is not an item id")],
)  # fmt: skip
def test_line_with_an_invalid_item_id_is_named(gowalla, tmp_path, text, message):
  (tmp_path / "gowalla_train.txt").write_text(f"1 2 3\n{text}\n")
  with pytest.raises(UserError, match=message):
    gowalla()


def test_invalid_settings_are_refused(gowalla, tmp_path):
  with pytest.raises(UserError, match=r"^Gowalla.valid_share is 1.0; it must be below"):
    gowalla(valid_share=1.0)
  with pytest.raises(UserError, match="no document of the valid split has labels"):
    gowalla(valid_share=0.1)
  (tmp_path / "gowalla_train.txt").write_text("")
  (tmp_path / "gowalla_test.txt").write_text("")
  with pytest.raises(UserError, match="there are 0 different labels"):
    gowalla()
  with pytest.raises(UserError, match=r"holds gowalla_train\.txt"):
    DATASETS["gowalla"]().load()
