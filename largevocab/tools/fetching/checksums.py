"""Checksums of files, and a file that records them as `sha256sum` does."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from largevocab.atomic import write_text
from largevocab.errors import UserError

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def sha256(path: Path) -> str:
  """The checksum of a file's content, in hexadecimal digits."""
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def read_record(path: Path) -> dict[str, str]:
  """The checksum of each file that a record names; empty if there is no record.

  Raises:
    UserError: the file is not a record.
  """
  try:
    lines = path.read_text(encoding="utf-8").splitlines()
  except FileNotFoundError:
    return {}
  except UnicodeDecodeError:
    lines = [""]
  found = [_LINE.fullmatch(line) for line in lines]
  if not all(found):
    raise UserError(f"{path} has lines other than SHA256  FILE: delete it")
  return {line[2]: line[1] for line in found if line}


def write_record(path: Path, checksums: Mapping[str, str]) -> None:
  """Writes lines of checksum and file, for `read_record` and `sha256sum --check`."""
  write_text(path, "".join(f"{sum}  {name}\n" for name, sum in checksums.items()))
