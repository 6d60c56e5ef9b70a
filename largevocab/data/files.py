"""Files that a setting names, plain or compressed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path

from largevocab.data.lines import SUFFIXES
from largevocab.errors import UserError
from largevocab.paths import user_path


def find_file(directory: str, name: str, setting: str) -> Path:
  """The file `name`, plain, .gz or .xz, in a directory that `setting` names.

  Raises:
    UserError: there is none.
  """
  if not directory:
    raise UserError(f"{setting} is empty: set it to the directory that holds {name}")
  for suffix in SUFFIXES:
    path = user_path(directory, setting) / (name + suffix)
    if path.is_file():
      return path
  raise UserError(f"{setting}: no {name} (or .gz, .xz) in {directory}: put it there")


def find_files(pattern: str, setting: str) -> list[Path]:
  """The files that a path or glob pattern names, sorted.

  Raises:
    UserError: there is none.
  """
  if not pattern:
    raise UserError(f"{setting} is empty: set it to a file or a glob pattern")
  whole = str(user_path(pattern, setting))
  found = [whole] if Path(whole).is_file() else sorted(glob(whole, recursive=True))
  files = [Path(name) for name in found if Path(name).is_file()]
  if not files and Path(whole).is_dir():
    raise UserError(
      f"{setting}: {pattern} is a directory: name its files, as {pattern}/*"
    )
  if not files and Path(whole).exists():
    raise UserError(f"{setting}: {pattern} is no file on disk: copy it to one")
  if not files:
    raise UserError(f"{setting}: no file {pattern}: give a file or a glob pattern")
  return files


@contextmanager
def naming(files: Sequence[Path]) -> Iterator[None]:
  """Adds to a message about what is in some files which they are, unless it says so,
  or begins with the setting that is at fault.

  >>> with naming([Path("a.txt")]):
  ...   raise UserError("there are 0 items: give at least 2")
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: there are 0 items: give at least 2 (read from a.txt)
  """
  try:
    yield
  except UserError as error:
    is_named = any(str(path) in str(error) for path in files)
    if not files or is_named or str(error).startswith("data."):
      raise
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    shown = ", ".join(map(str, files[:3]))
    raise UserError(f"{error} (read from {shown}{more})") from error
