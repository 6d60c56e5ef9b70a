"""Functions as documents, with the names that they call as labels."""

import math

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.data.labels.stdlib_calls import functions_of, words_of
from largevocab.data.text.stdlib import split_of
from largevocab.errors import UserError

SOURCE = '''
async def fetchPage(theURL, *, retry_limit=3):
  """Fetches it; see close_all."""
  for retry in range(retry_limit):
    self.page_cache = await client.get(theURL, timeout=LIMIT)
  def close_all():
    log(close_all)
  map(get, other.range)
  close_all()

class A:
  def method(self): pass
x = call()
'''


def test_functions_have_their_words_and_calls():
  fetch, close_all, method = functions_of(SOURCE)
  assert fetch.calls == {"range", "get", "log", "map", "close_all"}
  assert fetch.words == {
    "fetch": 1, "page": 2, "the": 2, "url": 2, "retry": 3, "limit": 3, "fetches": 1,
    "it": 1, "see": 1, "self": 1, "cache": 1, "client": 1, "timeout": 1, "other": 1,
  }  # fmt: skip
  assert (method.words, method.calls) == ({"method": 1, "self": 1}, set())
  assert (close_all.words, close_all.calls) == ({"close": 2, "all": 2}, {"log"})


@pytest.mark.parametrize("source", ["def f(:", "\0", "(" * 500, ""])
def test_invalid_python_has_no_functions(source):
  assert list(functions_of(source)) == []


@pytest.mark.parametrize(
  ("identifier", "words"),
  [("HTTPServer", "http server"), ("getURLs", "get ur ls"), ("MAX_SIZE", "max size"),
   ("_x", "x"), ("__len__", "len"), ("utf8_mode", "utf mode"), ("größe", "gr öß e"),
   ("_", "")],
)  # fmt: skip
def test_identifiers_are_split_into_words(identifier, words):
  assert words_of(identifier) == words.split()


def write(root, sources):
  """Writes a file for each split; returns a function that loads the data set."""
  for split, source in sources.items():
    names = (f"m{i}.py" for i in range(1000))
    name = next(name for name in names if split_of(name) == split)
    (root / name).write_text(source)
  return lambda **more: DATASETS["stdlib_calls"](
    sources=str(root), cache_dir=str(root / "cache"), **more
  ).load()


TRAIN = """
def one(rare): run(common, common); walk(); once()
def two(): run(common); walk(); other_word
def three(): run(other_word)
def none(): return common
"""


def test_words_and_labels_must_occur_in_two_training_documents(tmp_path):
  held_out = "def f(): walk(common, other_word); once(); never()\ndef g(): once()"
  data = write(
    tmp_path, {"train": TRAIN, "valid": "def v(): run()", "test": held_out}
  )()
  assert data.vocabulary.words == ["run", "walk"]
  assert data.counts.unigram_V.tolist() == [3, 2]
  assert data.num_inputs == 3  # common, other, word; neither `none` nor `rare`
  assert (data.train.number, data.valid.number, data.test.number) == (3, 1, 1)
  assert data.train.feature_ids.tolist() == [0, 0, 1, 2, 1, 2]
  np.testing.assert_allclose(data.train.values, [1 + math.log(2), 1, 1, 1, 1, 1])
  assert data.test.feature_ids.tolist() == [0, 1, 2]
  assert data.test.label_ids.tolist() == [1]


def test_changed_source_is_encoded_again_and_tests_are_skipped(tmp_path):
  sources = {"train": TRAIN, "valid": "def v(): run()", "test": "def f(): walk()"}
  load = write(tmp_path, sources)
  (tmp_path / "test").mkdir()
  (tmp_path / "test" / "m.py").write_text(TRAIN)
  assert load().train.number == 3
  write(tmp_path, {"train": TRAIN + "def four(): run()\n"})
  assert load().train.number == 4


def test_unusable_sources_are_refused(tmp_path):
  with pytest.raises(UserError, match=r"data.sources: no \.py file in .*: set it to"):
    write(tmp_path, {})()
  with pytest.raises(UserError, match="no document of the valid split has labels"):
    write(tmp_path, {"train": TRAIN})()
  with pytest.raises(UserError, match=r"data\.sources is /, the root of the"):
    DATASETS["stdlib_calls"](sources="/").load()
