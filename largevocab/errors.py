"""Mistakes that a user can mend."""

import errno
import os


class UserError(ValueError):
  """Bad input. The message is one line that names the key, file, line or shape and the
  remedy; the command line prints it alone, without a traceback."""


def remedy(error: BaseException, otherwise: str) -> str:
  """What to do about a file that cannot be opened or written.

  >>> remedy(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "make room")
  'raise the limit of open files (ulimit -n)'
  >>> remedy(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "make room")
  'make room'
  """
  # By the words: libraries wrap errors, and keep no more of them.
  if any(os.strerror(n) in str(error) for n in (errno.EMFILE, errno.ENFILE)):
    return "raise the limit of open files (ulimit -n)"
  return otherwise
