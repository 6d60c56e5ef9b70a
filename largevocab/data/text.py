"""Text files of one's own; text8; Europarl."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from largevocab.data.lines import read_chunks, read_lines
from largevocab.data.text_corpus import Text, TextCorpus, find_files
from largevocab.data.vocabulary import EOS, UNK

# `<unk>`; words with inner apostrophes, hyphens, points, commas (U.S, 1,000); one mark.
_TOKEN = re.compile(rf"{UNK}|\w+(?:[.,'\u2019-]\w+)*|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class TextFiles(TextCorpus):
  """Any text: words between spaces, one `<eos>` per line (also an empty one).

  Attributes:
    train: the file, or a glob pattern for files read in order of their names.
    valid, test: the same; empty: cut off the end of the training text, in order.
    valid_share, test_share: how much of it, where it is cut off.
    lower_case: whether to lower-case it.
    tokenize: whether to part words from punctuation; else only spaces part them.
    line_ends: whether a line gets an `<eos>`; False for a text without lines, which
      is then read in pieces, however long.
  """

  train: str = ""
  valid: str = ""
  test: str = ""
  valid_share: float = 0.05
  test_share: float = 0.05
  lower_case: bool = False
  tokenize: bool = False
  line_ends: bool = True

  def pieces(self, path: Path) -> Iterator[str]:
    """The file in lines, or else in pieces that end between words."""
    return read_lines(path) if self.line_ends else read_chunks(path)

  def read(self, path: Path) -> Iterator[list[str]]:
    """The words of a file."""
    for piece in self.pieces(path):
      if self.lower_case:
        piece = piece.lower()
      words = _TOKEN.findall(piece) if self.tokenize else piece.split()
      if self.line_ends:
        words.append(EOS)
      yield words

  def texts(self):
    texts: dict[str, Text | float] = {
      "valid": float(self.valid_share),
      "test": float(self.test_share),
    }
    for split in ("train", "valid", "test"):
      pattern = getattr(self, split)
      if pattern or split == "train":
        files = find_files(pattern, f"{type(self).__name__.lower()} {split}")
        words = (words for path in files for words in self.read(path))
        texts[split] = Text(words, files)
    return texts


@dataclass(frozen=True, kw_only=True)
class Text8(TextFiles):
  """text8, or a text made like it: one stream of words without line ends.

  Split 90/5/5 by token unless valid and test are given. Words seen at least 5 times,
  as is usual; `<eos>` is in the vocabulary with count 0.
  """

  min_count: int = 5
  line_ends: bool = False


@dataclass(frozen=True, kw_only=True)
class Europarl(TextFiles):
  """Europarl, any language: lines of mark-up and empty lines dropped.

  Lower-cased, and words parted from punctuation, unless told.
  """

  valid_share: float = 0.01
  test_share: float = 0.01
  lower_case: bool = True
  tokenize: bool = True

  def pieces(self, path: Path) -> Iterator[str]:
    """The lines of speech."""
    for line in read_lines(path):
      speech = line.strip()
      if speech and not speech.startswith("<"):
        yield speech + "\n"
