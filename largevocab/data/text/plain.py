"""Corpora from plain text files: your own files, text8 and Europarl."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_files
from largevocab.data.lines import read_chunks, read_lines
from largevocab.data.text.text_corpus import Text, TextCorpus
from largevocab.data.text.vocabulary import EOS, UNK
from largevocab.fields import CountOrNone, ProperShare, settings

_TOKENS = "/marks"  # the version of `_tokens`; changing it rebuilds tokenised corpora


@cache
def _tokens() -> re.Pattern[str]:
  """A pattern for tokens.

  A token is `<unk>`, a word with inner apostrophes, hyphens, points or commas (U.S,
  1,000), or one mark of punctuation. Combining marks, which `\\w` does not match,
  belong to their words.
  """
  codes = [
    code
    for code in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
    if unicodedata.category(chr(code)).startswith("M")
  ]
  runs = [
    [code for _, code in run]
    for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])
  ]
  marks = "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)
  # For speed, this first excludes characters below all marks, and U+2000 to U+20CF,
  # where there are dashes and quotes but no marks.
  perhaps = r"(?=[\u0300-\u1fff\u20d0-\U000e01ef])"
  word = rf"\w+(?:{perhaps}[{marks}]+\w*)*"
  return re.compile(rf"{UNK}|{word}(?:[.,'\u2019-]{word})*|[^\w\s]")


class Source(NamedTuple):
  """The text of one split, as it is read.

  Attributes:
    lines: the lines of its files, or pieces of them that end between words.
    files: the files that it is read from.
    version: anything else that its content depends on.
  """

  lines: Iterable[str]
  files: Sequence[Path]
  version: str = ""


def of_files(pattern: str, split: str, in_lines: bool = True) -> Source:
  """Reads UTF-8 files, plain, .gz or .xz, in order of their names.

  Args:
    pattern: a file, or a glob pattern.
    split: the split that the files belong to.
    in_lines: whether to read lines; otherwise the files are read in pieces, regardless
      of the length of lines.

  Raises:
    UserError: there are no files; the message names the key of the config.
  """
  files = find_files(pattern, f"data.{split}")
  read = read_lines if in_lines else read_chunks
  return Source((line for path in files for line in read(path)), files)


@settings(kw_only=True)
class PlainText(TextCorpus):
  """Base of corpora of any text: words between spaces, one `<eos>` per line.

  Attributes:
    train: the training text: a UTF-8 file, plain, .gz or .xz, or a glob pattern for
      such files, which are read in order of their names.
    valid, test: the validation and the test text, likewise; empty: they are cut off the
      end of the training text, in this order.
    valid_share, test_share: shares of the training text to cut off for validation and
      test, if these texts are not given.
    lower_case: whether to lower-case the text.
    tokenize: whether to split punctuation from words, in Unicode's normal form NFC;
      otherwise text is split only at spaces.
    line_ends: whether each line, including an empty one, gets an `<eos>`.
  """

  train: str = ""
  valid: str = ""
  test: str = ""
  valid_share: ProperShare = 0.05
  test_share: ProperShare = 0.05
  lower_case: bool = False
  tokenize: bool = False
  line_ends: bool = True

  def source(self, split: str, place: str) -> Source:
    """The text of a split, at the path that was given for it."""
    return of_files(place, split, self.line_ends)

  def texts(self):
    texts: dict[str, Text | float] = {
      "valid": float(self.valid_share),
      "test": float(self.test_share),
    }
    for split in SPLITS:
      place = getattr(self, split)
      if place or split == "train":
        lines, files, version = self.source(split, place)
        if self.tokenize and not self.tokenizer:
          version += _TOKENS
        texts[split] = Text(self._words_of(lines), files, version)
    return texts

  def split(self, line: str) -> list[str]:
    """The words of a line, without `<eos>`.

    >>> from largevocab.data import Europarl
    >>> Europarl(tokenize=True, lower_case=True).split("It's 1,000 (U.S.).")
    ["it's", '1,000', '(', 'u.s', '.', ')', '.']
    """
    if self.lower_case:
      line = line.lower()
    if not self.tokenize:
      return line.split()
    return _tokens().findall(unicodedata.normalize("NFC", line))

  def _words_of(self, lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line, with an `<eos>` if `line_ends` is set."""
    end = [EOS] if self.line_ends else []
    return ([*self.words(line), *end] for line in lines)


@settings(kw_only=True)
class TextFiles(PlainText):
  """Any text files, with or without separate files for the splits.

  With `line_ends=False`, a file is read in pieces, regardless of the length of lines.
  """


@settings(kw_only=True)
class Text8(PlainText):
  """text8, or text files of the same form: one stream of words without line ends.

  The text is split 90/5/5 by token unless valid and test are given. As is usual, the
  vocabulary has the words with at least 5 occurrences in the training text. It also has
  `<eos>`, with count 0.
  """

  min_count: CountOrNone = 5
  line_ends: bool = False


@settings(kw_only=True)
class Europarl(PlainText):
  """Europarl in any language: text files, read without mark-up and empty lines.

  By default, the text is lower-cased and punctuation is split from words. The text is
  split 98/1/1 by line unless valid and test are given.
  """

  valid_share: ProperShare = 0.01
  test_share: ProperShare = 0.01
  lower_case: bool = True
  tokenize: bool = True

  def source(self, split: str, place: str) -> Source:
    source = of_files(place, split)
    return source._replace(lines=_speech(source.lines))


def _speech(lines: Iterable[str]) -> Iterator[str]:
  """The lines of speech."""
  for line in lines:
    speech = line.strip()
    if speech and not speech.startswith("<"):
      yield speech
