import numpy as np
import pytest

from largevocab.data.text.vocabulary import EOS, UNK, Vocabulary, build_vocabulary
from largevocab.errors import UserError

COUNTS = {"c": 3, "a": 3, "b": 7, "rare": 1, "rarer": 1, EOS: 5, UNK: 2}


def test_ids_are_ordered_by_count_then_word():
  vocabulary = build_vocabulary(COUNTS)
  assert vocabulary.words == ["b", EOS, "a", "c", UNK, "rare", "rarer"]
  np.testing.assert_array_equal(vocabulary.counts_V, [7, 5, 3, 3, 2, 1, 1])
  assert vocabulary.counts_V.dtype == np.int64
  assert (vocabulary.unk, vocabulary.eos) == (4, 1)


def test_counts_of_omitted_words_go_to_unk():
  for vocabulary in (
    build_vocabulary(COUNTS, min_count=2),
    build_vocabulary(COUNTS, max_vocab=5),
  ):
    assert len(vocabulary) == 5
    assert vocabulary.counts_V[vocabulary.unk] == 2 + 1 + 1
    assert vocabulary.counts_V.sum() == sum(COUNTS.values())


def test_unk_and_eos_are_always_present():
  vocabulary = build_vocabulary({"a": 2, "b": 1})
  assert vocabulary.words == ["a", "b", EOS, UNK]
  assert vocabulary.counts_V[[vocabulary.unk, vocabulary.eos]].tolist() == [0, 0]


def test_words_of_count_zero_are_left_out():
  assert "never" not in build_vocabulary({**COUNTS, "never": 0}, min_count=0).words


def test_encoding_and_decoding_use_unk_for_unknown_words():
  vocabulary = build_vocabulary(COUNTS)
  ids = vocabulary.encode(["a", "unheard", "b", EOS])
  assert vocabulary.decode(ids) == ["a", UNK, "b", EOS]
  assert vocabulary.decode(np.array(ids)) == ["a", UNK, "b", EOS]


@pytest.mark.parametrize(
  "settings", [{"min_count": 4}, {"max_vocab": 3}, {"max_vocab": 1}]
)
def test_fewer_than_two_words_are_refused(settings):
  with pytest.raises(UserError, match=r"leave . of 7 words.*lower min_count"):
    build_vocabulary(COUNTS, **settings)


def test_vocabulary_is_saved_as_text_and_read_back(tmp_path):
  vocabulary = build_vocabulary({**COUNTS, "žluťoučký": 9, "#": 4})
  vocabulary.save(tmp_path / "v.txt")
  assert (tmp_path / "v.txt").read_text("utf-8").startswith("žluťoučký\t9\nb\t7\n")
  read = Vocabulary.load(tmp_path / "v.txt")
  assert read.words == vocabulary.words
  np.testing.assert_array_equal(read.counts_V, vocabulary.counts_V)


@pytest.mark.parametrize(
  "text",
  [
    *("", "a\t1\n", "a\tb\n<unk>\t1\n<eos>\t1\n", "a\n"),
    "a\t2\na\t1\n<unk>\t1\n<eos>\t1\n",  # the same word twice
  ],
)
def test_file_that_is_not_a_vocabulary_is_refused(tmp_path, text):
  (tmp_path / "v.txt").write_text(text)
  with pytest.raises(UserError, match=r"v.txt is not a vocabulary"):
    Vocabulary.load(tmp_path / "v.txt")
