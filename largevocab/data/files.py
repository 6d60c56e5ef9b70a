"""Finds files that a setting gives, plain or compressed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape, glob
from pathlib import Path

from largevocab.data.lines import SUFFIXES
from largevocab.errors import UserError, remedy
from largevocab.paths import user_path


def find_file(directory: str, name: str, setting: str) -> Path:
  """The file `name`, plain, .gz or .xz, in the directory given by `setting`.

  Raises:
    UserError: there is no such file.
  """
  if not directory:
    raise UserError(f"{setting} is empty: set it to the directory that holds {name}")
  with _naming_setting(setting, directory):
    for suffix in SUFFIXES:
      path = user_path(directory, setting) / (name + suffix)
      if path.is_file():
        return path
  raise UserError(f"{setting}: no {name} (or .gz, .xz) in {directory}: put it there")


def find_files(pattern: str, setting: str, within: Path | None = None) -> list[Path]:
  """The files that match a path or glob pattern, sorted.

  Args:
    pattern: the path or pattern.
    setting: the setting that gave it.
    within: the directory that `pattern` is relative to; its name is not a pattern.

  Raises:
    UserError: no file matches.
  """
  if not pattern:
    raise UserError(f"{setting} is empty: set it to a file or a glob pattern")
  if within is None:
    place = user_path(pattern, setting)
    whole, shown = str(place), pattern
  else:
    place = within / pattern
    whole, shown = os.path.join(escape(str(within)), pattern), str(place)
  with _naming_setting(setting, shown):
    found = [place] if place.is_file() else sorted(glob(whole, recursive=True))
    files = [Path(name) for name in found if Path(name).is_file()]
  if not files and place.is_dir():
    raise UserError(
      f"{setting}: {shown} is a directory: name its files, as in {shown}/*"
    )
  if not files and place.exists():
    raise UserError(f"{setting}: {shown} is not a regular file: copy it to one")
  if not files:
    raise UserError(f"{setting}: no file {shown}: give a file or a glob pattern")
  return files


@contextmanager
def _naming_setting(setting: str, text: str) -> Iterator[None]:
  """Turns operating-system errors about a path into errors that name the setting."""
  try:
    yield
  except OSError as error:
    what_to_do = remedy(error.errno, "give another path")
    raise UserError(
      f"{setting}: {text:.80} cannot be looked up ({error.strerror}); {what_to_do}"
    ) from error


@contextmanager
def naming(files: Sequence[Path]) -> Iterator[None]:
  """Adds the names of files to errors about their content.

  Messages that have the names already, or start with the setting to fix, are unchanged.

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
