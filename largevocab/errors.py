"""Mistakes that a user can mend."""

import errno

_OF_THE_SYSTEM = {
  **dict.fromkeys(
    (errno.EMFILE, errno.ENFILE),
    "too many files are open: raise `ulimit -n`, or run fewer programs at once",
  ),
  **dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions or its owner"
  ),
}


class UserError(ValueError):
  """Bad input. The message is one line that names the key, file, line or shape and the
  remedy; the command line prints it alone, without a traceback."""


def remedy(code: int | None, otherwise: str) -> str:
  """What to do about an error of the operating system, by its number.

  >>> remedy(errno.EROFS, "make room"), remedy(errno.ENOSPC, "make room")
  ('change its permissions or its owner', 'make room')
  """
  return _OF_THE_SYSTEM.get(code, otherwise) if code is not None else otherwise
