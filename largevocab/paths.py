"""Paths as a user gives them."""

import os
from pathlib import Path

from largevocab.errors import UserError


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
