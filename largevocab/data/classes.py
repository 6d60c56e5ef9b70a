"""The names of the classes, in order of decreasing count."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from largevocab.atomic import replacing
from largevocab.errors import UserError


@dataclass(frozen=True)
class Classes:
  """Words or other names by decreasing count; the index of a name is its class id.

  Attributes:
    words: the name of each class, without blanks.
    counts_V: i64[V], occurrences in the training data.
  """

  words: Sequence[str]
  counts_V: np.ndarray

  def __len__(self) -> int:
    return len(self.words)

  def decode(self, ids: Iterable[int]) -> list[str]:
    """The names of class ids."""
    return [self.words[id] for id in ids]

  def check_words(self) -> None:
    """Checks that each name is one word, as files of classes require.

    Raises:
      UserError: a name is empty or has blanks.
    """
    for word in self.words:
      if word.split() != [word]:
        raise UserError(
          f"{word[:40]!r} cannot be a class: give names that are not empty and have "
          "no blanks"
        )

  def save(self, path: Path) -> None:
    """Writes a line `word <tab> count` for each class, starting with class 0."""
    with replacing(path) as file:
      for word, count in zip(self.words, self.counts_V.tolist(), strict=True):
        file.write(f"{word}\t{count}\n".encode())

  def check_saved(self, path: Path) -> None:
    """Checks that a file written by `save`, if there is one, has these classes.

    Raises:
      UserError: the classes or their counts differ; the message names the first line
        that differs.
    """
    if not path.exists():
      return
    lines = path.read_bytes().splitlines()
    if len(lines) != len(self):
      raise self._others(path, f"{len(lines)} classes", f"{len(self)}")
    for i, (line, word) in enumerate(zip(lines, self.words, strict=True)):
      if line != (now := f"{word}\t{self.counts_V[i]}".encode()):
        was, now = (f"{x.decode(errors='replace')!r:.99}" for x in (line, now))
        raise self._others(path, f"{was} in line {i + 1}", now)

  @staticmethod
  def _others(path: Path, saved: str, now: str) -> UserError:
    return UserError(
      f"{path} has {saved}, but the data now has {now}: these are not the data of the "
      "run; restore the data of the run, or choose another --workdir"
    )

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
