"""Handles file paths that a user gives."""

import os
import re
import tempfile
from pathlib import Path

from largevocab.errors import UserError

_PLAIN = re.compile(r"[\w/., =@+~-]*", re.ASCII)


def user_path(text: str, setting: str) -> Path:
  """Expands `~` and `~user` in a path from a setting.

  Args:
    text: the path; './~' names a file or directory called '~'.
    setting: name of the setting, for error messages.

  Raises:
    UserError: the home directory is unknown, or the path has a NUL byte.

  >>> user_path("~nosuchuser/text", "data.train")
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: data.train is '~nosuchuser/text', but '~nosuchuser' has \
no home directory: write out the whole path
  """
  if "\0" in text:
    raise UserError(f"{setting} is {text!r}: remove the NUL byte")
  expanded = os.path.expanduser(text)
  if text.startswith("~") and expanded.startswith("~"):
    user = text.partition("/")[0]
    raise UserError(
      f"{setting} is {text!r}, but {user!r} has no home directory: write out the whole "
      "path"
    )
  return Path(expanded)


class PlainName:
  """A path to a directory without characters that libraries treat as glob patterns.

  If the directory's own path has such characters (`*`, `?`, brackets, backslashes),
  `path` is a symbolic link in a temporary directory, which is removed together with
  this object.

  Attributes:
    path: the directory's own path, or the link.

  Raises:
    UserError: the path of the temporary directory has such characters, too.

  >>> PlainName("/a/b").path
  '/a/b'
  >>> "[" in PlainName("/a[b]").path
  False
  """

  def __init__(self, directory: str):
    self.path = directory
    if _PLAIN.fullmatch(directory):
      return
    self._links = tempfile.TemporaryDirectory(prefix="largevocab-")
    self.path = os.path.join(self._links.name, "link")
    if not _PLAIN.fullmatch(self.path):
      raise UserError(
        f"{directory} and the directory for temporary files, {self._links.name}, have "
        "special characters, such as brackets: choose another --workdir or set TMPDIR"
      )
    os.symlink(directory, self.path)
