"""Your own text files; text8; Europarl."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_files
from largevocab.data.lines import read_chunks, read_lines
from largevocab.data.text.text_corpus import Text, TextCorpus
from largevocab.data.text.vocabulary import EOS, UNK
from largevocab.fields import CountOrNone, ProperShare, settings

# `<unk>`; words with inner apostrophes, hyphens, points, commas (U.S, 1,000); one mark.
_TOKEN = re.compile(rf"{UNK}|\w+(?:[.,'\u2019-]\w+)*|[^\w\s]")


@settings(kw_only=True)
class PlainText(TextCorpus):
  """Base of corpora of any text: words between spaces, one `<eos>` per line.

  Attributes:
    valid_share, test_share: shares to cut off the end of the training text for
      validation and test, if these are not given.
    lower_case: whether to lower-case the text.
    tokenize: whether to split punctuation from words; otherwise only at spaces.
    line_ends: whether each line, also an empty one, gets an `<eos>`.
  """

  valid_share: ProperShare = 0.05
  test_share: ProperShare = 0.05
  lower_case: bool = False
  tokenize: bool = False
  line_ends: bool = True

  def split(self, line: str) -> list[str]:
    """The words of a line, without `<eos>`.

    >>> from largevocab.data import Europarl
    >>> Europarl(tokenize=True, lower_case=True).split("It's 1,000 (U.S.).")
    ["it's", '1,000', '(', 'u.s', '.', ')', '.']
    """
    if self.lower_case:
      line = line.lower()
    return _TOKEN.findall(line) if self.tokenize else line.split()

  def words_of(self, lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line, with an `<eos>` if `line_ends` is set."""
    end = [EOS] if self.line_ends else []
    return ([*self.words(line), *end] for line in lines)


@settings(kw_only=True)
class TextFiles(PlainText):
  """Any text files in UTF-8, plain, .gz or .xz, with or without splits.

  With `line_ends=False` a file is read in pieces, however long its lines.

  Attributes:
    train: the file, or a glob pattern for files read in order of their names.
    valid, test: likewise; empty: cut off the end of the training text, in order.
  """

  train: str = ""
  valid: str = ""
  test: str = ""

  def read(self, path: Path) -> Iterator[str]:
    """A file in lines, or in pieces that end between words."""
    return read_lines(path) if self.line_ends else read_chunks(path)

  def texts(self):
    texts: dict[str, Text | float] = {
      "valid": float(self.valid_share),
      "test": float(self.test_share),
    }
    for split in SPLITS:
      pattern = getattr(self, split)
      if pattern or split == "train":
        files = find_files(pattern, f"data.{split}")
        lines = (line for path in files for line in self.read(path))
        texts[split] = Text(self.words_of(lines), files)
    return texts


@settings(kw_only=True)
class Text8(TextFiles):
  """text8, or a text of the same form: one stream of words without line ends.

  Split 90/5/5 by token unless valid and test are given. The vocabulary has the words
  with at least 5 occurrences in the training text, as is usual, and `<eos>` with count
  0.
  """

  min_count: CountOrNone = 5
  line_ends: bool = False


@settings(kw_only=True)
class Europarl(TextFiles):
  """Europarl, any language: without mark-up and empty lines.

  By default lower-cased, with punctuation split from words. Split 98/1/1 by line unless
  valid and test are given.
  """

  valid_share: ProperShare = 0.01
  test_share: ProperShare = 0.01
  lower_case: bool = True
  tokenize: bool = True

  def read(self, path: Path) -> Iterator[str]:
    """The lines of speech."""
    for line in read_lines(path):
      speech = line.strip()
      if speech and not speech.startswith("<"):
        yield speech
