"""Writes splits that the Extreme Classification Repository gives as line numbers."""

from pathlib import Path

from largevocab.atomic import replacing
from largevocab.data.lines import read_lines
from largevocab.errors import UserError


def write_split(data: Path, numbers: Path, path: Path) -> None:
  """Writes the documents of one split, under their own header.

  Args:
    data: all documents, below a header `documents features labels`.
    numbers: the numbers of the documents in the split, counted from 1. If there are
      several splits, the first column is used, which is the first split.
    path: the file to write.

  Raises:
    UserError: the header or a number is not valid, or there are no numbers.
    OSError: the file cannot be written.
  """
  header, *documents = [*read_lines(data)] or [""]
  match header.split():
    case [count, *sizes] if len(sizes) == 2 and count == str(len(documents)):
      pass
    case _:
      raise UserError(
        f"{data} has {len(documents)} lines below the header {header.strip()!r}: "
        "delete it, and get the archive again"
      )
  chosen = []
  for line_number, line in enumerate(read_lines(numbers), 1):
    first = line.partition(" ")[0].strip()
    if not first.isdecimal() or not 1 <= int(first) <= len(documents):
      raise UserError(
        f"{numbers}, line {line_number}: {first!r} is not a number from 1 to "
        f"{len(documents)}: delete the file, and get the archive again"
      )
    chosen.append(documents[int(first) - 1].rstrip("\r\n"))
  if not chosen:
    raise UserError(f"{numbers} is empty: delete it, and get the archive again")
  with replacing(path) as file:
    for line in (" ".join([str(len(chosen)), *sizes]), *chosen):
      file.write(f"{line}\n".encode())
