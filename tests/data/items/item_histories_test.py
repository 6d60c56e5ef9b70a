"""Diginetica and Amazon Video Games, each in its own format; synthetic histories."""

import gzip
import lzma

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.data.items.next_item import open_next_item
from largevocab.errors import UserError

TRAIN = "12 5\n\n5 7 12 9 5\n7\n9 5\n5 12\n"  # the third line has no example
TEST = "40 7 5\n9 12\n"
REVIEWS = "3 8\n1 6\n1 8\n1 6\n1 4\n2 6\n2 8\n3 4\n3 6\n4 9\n"


@pytest.fixture
def diginetica(tmp_path):
  path = tmp_path / "diginetica_srgnn_train_sessions.txt.gz"
  path.write_bytes(gzip.compress(TRAIN.encode()))
  path = tmp_path / "diginetica_srgnn_test_sessions.txt.xz"
  path.write_bytes(lzma.compress(TEST.encode()))
  return DATASETS["diginetica"](
    path=str(tmp_path), valid_share=0.3, cache_dir=str(tmp_path / "cache")
  )


@pytest.fixture
def games(tmp_path):
  (tmp_path / "sasrec_Video.txt").write_text(REVIEWS)
  return DATASETS["video_games"](path=str(tmp_path), cache_dir=str(tmp_path / "cache"))


def decoded(data, split):
  """Examples as item names; '-' is padding."""
  words = [*data.vocabulary.words, "-"]
  return [" ".join(words[id] for id in row) for row in getattr(data, split)]


def test_every_item_after_the_first_of_a_session_is_an_example(diginetica):
  data = diginetica.load()
  assert decoded(data, "train") == ["- - 12 5", "- - 5 7", "- 5 7 12", "5 7 12 9",
                                    "7 12 9 5"]  # fmt: skip
  assert decoded(data, "valid") == ["- - 9 5", "- - 5 12"]
  assert decoded(data, "test") == ["- - 40 7", "- 40 7 5", "- - 9 12"]


def test_classes_are_ordered_by_their_counts_as_next_item(diginetica):
  vocabulary = diginetica.load().vocabulary
  assert list(vocabulary.words) == ["5", "7", "9", "12", "40"]
  assert vocabulary.counts_V.tolist() == [2, 1, 1, 1, 0]


def test_last_two_items_of_a_user_are_validation_and_test(games):
  data = games.load()
  assert decoded(data, "train") == ["- - 6 8", "- - 6 8"]
  assert decoded(data, "valid") == ["- - 8 4", "- 6 8 6"]
  assert decoded(data, "test") == ["- 8 4 6", "6 8 6 4"]
  assert len(data.vocabulary) == 4  # including 9, of a user with one item


def test_history_sets_the_number_of_items_shown(games, tmp_path):
  data = DATASETS["video_games"](
    path=games.path, cache_dir=games.cache_dir, history=1
  ).load()
  assert decoded(data, "test") == ["4 6", "6 4"]


def test_counts_have_no_token_stream(diginetica):
  data = diginetica.load()
  assert data.counts.tokens is None
  next_items = np.bincount(data.train[:, -1], minlength=5)
  np.testing.assert_array_equal(data.counts.unigram_V, next_items)
  assert data.summary == "5 training examples, 5 items"


def test_context_is_always_the_last_item(diginetica):
  batches = diginetica.load().evaluation_batches("test", 2, 1)
  for batch in batches:
    np.testing.assert_array_equal(batch.y.context_N, batch.x[:, -1])
    assert (batch.y.context_N < 5).all()


def test_second_load_uses_the_cache(diginetica, monkeypatch):
  first = diginetica.load()
  monkeypatch.setattr(
    "largevocab.data.items.item_histories.encode_histories", pytest.fail
  )
  second = diginetica.load()
  assert isinstance(second.train, np.memmap)
  np.testing.assert_array_equal(first.train, second.train)


@pytest.mark.parametrize("change", [{"valid_share": 0.8}, {"history": 2}])
def test_changed_option_is_encoded_again(diginetica, change):
  settings = {"path": diginetica.path, "cache_dir": diginetica.cache_dir}
  settings["valid_share"] = 0.3
  changed = DATASETS["diginetica"](**settings | change).load()
  assert changed.train.shape != diginetica.load().train.shape


def test_damaged_examples_are_reported_and_rebuilt(diginetica, tmp_path):
  diginetica.load()
  (path,) = tmp_path.glob("cache/*/valid.npy")
  whole = path.read_bytes()
  np.save(path, np.load(path)[:-1])
  with pytest.raises(UserError, match=r"is damaged .*: delete that directory"):
    open_next_item(path.parent, seed=0)
  np.save(path, np.full((2, 4), 6, np.int32))  # 5 is padding, 6 is invalid
  with pytest.raises(UserError, match=r"is damaged .*: delete that directory"):
    open_next_item(path.parent, seed=0)
  diginetica.load()
  assert path.read_bytes() == whole


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("3 x4", "line 3: 'x4' is not an item id; ids are whole numbers"),
    ("3 -4", "line 3: '-4' is not an item id"),
    ("3 4.0", "line 3: '4.0' is not an item id"),
    ("3 " + "9" * 30, "line 3: '9+' is not an item id"),
  ],
)
def test_invalid_session_line_is_named(diginetica, tmp_path, line, message):
  (tmp_path / "train.txt").write_text(f"1 2\n2 1\n{line}\n")
  settings = {"path": diginetica.path, "cache_dir": diginetica.cache_dir}
  with pytest.raises(UserError, match=rf"train\.txt, {message}"):
    DATASETS["diginetica"](**settings, train="train.txt").load()


@pytest.mark.parametrize(
  ("line", "message"),
  [("3", "line 2: 1 words; give a user and an item"), ("3 4 5", "line 2: 3 words"),
   ("u3 4", "line 2: 'u3' is not an item id")],
)  # fmt: skip
def test_invalid_review_line_is_named(games, line, message):
  with open(f"{games.path}/sasrec_Video.txt", "w") as file:
    file.write(f"1 6\n{line}\n")
  with pytest.raises(UserError, match=rf"sasrec_Video\.txt, {message}"):
    games.load()


@pytest.mark.parametrize(
  ("text", "message"),
  [("", "0 different items"), ("4\n4 4\n", "1 different items: give at least 2"),
   ("1\n2\n", "the train split has no examples: give more or longer histories")],
)  # fmt: skip
def test_file_without_examples_is_refused(diginetica, tmp_path, text, message):
  for name in ("train.txt", "test.txt"):
    (tmp_path / name).write_text(text)
  files = {"train": "train.txt", "test": "test.txt"}
  settings = {"path": diginetica.path, "cache_dir": diginetica.cache_dir}
  with pytest.raises(UserError, match=message):
    DATASETS["diginetica"](**files, **settings).load()


@pytest.mark.parametrize(
  ("name", "file"),
  [("diginetica", "diginetica_srgnn_train_sessions.txt"),
   ("video_games", "sasrec_Video.txt")],
)  # fmt: skip
def test_missing_file_is_reported_with_the_remedy(name, file, tmp_path):
  with pytest.raises(UserError, match=rf"data.path is empty: set it .* holds {file}"):
    DATASETS[name]().load()
  with pytest.raises(UserError, match=rf"data.path: no {file} \(or .gz, .xz\)"):
    DATASETS[name](path=str(tmp_path)).load()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_validation_share_must_leave_examples(diginetica, share):
  settings = {"path": diginetica.path, "cache_dir": diginetica.cache_dir}
  with pytest.raises(UserError, match=r"^Diginetica\.valid_share is .*; it must be"):
    DATASETS["diginetica"](**settings, valid_share=share).load()


@pytest.mark.parametrize("settings", [{"history": 0}, {"seed": -1}])
@pytest.mark.parametrize("name", ["diginetica", "zipf_items"])
def test_invalid_setting_is_named(name, settings):
  with pytest.raises(UserError, match=r"\.(history is 0|seed is -1); it must be at"):
    DATASETS[name](**settings)


def test_unroll_above_one_is_refused(diginetica):
  data = diginetica.load()
  with pytest.raises(UserError, match=r"unroll is 20, .*: set train.unroll"):
    data.training_batches(2, 20)
  with pytest.raises(UserError, match=r"unroll is 20, .* eval.unroll to 1"):
    data.evaluation_batches("valid", 2, 20)


def test_synthetic_histories_equal_the_synthetic_text():
  data = DATASETS["zipf_items"](num_classes=30, num_items=400, seed=3).load()
  text = DATASETS["zipf"](num_classes=30, num_tokens=400, seed=3).load()
  words = np.array([*map(int, data.vocabulary.words), -1])
  np.testing.assert_array_equal(words[data.train[:, -1]], text.train[1:])
  np.testing.assert_array_equal(words[data.test[2:, 0]], text.test[:-3])
  assert words[data.train[0]].tolist()[:2] == [-1, -1]
  assert (np.diff(data.vocabulary.counts_V) <= 0).all()
