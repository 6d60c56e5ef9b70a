"""Base of corpora read from text, which are encoded once, cached and memory-mapped."""

import abc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from largevocab.data.cache import cache_root, cached, class_key, content_key
from largevocab.data.encoded import SPLITS
from largevocab.data.files import naming
from largevocab.data.synthetic.zipf import Zipf
from largevocab.data.text.corpus import Corpus, open_corpus, write_sizes
from largevocab.data.text.encode import encode
from largevocab.data.text.subwords import Subwords
from largevocab.data.text.vocabulary import EOS
from largevocab.errors import UserError
from largevocab.fields import CountOrNone, settings
from largevocab.paths import user_path

_LOG = logging.getLogger("largevocab")
_FORMAT = 1  # version of the encoded files; changing it rebuilds all corpora
# Fields that are not part of the key of a cache: locations of data, whose content is.
_NOT_IN_KEY = {"path", "train", "valid", "test", "data_dir", "cache_dir", "tokenizer"}


class Text(NamedTuple):
  """The text of one split.

  Attributes:
    words: its words, in order, in lists of any length; `<eos>` ends a line. They can be
      read only once.
    files: its source files.
    version: anything else that its content depends on.
  """

  words: Iterable[list[str]]
  files: Sequence[Path] = ()
  version: str = ""


@settings(kw_only=True)
class TextCorpus(abc.ABC):
  """Base of the corpora read from text.

  Attributes:
    min_count: words with fewer occurrences in the training text become `<unk>`.
    max_vocab: maximum number of classes, including `<unk>` and `<eos>`; 0: no limit.
    tokenizer: a tokenizer.json of Hugging Face's `tokenizers`. The classes are then all
      of its tokens, with `<unk>` and `<eos>`, which ends a line as for words. The
      tokenizer reads lines as they are in the files. Settings for words, such as
      `min_count`, `max_vocab` and `lower_case`, have no effect. Evaluation adds metrics
      per word and per byte; see `largevocab.data.batches.TextSize`. Empty: the classes
      are words.
    cache_dir: directory of encoded corpora; empty: $LARGEVOCAB_CACHE, or else
      ~/.cache/largevocab.
  """

  min_count: CountOrNone = 1
  max_vocab: CountOrNone = 0
  tokenizer: str = ""
  cache_dir: str = ""

  @abc.abstractmethod
  def texts(self) -> Mapping[str, Text | float]:
    """The text of each split; a number is a share of the end of the training text."""

  def split(self, line: str) -> list[str]:
    """The words of a line, if there is no tokenizer; without `<eos>`."""
    return line.split()

  @property
  def opening(self) -> Sequence[str]:
    """Words that are inserted at the beginning of each line of all splits."""
    return ()

  def words(self, line: str) -> list[str]:
    """The words, or subwords, of a line, for training and for queries."""
    return self.subwords.split(line) if self.subwords else self.split(line)

  def added(self, words: Sequence[str], word: str) -> str:
    """How to show a next word; a subword is shown by what it adds to the text."""
    return self.subwords.added(words, word) if self.subwords else word

  @cached_property
  def subwords(self) -> Subwords | None:
    """The tokenizer, if there is one."""
    if not self.tokenizer:
      return None
    return Subwords(user_path(self.tokenizer, "data.tokenizer"))

  def tiny(self) -> Zipf:
    return Zipf(num_tokens=1000)

  def load(self) -> Corpus:
    """The corpus, encoded by the first call and memory-mapped from the cache."""
    root = cache_root(self.cache_dir)
    texts = self.texts()
    given = [(s, text) for s in SPLITS if isinstance(text := texts[s], Text)]
    options = {k: v for k, v in asdict(self).items() if k not in _NOT_IN_KEY}
    contents = [(split, len(text.files), text.version) for split, text in given]
    files = [path for _, text in given for path in text.files]
    sources = files
    if self.subwords:
      contents.append(("tokenizer", 1, "2"))  # the version of `Subwords.split`
      sources = [*files, self.subwords.checked()]
    what = [_FORMAT, class_key(type(self)), options, contents]
    key = content_key(root, sources, what)

    def build(directory: Path) -> None:
      words = {
        split: _not_empty(split, text) if isinstance(text, Text) else text
        for split, text in texts.items()
      }
      with naming(files):
        names = self.subwords.names if self.subwords else ()
        encode(directory, words, self.min_count, self.max_vocab, names)
      if self.subwords:
        write_sizes(directory, self.subwords.size)

    _warn_of_shared_files(texts)
    name = f"{type(self).__name__.lower()}-{key}"
    corpus = open_corpus(cached(root, name, build))
    _warn_of_unknown_words(corpus)
    return corpus


def _warn_of_shared_files(texts: Mapping[str, Text | float]) -> None:
  """Logs a warning if a held-out file is a training file, as by a glob pattern.

  Slices of one file, which have different versions, share no text.
  """
  train = texts["train"]
  assert isinstance(train, Text)
  of_train = {path.resolve() for path in train.files}
  for split in ("valid", "test"):
    text = texts[split]
    if not isinstance(text, Text) or text.version != train.version:
      continue
    if shared := [path for path in text.files if path.resolve() in of_train]:
      _LOG.warning("the %s text is part of the training text: %s", split, shared[0])


def _warn_of_unknown_words(corpus: Corpus) -> None:
  """Logs a warning if most of the first million held-out words are `<unk>`.

  The text then probably has another language or comes from another tokenizer.
  """
  for split in ("valid", "test"):
    ids = getattr(corpus, split)[:1_000_000]
    share = np.mean(ids == corpus.vocabulary.unk)
    if share > 0.5:
      _LOG.warning(
        "%.0f %% of the %s text is <unk>, words that the training text does not have",
        *(100 * share, split),
      )


def _not_empty(split: str, text: Text) -> Iterator[list[str]]:
  empty = True
  for words in text.words:
    empty = empty and all(word == EOS for word in words)
    yield words
  if empty:
    places = ", ".join(map(str, text.files[:3]))
    raise UserError(f"the {split} text has no words: put text in {places}")
