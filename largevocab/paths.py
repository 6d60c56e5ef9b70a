"""Paths as a user gives them."""

import os
import re
import tempfile
from pathlib import Path

from largevocab.errors import UserError

_PLAIN = re.compile(r"[\w/., =@+~-]*", re.ASCII)


def user_path(text: str, setting: str) -> Path:
  """The path that a setting names, with `~` and `~user` as their home directories.

  Args:
    text: the path; './~' is a file or directory of that name.
    setting: what it was given by, for messages.

  Raises:
    UserError: there is no such home directory, or no file can be named so.

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
  """Another name for a directory, without characters that libraries take for patterns.

  Where the directory's own path has such characters (`*`, `?`, brackets, backslashes)
  it is a link in a temporary directory, which goes when this object does.

  Attributes:
    path: the name.

  Raises:
    UserError: the directory for temporary files has such a name, too.

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
