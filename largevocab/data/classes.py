"""Names of the classes, in order of decreasing count."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from largevocab.atomic import replacing
from largevocab.errors import UserError


@dataclass(frozen=True)
class Classes:
  """Words, or other names, by decreasing count: the index of a name is its class id.

  Attributes:
    words: the name of each class, without blanks.
    counts_V: i64[V], occurrences in the training data.
  """

  words: Sequence[str]
  counts_V: np.ndarray

  def __len__(self) -> int:
    return len(self.words)

  def decode(self, ids: Iterable[int]) -> list[str]:
    """Words of ids."""
    return [self.words[id] for id in ids]

  def save(self, path: Path) -> None:
    """Writes lines of `word <tab> count`, the word of class 0 first."""
    with replacing(path) as file:
      for word, count in zip(self.words, self.counts_V.tolist(), strict=True):
        file.write(f"{word}\t{count}\n".encode())

  @classmethod
  def load(cls, path: Path) -> Self:
    """Reads a file written by `save`.

    Raises:
      UserError: the file is not a vocabulary.
    """
    fields = path.read_text(encoding="utf-8").split()
    words = fields[::2]
    try:
      counts_V = np.array(fields[1::2], dtype=np.int64)
    except ValueError:
      counts_V = np.zeros(0)
    if not words or len(counts_V) != len(words) or not cls.is_sound(words):
      raise UserError(f"{path} is not a vocabulary (lines of word, tab, count)")
    return cls(words, counts_V)

  @classmethod
  def is_sound(cls, words: Sequence[str]) -> bool:
    """Whether these words are a valid list of all classes."""
    return len(set(words)) == len(words)
