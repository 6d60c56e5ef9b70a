import numpy as np
import pytest

from largevocab.data.text import encode as encode_module
from largevocab.data.text.corpus import open_corpus
from largevocab.data.text.encode import encode
from largevocab.data.text.vocabulary import EOS, UNK
from largevocab.errors import UserError

WORDS = [f"w{i * i % 17}" for i in range(200)]


def lines(words, length):
  for start in range(0, len(words), length):
    yield [*words[start : start + length], EOS]


def encoded(tmp_path, texts, **settings):
  encode(tmp_path, texts, **settings)
  return open_corpus(tmp_path)


def test_decoding_restores_the_text(tmp_path):
  valid = ["w0", "new", "w1"]
  texts = {"train": lines(WORDS, 7), "valid": [valid], "test": [["w4"], ["w9"]]}
  corpus = encoded(tmp_path, texts)
  decode = corpus.vocabulary.decode
  assert decode(corpus.train) == [word for line in lines(WORDS, 7) for word in line]
  assert decode(corpus.valid) == ["w0", UNK, "w1"]
  assert decode(corpus.test) == ["w4", "w9"]


def test_counts_are_over_the_training_split(tmp_path):
  texts = {"train": lines(WORDS, 7), "valid": [WORDS], "test": [["other"] * 50]}
  corpus = encoded(tmp_path, texts, min_count=13)
  counts_V = corpus.counts.unigram_V
  np.testing.assert_array_equal(
    counts_V, np.bincount(corpus.train, minlength=len(corpus.vocabulary))
  )
  assert (np.diff(counts_V) <= 0).all()
  assert counts_V[corpus.vocabulary.unk] > 0
  assert "other" not in corpus.vocabulary.words


def test_shares_are_cut_from_the_end_at_line_ends(tmp_path):
  texts = {"train": lines(WORDS, 7), "valid": 0.1, "test": 0.2}
  corpus = encoded(tmp_path, texts)
  parts = [corpus.train, corpus.valid, corpus.test]
  whole = [word for line in lines(WORDS, 7) for word in line]
  assert [w for part in parts for w in corpus.vocabulary.decode(part)] == whole
  for part, share in zip(parts, (0.7, 0.1, 0.2), strict=True):
    assert part[-1] == corpus.vocabulary.eos
    assert abs(len(part) - share * len(whole)) <= 8


def test_shares_of_text_without_line_ends_are_exact(tmp_path):
  corpus = encoded(tmp_path, {"train": [WORDS], "valid": 0.05, "test": 0.05})
  assert [len(s) for s in (corpus.train, corpus.valid, corpus.test)] == [180, 10, 10]
  assert corpus.vocabulary.counts_V[corpus.vocabulary.eos] == 0


def test_given_split_is_not_cut_from_training_text(tmp_path):
  corpus = encoded(tmp_path, {"train": [WORDS], "valid": [["w1"]], "test": 0.1})
  assert [len(s) for s in (corpus.train, corpus.valid, corpus.test)] == [180, 1, 20]


def test_result_does_not_depend_on_block_size(tmp_path, monkeypatch):
  texts = lambda: {"train": lines(WORDS, 7), "valid": 0.1, "test": [WORDS]}
  (tmp_path / "one").mkdir()
  (tmp_path / "many").mkdir()
  one = encoded(tmp_path / "one", texts())
  monkeypatch.setattr(encode_module, "_BLOCK", 5)
  many = encoded(tmp_path / "many", texts())
  for split in ("train", "valid", "test"):
    np.testing.assert_array_equal(getattr(one, split), getattr(many, split))


def test_no_other_files_are_left(tmp_path):
  encode(tmp_path, {"train": [WORDS], "valid": 0.1, "test": [WORDS]})
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    "corpus.json", "test.npy", "train.npy", "valid.npy", "vocabulary.txt",
  ]  # fmt: skip


@pytest.mark.parametrize("empty", ["train", "valid"])
def test_empty_split_is_refused(tmp_path, empty):
  texts = {"train": [WORDS], "valid": [WORDS], "test": [WORDS], empty: []}
  with pytest.raises(UserError, match=f"the {empty} text has no words"):
    encode(tmp_path, texts)


def test_share_too_small_for_a_token_is_refused(tmp_path):
  with pytest.raises(UserError, match=r"the test text has no words.*raise its share$"):
    encode(tmp_path, {"train": [WORDS], "valid": 0.1, "test": 1e-6})


def test_share_within_the_last_line_is_refused_with_its_remedy(tmp_path):
  text = [["a"], ["<eos>"], ["b", "c"] * 50, ["<eos>"]]
  with pytest.raises(
    UserError, match=r"the test text has no words.*line_ends=False if"
  ):
    encode(tmp_path, {"train": text, "valid": 0.1, "test": 0.1})


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.0, 0.1), (-0.1, 0.1)])
def test_invalid_shares_are_refused(tmp_path, shares):
  with pytest.raises(UserError, match="each must be above 0, and their sum below 1"):
    encode(tmp_path, {"train": [WORDS], "valid": shares[0], "test": shares[1]})


@pytest.mark.parametrize("word", ["New York", "", "a\u2028"])
def test_invalid_word_is_refused(tmp_path, word):
  message = "cannot be a class: give names that are not empty and have no blanks"
  with pytest.raises(UserError, match=message):
    encode(tmp_path, {"train": [[word, *WORDS]], "valid": 0.1, "test": 0.1})
