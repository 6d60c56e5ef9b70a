"""Reads lines of text files, plain or compressed, with precise errors."""

import codecs
import gzip
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from largevocab.errors import UserError, remedy

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
SUFFIXES = ("", *_OPENERS, *map(str.upper, _OPENERS))
# UTF-32 comes first, since its mark begins with the mark of UTF-16.
_MARKS = {
  codecs.BOM_UTF32_LE: "UTF-32",
  codecs.BOM_UTF32_BE: "UTF-32",
  codecs.BOM_UTF16_LE: "UTF-16",
  codecs.BOM_UTF16_BE: "UTF-16",
}
_CHUNK = 1 << 20
_LONGEST = 1 << 24  # maximum length of a line, or of a word, in bytes


def marked_encoding(head: bytes) -> str:
  """The encoding other than UTF-8 with whose mark a text begins; '' if there is none.

  >>> marked_encoding("a".encode("utf-16")), marked_encoding(b"a")
  ('UTF-16', '')
  """
  return next((kind for mark, kind in _MARKS.items() if head.startswith(mark)), "")


def read_lines(path: Path) -> Iterator[str]:
  """The lines of a UTF-8 text file, plain, .gz or .xz.

  Raises:
    UserError: the file is missing, truncated, damaged, binary or not UTF-8, its lines
      end in CR alone, or a line is longer than 16 MiB. Lines are limited because
      compressed files may expand to any size.
  """
  with _open(path) as file:
    for number in itertools.count(1):
      line = file.readline(_LONGEST + 1)
      if not line:
        return
      is_only = number == 1 and not line.endswith(b"\n")
      if is_only and b"\r" in line.rstrip(b"\r"):
        raise UserError(
          f"{path} ends its lines in CR alone; convert them to LF, as with "
          "tr '\\r' '\\n'"
        )
      if len(line) > _LONGEST:
        raise UserError(
          f"{path}, line {number}: longer than {_LONGEST >> 20} MiB; give a file with "
          "shorter lines, or set data.line_ends=False for a text without line ends"
        )
      yield _decode(line, path, number)


def read_chunks(path: Path) -> Iterator[str]:
  """A file in pieces that end between words; for text without line ends.

  Raises:
    UserError: as in `read_lines`, but with the limit on words instead of lines.
  """
  with _open(path) as file:
    rest, number = b"", 1
    while chunk := file.read(_CHUNK):
      # A word, or a character, may continue in the next chunk.
      end = 1 + max(chunk.rfind(b" "), chunk.rfind(b"\n"))
      yield _decode(rest + chunk[:end], path, number) if end else ""
      rest = chunk[end:] if end else rest + chunk
      number += chunk.count(b"\n", 0, end)
      if len(rest) > _LONGEST:
        raise UserError(
          f"{path}, line {number}: more than {_LONGEST >> 20} MiB without a blank; "
          "give a text of words"
        )
    yield _decode(rest, path, number)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
  opener = _OPENERS.get(path.suffix.lower(), open)
  try:
    with opener(path, "rb") as file:
      yield file
  except EOFError as error:
    raise UserError(f"{path} is cut short: copy or download it again") from error
  except (lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
    raise UserError(
      f"{path} is not a valid {path.suffix} file ({error}): copy or download it again"
    ) from error
  except OSError as error:
    raise UserError(
      f"{path} cannot be read: {error.strerror or error}; "
      f"{remedy(error.errno, 'give another file')}"
    ) from error


def _decode(line: bytes, path: Path, number: int) -> str:
  if number == 1:
    line = line.removeprefix(codecs.BOM_UTF8)
    if kind := marked_encoding(line):
      raise UserError(
        f"{path} is in {kind}; convert it to UTF-8, as with iconv -f {kind} -t UTF-8"
      )
  try:
    if b"\0" not in line:
      return line.decode()
    fault, place = "a NUL byte", line.index(b"\0")
  except UnicodeDecodeError as error:
    fault, place = f"bytes that are not UTF-8 ({error.reason})", error.start
  number += line.count(b"\n", 0, place)
  raise UserError(f"{path}, line {number}: {fault}; give a text file in UTF-8")
