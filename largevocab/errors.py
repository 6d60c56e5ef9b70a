"""Errors that a user can fix."""

import difflib
import errno
import re
from collections.abc import Iterable

_OF_THE_SYSTEM = {
  **dict.fromkeys(
    (errno.EMFILE, errno.ENFILE),
    "too many files are open: raise `ulimit -n`, or run fewer programs at once",
  ),
  **dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions or its owner"
  ),
  **dict.fromkeys(
    (errno.EEXIST, errno.ENOTDIR),
    "the path, or a part of it, is a file: choose another path",
  ),
  errno.EISDIR: "the path is a directory: move it away",
  errno.ELOOP: "the path is a link, or a loop of links: remove it",
  errno.ENOENT: "the path does not exist: choose another path",
}
_TOO_LARGE = re.compile(
  "out of memory|RESOURCE_EXHAUSTED|array is too big|maximum allowed dimension|"
  "overflow.*(size|extent|dimension|shape)|(size|extent|dimension|shape).*overflow|"
  "int too large|index-sized integer",
  re.IGNORECASE,
)


class UserError(ValueError):
  """Invalid input.

  The message is one line. It names the key, file, line or shape, and the remedy.
  Commands print it without a traceback.
  """


class Diverged(UserError):
  """The loss or its gradient is not finite.

  Attributes:
    step: the first step at which the loss or its gradient is not finite.
  """

  def __init__(self, message: str, step: int):
    super().__init__(message)
    self.step = step


def remedy(code: int | None, otherwise: str) -> str:
  """Advice on an operating-system error, given its `errno`; by default `otherwise`.

  >>> remedy(errno.EROFS, "make room"), remedy(errno.ENOSPC, "make room")
  ('change its permissions or its owner', 'make room')
  """
  return _OF_THE_SYSTEM.get(code, otherwise) if code is not None else otherwise


def is_too_large(error: BaseException) -> bool:
  """Whether an error says that arrays exceed memory, or shapes the range of integers.

  >>> is_too_large(MemoryError()), is_too_large(RuntimeError("Out of memory: 9 bytes"))
  (True, True)
  >>> is_too_large(RuntimeError("integer overflow")), is_too_large(OverflowError("x"))
  (False, False)
  """
  if isinstance(error, UserError):
    return False
  if isinstance(error, MemoryError):
    return True
  is_of_arrays = isinstance(error, RuntimeError | ValueError | OverflowError)
  return is_of_arrays and bool(_TOO_LARGE.search(str(error)))


def message_of(error: BaseException, if_too_large: str = "ask for less") -> str | None:
  """One line about an error that a user can fix; None for a bug of this package.

  >>> message_of(FileNotFoundError(errno.ENOENT, "No such file", "a.txt"))
  'a.txt: No such file; the path does not exist: choose another path'
  >>> message_of(MemoryError(), "lower train.batch_size")
  'out of memory; lower train.batch_size'
  >>> message_of(RuntimeError("INTERNAL: a fault"))
  """
  if isinstance(error, UserError):
    return str(error)
  if isinstance(error, OSError):
    place = f"{error.filename}: " if error.filename else ""
    what_to_do = remedy(error.errno, "")
    return f"{place}{error.strerror or error}{'; ' * bool(what_to_do)}{what_to_do}"
  if is_too_large(error):
    first = str(error).partition("\n")[0][:200]
    return f"out of memory; {if_too_large}" + (f" ({first})" if first else "")
  return None


def listed(names: Iterable[str]) -> str:
  """Sorted names, separated by commas.

  >>> listed({"b", "a"})
  'a, b'
  """
  return ", ".join(sorted(names))


def nearest(name: str, names: Iterable[str]) -> str:
  """A hint to append to an error message about an unknown name.

  >>> nearest("hiden", ["hidden", "layers"])
  "; did you mean 'hidden'?"
  """
  names = list(names)
  found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
  return f"; did you mean {found[0]!r}?" if found else f"; known: {listed(names)}"
