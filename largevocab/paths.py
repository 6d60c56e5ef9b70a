"""Paths given by a user."""

import os
import re
import tempfile
from pathlib import Path

from largevocab.errors import UserError

_PLAIN = re.compile(r"[\w/., =@+~-]*", re.ASCII)


def user_path(text: str, setting: str) -> Path:
  """Expands `~` and `~user` in the path given by a setting.

  Args:
    text: the path; './~' is a file or directory of that name.
    setting: name of the setting, for error messages.

  Raises:
    UserError: unknown home directory, or a NUL byte in the path.

  >>> user_path("~nosuchuser/text", "data.train")
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: data.train is '~nosuchuser/text', and '~nosuchuser' has \
no home directory: write out the whole path
  """
  if "\0" in text:
    raise UserError(f"{setting} is {text!r}: a path has no NUL byte")
  expanded = os.path.expanduser(text)
  if text.startswith("~") and expanded.startswith("~"):
    user = text.partition("/")[0]
    raise UserError(
      f"{setting} is {text!r}, and {user!r} has no home directory: write out the whole "
      "path"
    )
  return Path(expanded)


class PlainName:
  """A path to a directory without characters that libraries treat as glob patterns.

  If the directory's own path has such characters (`*`, `?`, brackets, backslashes),
  this is a symbolic link in a temporary directory, which is removed with this object.

  Attributes:
    path: the directory's own path, or the link.

  Raises:
    UserError: the path of the temporary directory has such characters as well.

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
        "characters that are no letters: choose another --workdir or set TMPDIR"
      )
    os.symlink(directory, self.path)
