"""Reads the One Billion Word benchmark from its shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_files
from largevocab.data.lines import read_lines
from largevocab.data.text.text_corpus import Text, TextCorpus
from largevocab.data.text.vocabulary import EOS
from largevocab.errors import UserError
from largevocab.fields import CountOrNone, Seed, settings
from largevocab.paths import user_path


@dataclass(frozen=True)
class NoBlanks:
  """A rule for strings: a single word, or the empty string."""

  def problem(self, value: str) -> str:
    return "" if not value or value.split() == [value] else "must have no blanks"


@settings(kw_only=True)
class Lm1b(TextCorpus):
  """A directory of shards of tokenised sentences; one `<eos>` per sentence.

  Training sentences are in random order: the shards are shuffled, and so are the lines
  within a shard (one shard is held in memory). The published vocabulary of 793,471
  words has the words with at least 3 occurrences, and sentence marks.

  Attributes:
    path: the directory, as unpacked.
    train, valid, test: glob patterns of shards in this directory.
    seed: seed of the order of training sentences.
    begin: a word to insert before each sentence, such as `<S>`; empty: no word, since
      the `<eos>` of the previous sentence marks the beginning. A word that always
      follows `<eos>` costs nothing to predict and lowers the perplexity per token.
  """

  min_count: CountOrNone = 3
  path: str = ""
  train: str = "training-monolingual*/news.en-*"
  valid: str = "heldout-monolingual*/news.en.heldout-00001*"
  test: str = "heldout-monolingual*/news.en.heldout-00000*"
  seed: Seed = 0
  begin: Annotated[str, NoBlanks()] = ""

  def texts(self):
    if not self.path:
      raise UserError("data.path is empty: set it to the directory of the benchmark")
    texts = {}
    for split in SPLITS:
      within = user_path(self.path, "data.path")
      shards = find_files(getattr(self, split), f"data.{split}", within)
      lines = self._shuffled(shards) if split == "train" else _in_order(shards)
      texts[split] = Text(self._sentences(lines), shards)
    return texts

  @property
  def opening(self) -> Sequence[str]:
    return [self.begin] if self.begin else []

  def _sentences(self, lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
      yield [*self.opening, *self.words(line), EOS]

  def _shuffled(self, shards: Sequence[Path]) -> Iterator[str]:
    rng = np.random.default_rng(self.seed)
    for shard in rng.permutation(len(shards)):
      lines = list(_lines(shards[shard]))
      for line in rng.permutation(len(lines)):
        yield lines[line]


def _in_order(shards: Sequence[Path]) -> Iterator[str]:
  return (line for shard in shards for line in _lines(shard))


def _lines(shard: Path) -> Iterator[str]:
  """The lines of a shard; raises a UserError at the end if all were blank."""
  is_blank = True
  for line in read_lines(shard):
    is_blank = is_blank and not line.strip()
    yield line
  if is_blank:
    raise UserError(f"{shard} has no sentences; unpack the benchmark again")
