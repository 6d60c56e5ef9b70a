"""Words and their class ids, in order of decreasing count."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from largevocab.data.classes import Classes
from largevocab.errors import UserError

UNK = "<unk>"
EOS = "<eos>"


@dataclass(frozen=True)
class Vocabulary(Classes):
  """Words by decreasing count, ties by word; the index of a word is its class id.

  `<unk>`, which replaces all words that are left out, and `<eos>`, the end of a line,
  are always present, if necessary with count 0.
  """

  @cached_property
  def index(self) -> dict[str, int]:
    """The id of each word."""
    return {word: id for id, word in enumerate(self.words)}

  @cached_property
  def unk(self) -> int:
    return self.words.index(UNK)

  @cached_property
  def eos(self) -> int:
    return self.words.index(EOS)

  def encode(self, words: Iterable[str]) -> list[int]:
    """Ids of words; the id of `<unk>` for a word that is not in the vocabulary."""
    return [self.index.get(word, self.unk) for word in words]

  @classmethod
  def is_sound(cls, words: Sequence[str]) -> bool:
    return super().is_sound(words) and {UNK, EOS} <= set(words)


def build_vocabulary(
  counts: Mapping[str, int], min_count: int = 1, max_vocab: int = 0
) -> Vocabulary:
  """Builds the vocabulary of words with these counts.

  Args:
    counts: occurrences of each word, including `<unk>` and `<eos>` if the text has
      them.
    min_count: words with fewer occurrences are left out (they become `<unk>`).
    max_vocab: limit on the size of the vocabulary, including `<unk>` and `<eos>`; the
      most frequent words are kept. 0: no limit.

  Raises:
    UserError: fewer than two words besides `<unk>` and `<eos>` remain.

  >>> vocabulary = build_vocabulary({"a": 2, "b": 5, "c": 1, "<eos>": 3}, min_count=2)
  >>> vocabulary.words, vocabulary.counts_V
  (['b', '<eos>', 'a', '<unk>'], array([5, 3, 2, 1]))
  """
  kept = [
    (-count, word)
    for word, count in counts.items()
    if count >= max(min_count, 1) and word not in (UNK, EOS)
  ]
  kept.sort()
  if max_vocab:
    del kept[max(max_vocab - 2, 0) :]
  if len(kept) < 2:
    raise UserError(
      f"min_count = {min_count} and max_vocab = {max_vocab} leave {len(kept)} of "
      f"{len(counts)} words, but a vocabulary needs 2: lower min_count, raise max_vocab"
      " (0: no limit) or give more text"
    )
  eos = counts.get(EOS, 0)
  unk = sum(counts.values()) - eos + sum(count for count, _ in kept)
  return in_order({word: -count for count, word in kept} | {EOS: eos, UNK: unk})


def in_order(counts: Mapping[str, int]) -> Vocabulary:
  """The vocabulary of all of these words, including words with count 0.

  >>> in_order({"a": 0, "b": 2}).words
  ['b', '<eos>', '<unk>', 'a']
  """
  counts = {EOS: 0, UNK: 0, **counts}
  words = sorted(counts, key=lambda word: (-counts[word], word))
  return Vocabulary(words, np.array([counts[word] for word in words], np.int64))
