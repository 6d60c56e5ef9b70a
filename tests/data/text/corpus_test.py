import numpy as np
import pytest

from largevocab.data.text.corpus import open_corpus
from largevocab.data.text.encode import encode
from largevocab.errors import UserError

SPLITS = {"train": [["a", "b", "c", "a", "b"]], "valid": [["a"]], "test": [["c"]]}


@pytest.fixture
def directory(tmp_path):
  encode(tmp_path, SPLITS)
  return tmp_path


def test_splits_are_memory_mapped_and_read_only(directory):
  corpus = open_corpus(directory)
  assert isinstance(corpus.train, np.memmap)
  assert corpus.train.dtype == np.int32
  with pytest.raises(ValueError, match="read-only"):
    corpus.train[0] = 1


def test_counts_come_with_the_training_tokens(directory):
  corpus = open_corpus(directory)
  assert corpus.counts.tokens is corpus.train
  np.testing.assert_array_equal(corpus.counts.unigram_V, [2, 2, 1, 0, 0])


def truncate(path):
  path.write_bytes(path.read_bytes()[:-4])


def longer(path):
  np.save(path, np.zeros(9, np.int32))


def other_dtype(path):
  np.save(path, np.load(path).astype(np.int64))


def empty(path):
  path.write_bytes(b"")


def remove(path):
  path.unlink()


@pytest.mark.parametrize(
  ("name", "damage"),
  [
    *[("valid.npy", d) for d in (truncate, longer, other_dtype, empty, remove)],
    *[(n, d) for n in ("vocabulary.txt", "corpus.json") for d in (empty, remove)],
    ("vocabulary.txt", truncate),
  ],
)
def test_damaged_corpus_is_reported_with_directory_and_remedy(directory, name, damage):
  damage(directory / name)
  with pytest.raises(UserError, match=r"is damaged \(.*\): delete that") as error:
    open_corpus(directory)
  assert str(directory) in str(error.value)
  assert "\n" not in str(error.value)
