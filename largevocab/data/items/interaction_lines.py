"""Reads interactions of users with items from lines of text.

Here I is the number of interactions.
"""

import contextlib
import csv
import logging
import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from largevocab.data.lines import SUFFIXES, read_lines
from largevocab.errors import UserError

LINES = ("interactions", "histories")
_LOG = logging.getLogger("largevocab")
# Names of columns, in lower case and without the types in RecBole's atomic files.
_USER = ("user_id", "user", "userid", "uid")
_ITEM = ("item_id", "item", "itemid", "iid", "movie_id", "movieid")
_TIME = ("timestamp", "time", "ts", "unixreviewtime")
_DIGIT = re.compile(r"\d")


class ByUser(NamedTuple):
  """Interactions grouped by user, and in order of time for each user.

  Attributes:
    users, items: names, in the order of their first lines.
    user_I: i64[I], indices of `users`, ascending.
    item_I: i64[I], indices of `items`.
  """

  users: Sequence[str]
  items: Sequence[str]
  user_I: np.ndarray
  item_I: np.ndarray


class _Columns(NamedTuple):
  """The positions of the columns in a line; a `separator` of None means blanks."""

  user: int
  item: int
  time: int | None
  width: int
  separator: str | None


@dataclass
class _Found:
  """Interactions in the order of the lines.

  Attributes:
    first: the first file, and whether it has a header.
  """

  users: dict[str, int] = field(default_factory=dict)
  items: dict[str, int] = field(default_factory=dict)
  user_I: array = field(default_factory=lambda: array("q"))
  item_I: array = field(default_factory=lambda: array("q"))
  time_I: array = field(default_factory=lambda: array("d"))
  first: tuple[Path, bool] | None = None

  def add(self, user: str, item: str, time: float, where: str) -> None:
    self.user_I.append(_number(self.users, user, where))
    self.item_I.append(_number(self.items, item, where))
    self.time_I.append(time)

  def check_header(self, path: Path, where: str, is_header: bool) -> None:
    """Refuses files if only some have a header, since columns may be in any order."""
    self.first = self.first or (path, is_header)
    other, other_has = self.first
    if is_header != other_has:
      has, other_has = ("a", "none") if is_header else ("no", "one")
      raise UserError(
        f"{where}: {has} header, but {other} has {other_has}; give all files a header, "
        "or none of them"
      )

  def check_first(self, line: str, where: str, after: int) -> None:
    """Refuses a first line that must consist of names of columns.

    Such a line has no digit, although all users or all items of the other lines have
    one. The interactions of the other lines begin at the number `after`.
    """
    if _DIGIT.search(line):
      return
    for index, number_I in ((self.users, self.user_I), (self.items, self.item_I)):
      names, others = list(index), set(number_I[after:])
      if others and all(_DIGIT.search(names[number]) for number in others):
        raise UserError(
          f"{where}: {' '.join(line.split())[:80]!r} seem to be names of columns; "
          "remove the line, or call them user_id, item_id and optionally timestamp"
        )


def read_interactions(files: Sequence[Path], lines: str) -> ByUser:
  """Reads the interactions in files, plain, .gz or .xz.

  Args:
    files: the files, which are read one after another.
    lines: 'interactions': a line is `user item time` or `user item`, separated by
      blanks, tabs or commas. Or a header names the columns `user_id`, `item_id`,
      optionally `timestamp`, and any others; then all files must have it. Between
      commas, words may be in double quotes. RecBole's atomic files, `*.inter`, have
      such a header, with types, and tabs. Without times, and between equal times, the
      order is that of the lines. 'histories': a line is `user item item ...`, in order
      of time.

  Raises:
    UserError: a line does not have this form; the message has the file and the number
      of the line.

  Cost: O(I log I); about 24 bytes per interaction, and the names.
  """
  found = _Found()
  read = _read_interactions if lines == "interactions" else _read_histories
  for path in files:
    read(path, found)
  user_I, item_I, time_I = map(np.asarray, (found.user_I, found.item_I, found.time_I))
  order_I = np.lexsort((time_I, user_I))
  return ByUser(list(found.users), list(found.items), user_I[order_I], item_I[order_I])


def core(found: ByUser, least_of_user: int, least_of_item: int) -> ByUser:
  """Drops users and items with too few interactions, repeatedly, until none is left.

  If both limits are k, the result is the k-core.

  >>> user_I, item_I = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 2, 2])
  >>> core(ByUser("ab", "xyz", user_I, item_I), 2, 2)
  ByUser(users=['b'], items=['z'], user_I=array([0, 0]), item_I=array([0, 0]))
  """
  user_I, item_I = found.user_I, found.item_I
  while True:
    of_user, of_item = np.bincount(user_I), np.bincount(item_I)
    kept_I = (of_user[user_I] >= least_of_user) & (of_item[item_I] >= least_of_item)
    if kept_I.all():
      break
    user_I, item_I = user_I[kept_I], item_I[kept_I]
  users, user_I = np.unique(user_I, return_inverse=True)
  items, item_I = np.unique(item_I, return_inverse=True)
  return ByUser(
    [found.users[i] for i in users], [found.items[i] for i in items], user_I, item_I
  )


def _read_interactions(path: Path, found: _Found) -> None:
  columns, header, first, begin = None, None, None, len(found.user_I)
  for number, line in enumerate(read_lines(path), 1):
    if not line.strip():
      continue
    where = f"{path}, line {number}"
    if columns is None:
      columns, is_header = _columns(path, line, where)
      found.check_header(path, where, is_header)
      if is_header:
        header = _words(line, columns.separator)
        continue
      first = line, where
    words = _words(line, columns.separator)
    if words == header:
      raise UserError(f"{where}: the header is repeated; remove this line")
    if len(words) != columns.width:
      raise UserError(
        f"{where}: {len(words)} columns, but the first line has {columns.width}; give "
        "all lines the same number of columns"
      )
    time = 0.0 if columns.time is None else _time(words[columns.time], where)
    found.add(words[columns.user], words[columns.item], time, where)
  if first:
    found.check_first(*first, begin + 1)


def _read_histories(path: Path, found: _Found) -> None:
  first = None
  for number, line in enumerate(read_lines(path), 1):
    where = f"{path}, line {number}"
    user, *items = words = _words(line, _separator(line)) or [""]
    if user and not items:
      raise UserError(f"{where}: a user without items; give the items in the same line")
    if not first and None not in _places(words)[:2]:
      raise UserError(
        f"{where}: a header of interactions; set data.lines='interactions'"
      )
    for item in items:
      found.add(user, item, 0.0, where)
    if user and not first:
      first = line, where, len(found.user_I)
  if first:
    found.check_first(*first)


def _columns(path: Path, line: str, where: str) -> tuple[_Columns, bool]:
  """The columns, according to a file's first line, and whether it is a header."""
  separator = _separator(line)
  words = _words(line, separator)
  user, item, time = _places(words)
  if user is not None and item is not None:
    if time is None and len(words) > 2:
      _LOG.warning(
        "%s: no column is called timestamp or time among %s: the order is that of the "
        "lines",
        *(where, ", ".join(words)),
      )
    return _Columns(user, item, time, len(words), separator), True
  is_short = len(words) in (2, 3)
  if (user is not None or item is not None) and (time is not None or not is_short):
    missing = _ITEM[0] if item is None else _USER[0]
    raise UserError(
      f"{where}: a header without {missing}: {', '.join(words):.200}; give the column "
      "of this kind that name"
    )
  is_atomic = any(path.name.endswith(f".inter{suffix}") for suffix in SUFFIXES)
  if is_atomic or not is_short:
    remedy = (
      "" if is_atomic else "; if each line is a history, set data.lines='histories'"
    )
    raise UserError(
      f"{where}: {len(words)} columns; give user, item and optionally time, or a "
      f"header with user_id and item_id{remedy}"
    )
  return _Columns(0, 1, 2 if len(words) == 3 else None, len(words), separator), False


def _places(words: Sequence[str]) -> list[int | None]:
  """The positions of user, item and time in a header; None for a missing one.

  >>> _places(["item_id:token", "userId", "rating"])
  [1, 0, None]
  """
  names = [word.partition(":")[0].lower() for word in words]
  return [
    next((names.index(name) for name in known if name in names), None)
    for known in (_USER, _ITEM, _TIME)
  ]


def _separator(line: str) -> str | None:
  """The separator of a line: a tab, a comma, or None for blanks.

  >>> [_separator(line) for line in ("a\\tb c", "a,b", "a b")]
  ['\\t', ',', None]
  """
  return next((mark for mark in "\t," if mark in line.strip()), None)


def _words(line: str, separator: str | None) -> list[str]:
  """The words of a line; between commas, words may be quoted.

  >>> _words('"u 1", "i,1",3\\n', ",")
  ['u 1', 'i,1', '3']
  """
  if separator is None:
    return line.split()
  if separator == "," and '"' in line:
    with contextlib.suppress(csv.Error):  # a word of 128 KiB
      (words,) = csv.reader([line.strip("\r\n")], skipinitialspace=True)
      return [word.strip() for word in words]
  return [word.strip() for word in line.strip("\r\n").split(separator)]


def _number(index: dict[str, int], name: str, where: str) -> int:
  """The number of a user or an item; a new name gets a new number."""
  if name not in index:
    if name.split() != [name]:  # blanks separate names when they are stored
      raise UserError(f"{where}: {name[:40]!r} is not an id; give an id without blanks")
    index[name] = len(index)
  return index[name]


def _time(word: str, where: str) -> float:
  try:
    time = float(word)
  except ValueError:
    time = math.nan
  if not math.isfinite(time):
    raise UserError(
      f"{where}: {word[:40]!r} is not a time; give a number, such as seconds"
    )
  return time
