"""How text without a format of its own becomes words."""

import re
from collections.abc import Iterable, Iterator

from largevocab.data.text_corpus import TextCorpus
from largevocab.data.vocabulary import EOS, UNK
from largevocab.fields import ProperShare, settings

# `<unk>`; words with inner apostrophes, hyphens, points, commas (U.S, 1,000); one mark.
_TOKEN = re.compile(rf"{UNK}|\w+(?:[.,'\u2019-]\w+)*|[^\w\s]")


@settings(kw_only=True)
class PlainText(TextCorpus):
  """Base of corpora of any text: words between spaces, one `<eos>` per line.

  Attributes:
    valid_share, test_share: how much of the training text's end is cut off for
      validation and test, where these are not given.
    lower_case: whether to lower-case it.
    tokenize: whether to part words from punctuation; else only spaces part them.
    line_ends: whether a line, also an empty one, gets an `<eos>`.
  """

  valid_share: ProperShare = 0.05
  test_share: ProperShare = 0.05
  lower_case: bool = False
  tokenize: bool = False
  line_ends: bool = True

  def words(self, line: str) -> list[str]:
    """The words of a line, without `<eos>`.

    >>> from largevocab.data import Europarl
    >>> Europarl(tokenize=True, lower_case=True).words("It's 1,000 (U.S.).")
    ["it's", '1,000', '(', 'u.s', '.', ')', '.']
    """
    if self.lower_case:
      line = line.lower()
    return _TOKEN.findall(line) if self.tokenize else line.split()

  def words_of(self, lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line, with an `<eos>` if lines have ends."""
    end = [EOS] if self.line_ends else []
    return ([*self.words(line), *end] for line in lines)
