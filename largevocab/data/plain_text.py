"""How text without a format of its own becomes words."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from largevocab.data.text_corpus import TextCorpus
from largevocab.data.vocabulary import EOS, UNK

# `<unk>`; words with inner apostrophes, hyphens, points, commas (U.S, 1,000); one mark.
_TOKEN = re.compile(rf"{UNK}|\w+(?:[.,'\u2019-]\w+)*|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class PlainText(TextCorpus):
  """Base of corpora of any text: words between spaces, one `<eos>` per line.

  Attributes:
    valid_share, test_share: how much of the training text's end is cut off for
      validation and test, where these are not given.
    lower_case: whether to lower-case it.
    tokenize: whether to part words from punctuation; else only spaces part them.
    line_ends: whether a line, also an empty one, gets an `<eos>`.
  """

  valid_share: float = 0.05
  test_share: float = 0.05
  lower_case: bool = False
  tokenize: bool = False
  line_ends: bool = True

  def words(self, lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line.

    >>> list(PlainText(tokenize=True, lower_case=True).words(["It's 1,000 (U.S.)."]))
    [["it's", '1,000', '(', 'u.s', '.', ')', '.', '<eos>']]
    """
    for line in lines:
      if self.lower_case:
        line = line.lower()
      words = _TOKEN.findall(line) if self.tokenize else line.split()
      if self.line_ends:
        words.append(EOS)
      yield words
