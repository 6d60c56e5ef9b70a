"""Reads files of word pairs with human similarity scores."""

import math
from pathlib import Path
from typing import NamedTuple

from largevocab.data.lines import read_lines
from largevocab.errors import UserError

# Score columns in the files of SimLex-999 and WordSim-353.
_SCORES = ("SimLex999", "Human (mean)")


class WordPair(NamedTuple):
  """Two words and their human similarity score."""

  first: str
  second: str
  score: float


def read_word_pairs(path: Path) -> list[WordPair]:
  """Reads pairs of words from a file like that of SimLex-999 or of WordSim-353.

  The first line names the columns. The words are in the first two columns. The score is
  in the column 'SimLex999' or 'Human (mean)', or else in the third column. Columns are
  separated by tabs, or by commas if the first line has no tab.

  Raises:
    UserError: the file is invalid; the message has file and line.

  >>> import tempfile
  >>> path = Path(tempfile.mkdtemp(), "pairs.csv")
  >>> _ = path.write_text("Word 1,Word 2,Human (mean)\\ntiger,cat,7.35\\n")
  >>> read_word_pairs(path)
  [WordPair(first='tiger', second='cat', score=7.35)]
  """
  lines = read_lines(path)
  header = next(lines, "")
  mark, marks = ("\t", "tabs") if "\t" in header else (",", "commas")
  columns = [name.strip() for name in header.split(mark)]
  if len(columns) < 3 or _number(columns[2]) is not None:
    raise UserError(
      f"{path}, line 1: the header must name the columns, two of words and one of "
      "scores, separated by tabs or commas"
    )
  column = next((columns.index(name) for name in _SCORES if name in columns), 2)
  pairs = []
  for number, line in enumerate(lines, 2):
    if not line.strip():
      continue
    fields = [field.strip() for field in line.split(mark)]
    score = _number(fields[column]) if len(fields) > column else None
    if score is None or not all(fields[:2]):
      raise UserError(
        f"{path}, line {number}: give two words and, in column {column + 1}, a number, "
        f"separated by {marks}"
      )
    pairs.append(WordPair(fields[0], fields[1], score))
  return pairs


def _number(text: str) -> float | None:
  """The finite number in a text, else None."""
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None
