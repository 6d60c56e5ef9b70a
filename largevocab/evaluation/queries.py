"""Parses and batches queries to a trained model."""

import codecs
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from largevocab.data.batches import FeatureBag
from largevocab.data.items.sequences import ItemSequences
from largevocab.data.labels.documents import from_rows
from largevocab.data.labels.multi_label import LabelledDocuments
from largevocab.data.labels.xmlc_format import features_of
from largevocab.errors import UserError
from largevocab.paths import user_path

_CHUNK = 1 << 20
_LONGEST = 1 << 24  # maximum length of a line in bytes


class Line(NamedTuple):
  """A line of a source; `number` counts from 1."""

  number: int
  raw: bytes

  def text(self) -> str:
    """The line as text.

    Raises:
      UserError: the line is not text in UTF-8.

    >>> Line(1, codecs.BOM_UTF8 + b"a b").text()
    'a b'
    """
    raw = self.raw.removeprefix(codecs.BOM_UTF8) if self.number == 1 else self.raw
    if b"\0" in raw:
      raise UserError("a NUL byte; give text in UTF-8")
    try:
      return raw.decode()
    except UnicodeDecodeError as error:
      raise UserError(
        f"bytes that are not UTF-8 ({error.reason}); give text in UTF-8"
      ) from error


class Source(NamedTuple):
  """A source of lines.

  Attributes:
    name: name of the source, for messages.
    blocks: its lines, in order, in blocks that became available together.
  """

  name: str
  blocks: Iterable[Sequence[Line]]


def of_text(text: str) -> Source:
  """A source of a single line, from --text.

  Raises:
    UserError: the text has no words, or is not UTF-8.
  """
  try:
    raw = text.encode()
  except UnicodeEncodeError as error:  # the command line was not valid text
    raise UserError(
      "--text has bytes that are not UTF-8; give text in UTF-8"
    ) from error
  if not text.split():
    raise UserError("--text has no words; give some, or leave it out to read stdin")
  return Source("--text", [[Line(1, raw)]])


def of_file(path: str) -> Source:
  """The lines of an uncompressed file, or of a pipe.

  Raises:
    UserError: the path is empty, or is that of a directory.

  >>> of_file("/")
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: --input=/ is a directory; give a file in it
  """
  if not path:
    raise UserError("--input is empty; give a file, or leave it out to read stdin")
  path = str(user_path(path, "--input"))
  if os.path.isdir(path):
    raise UserError(f"--input={path} is a directory; give a file in it")
  return Source(path, _read(path))


def of_stdin() -> Source:
  """The lines of standard input, each read as soon as it is available.

  Raises:
    UserError: standard input is closed.
  """
  if sys.stdin is None:
    raise UserError("standard input is closed; give --input=FILE")
  return Source("stdin", blocks_of(sys.stdin.buffer, "stdin"))


def _read(path: str) -> Iterator[list[Line]]:
  with open(path, "rb") as file:
    yield from blocks_of(file, path)


def blocks_of(file: BinaryIO, name: str) -> Iterator[list[Line]]:
  """Lines in blocks of those that are available without waiting.

  A program that waits for each answer before its next query therefore gets the answer.

  Raises:
    UserError: a line is too long.

  >>> import io
  >>> [[line.raw for line in block] for block in blocks_of(io.BytesIO(b"a\\n\\nb"), "")]
  [[b'a', b''], [b'b']]
  """
  rest, number = b"", 1
  while chunk := file.read1(_CHUNK):  # pyrefly: ignore
    *whole, rest = (rest + chunk).split(b"\n")
    if len(rest) > _LONGEST:
      raise UserError(
        f"{name}, line {number + len(whole)}: longer than {_LONGEST} bytes; give one "
        "query per line"
      )
    if whole:
      yield [Line(number + i, raw) for i, raw in enumerate(whole)]
    number += len(whole)
  if rest:
    yield [Line(number, rest)]


def power_of_two(number: int) -> int:
  """The smallest power of two >= number, to limit the number of compiled shapes.

  >>> [power_of_two(number) for number in (1, 2, 3, 8)]
  [1, 2, 4, 8]
  """
  return 1 << (number - 1).bit_length()


class Padded(NamedTuple):
  """Inputs of a batch of queries; see `Batch.x` and `Batch.at`."""

  x: np.ndarray | FeatureBag
  at: np.ndarray | None = None


class Queries(Protocol):
  """Parses and batches the queries for one kind of data.

  Attributes:
    hides_seen: whether answers leave out the classes in a query by default.
  """

  @property
  def hides_seen(self) -> bool: ...

  def read(self, text: str) -> Any:
    """Parses a line.

    Raises:
      UserError: the line is not a query of this kind.
    """
    ...

  def width(self, query: Any) -> int:
    """Number of inputs of a query after padding."""
    ...

  def batch(self, queries: Sequence[Any]) -> Padded:
    """The inputs of a batch of queries."""
    ...

  def seen(self, query: Any) -> set[int]:
    """Classes that an answer may leave out."""
    ...

  def answer(self, query: Any, top: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer, made from the best classes, each with 'id', 'name' and 'score'."""
    ...


class _Listing:
  """Answers that list the best classes."""

  hides_seen = False

  def answer(self, query: Any, top: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"top": list(top)}


@dataclass(frozen=True)
class HistoryQueries(_Listing):
  """Histories of items, oldest first, separated by blanks, with the names of the data.

  Attributes:
    index: the class id of each item.
    num_before: K, the number of last items that are used.

  >>> queries = HistoryQueries({"7": 0, "5": 1}, num_before=2)
  >>> queries.batch([queries.read("5"), queries.read("7 7 5")]).x.tolist()
  [[2, 1], [0, 1]]
  """

  index: Mapping[str, int]
  num_before: int

  def read(self, text: str) -> np.ndarray:
    """Class ids of all items, i32[n]."""
    items = text.split()
    if not items:
      raise UserError("no items; give the items that precede the next one")
    return _class_ids(self.index, items)

  def seen(self, query: np.ndarray) -> set[int]:
    return set(query.tolist())

  def width(self, query: np.ndarray) -> int:
    return self.num_before

  def batch(self, queries: Sequence[np.ndarray]) -> Padded:
    """Inputs i32[B, K], padded in front with V, the number of items."""
    x_BK = np.full((len(queries), self.num_before), len(self.index), np.int32)
    for row_K, query in zip(x_BK, queries, strict=True):
      shown = query[-self.num_before :]
      row_K[self.num_before - len(shown) :] = shown
    return Padded(x_BK)


class UserQuery(NamedTuple):
  """A user's name, and class ids of all items that the user has seen, i32[n]."""

  user: str
  items: np.ndarray


@dataclass(frozen=True)
class UserQueries:
  """Names of users of the data, or a name and items, separated by blanks.

  The items are in order of time, the oldest first.

  Attributes:
    index: the class id of each item.
    users: the number of each user of the data.
    data: the items of these users.
    steps: T, the number of last items that are used.
    hides_seen: whether answers leave out a user's items.
  """

  index: Mapping[str, int]
  users: Mapping[str, int]
  data: ItemSequences
  steps: int
  hides_seen: bool

  def read(self, text: str) -> UserQuery:
    """A user, with the items from the line or else from the data."""
    user, *items = text.split() or [""]
    if not user:
      raise UserError("no user; give a user of the data, or a name and items")
    if items:
      return UserQuery(user, _class_ids(self.index, items))
    if user not in self.users:
      raise UserError(
        f"{user[:40]!r} is not a user of the data; add the user's items after the name"
      )
    return UserQuery(user, self.data.history(self.users[user]))

  def seen(self, query: UserQuery) -> set[int]:
    return set(query.items.tolist())

  def width(self, query: UserQuery) -> int:
    return self.steps

  def batch(self, queries: Sequence[UserQuery]) -> Padded:
    """Inputs i32[B, T], padded at the end with V, and the step of the last item."""
    x_BT = np.full((len(queries), self.steps), len(self.index), np.int32)
    shown = [query.items[-self.steps :] for query in queries]
    for row_T, items in zip(x_BT, shown, strict=True):
      row_T[: len(items)] = items
    return Padded(x_BT, np.array([len(items) - 1 for items in shown], np.int32))

  def answer(
    self, query: UserQuery, top: Sequence[Mapping[str, Any]]
  ) -> dict[str, Any]:
    return {
      "user": query.user,
      "items": [entry["name"] for entry in top],
      "scores": [entry["score"] for entry in top],
    }


def _class_ids(index: Mapping[str, int], items: Sequence[str]) -> np.ndarray:
  for item in items:
    if item not in index:
      raise UserError(
        f"{item[:40]!r} is not an item of the training data; leave it out (the run's "
        "vocabulary.txt lists all items)"
      )
  return np.array([index[item] for item in items], np.int32)


@dataclass(frozen=True)
class DocumentQueries(_Listing):
  """Documents in the format of the Extreme Classification Repository.

  Attributes:
    num_features: D.
    num_classes: V.
    unit_norm: see `LabelledDocuments`.

  >>> queries = DocumentQueries(num_features=5, num_classes=2, unit_norm=False)
  >>> x, _ = queries.batch([queries.read("0:1.5 4:2"), queries.read("3:1")])
  >>> x.ids_BF.tolist()[1], x.values_BF.tolist()[0]
  ([3, 5], [1.5, 2.0])
  """

  num_features: int
  num_classes: int
  unit_norm: bool

  def read(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and values of the features."""
    return features_of(text, self.num_features)

  def seen(self, query: tuple[np.ndarray, np.ndarray]) -> set[int]:
    return set()

  def width(self, query: tuple[np.ndarray, np.ndarray]) -> int:
    """Number of features after padding; it takes few values, to limit compilations."""
    return power_of_two(len(query[0]))

  def batch(self, queries: Sequence[tuple[np.ndarray, np.ndarray]]) -> Padded:
    """Bags of features, padded to the width of the longest."""
    ids, values = zip(*queries, strict=True)
    documents = from_rows(ids, values, [[]] * len(queries))
    examples = LabelledDocuments(
      documents, self.num_features, self.num_classes, self.unit_norm
    )
    at_B, width = np.arange(len(queries)), max(map(self.width, queries))
    return Padded(examples.batch(at_B, np.ones(len(at_B)), width, 1).x)
