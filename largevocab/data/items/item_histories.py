"""Base of data sets of item histories: encoded once, cached and memory-mapped."""

import abc
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from largevocab.data.cache import cache_root, cached, class_key, content_key
from largevocab.data.files import naming
from largevocab.data.items.next_item import (
  Histories,
  NextItem,
  encode_histories,
  open_next_item,
)
from largevocab.data.synthetic.zipf_items import ZipfItems
from largevocab.errors import UserError
from largevocab.fields import History, Seed, settings

_FORMAT = 1  # version of the encoded files; changing it rebuilds all of them


@settings(kw_only=True)
class ItemHistories(abc.ABC):
  """Base of the data sets of item histories.

  Attributes:
    path: the directory of the files, each plain, .gz or .xz.
    history: K, number of previous items in the input.
    seed: seed of the order of training examples.
    cache_dir: directory of encoded examples; empty: $LARGEVOCAB_CACHE, or else
      ~/.cache/largevocab.
  """

  path: str = ""
  history: History = 3
  seed: Seed = 0
  cache_dir: str = ""

  @abc.abstractmethod
  def files(self) -> Sequence[Path]:
    """The files to read."""

  @abc.abstractmethod
  def options(self) -> Sequence[float]:
    """Anything else that the examples depend on."""

  @abc.abstractmethod
  def read(self, files: Sequence[Path]) -> Histories:
    """Parses the files."""

  def tiny(self) -> ZipfItems:
    return ZipfItems(num_items=1000, history=self.history)

  def load(self) -> NextItem:
    """The examples, encoded by the first call and memory-mapped from the cache."""
    root, files = cache_root(self.cache_dir), self.files()
    name, of_class = type(self).__name__, class_key(type(self))
    key = content_key(root, files, [_FORMAT, of_class, self.history, *self.options()])

    def build(directory: Path) -> None:
      with naming(files):
        encode_histories(directory, self.read(files), self.history)

    return open_next_item(cached(root, f"{name.lower()}-{key}", build), self.seed)


def item_ids(words: Iterable[str], path: Path, number: int) -> array:
  """Converts the words of a line to integers, i64.

  Raises:
    UserError: a word is not an integer; the message has the file and the line's number.

  >>> item_ids(["12", "x7"], Path("sessions.txt"), 5)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: sessions.txt, line 5: 'x7' is not an item id; ids are \
whole numbers, separated by blanks
  """
  ids = array("q")
  for word in words:
    if not (word.isascii() and word.isdigit() and len(word) < 19):
      raise UserError(
        f"{path}, line {number}: {word[:40]!r} is not an item id; ids are whole "
        "numbers, separated by blanks"
      )
    ids.append(int(word))
  return ids
