"""Writes files atomically, and locks them."""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

# Errors of file systems without locks, or without a lock for this file. Directories
# cannot be locked over NFS, which gives EBADF.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EBADF}


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
  """Opens a file for writing that replaces `path` when the block ends.

  The content goes to a new temporary file in the same directory, which is synced to
  disk and then renamed. `path` therefore has either the old or the new content, even
  after a crash or with concurrent writers. A symbolic link at `path` is replaced, not
  followed. If the block raises, `path` is unchanged.

  Raises:
    OSError: the file cannot be written.

  >>> import pathlib, tempfile
  >>> path = pathlib.Path(tempfile.mkdtemp(), "a")
  >>> with replacing(path) as file:
  ...   _ = file.write(b"whole")
  >>> path.read_bytes(), len(list(path.parent.iterdir()))
  (b'whole', 1)
  """
  path = os.fspath(path)
  draft = f"{path}.{secrets.token_hex(8)}.tmp"
  flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
  try:
    with open(os.open(draft, flags, 0o666), "wb") as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(draft, path)
  except BaseException:
    with suppress(OSError):
      os.unlink(draft)
    raise
  _sync_directory(os.path.dirname(path) or ".")


def lock(file: int | IO[bytes], how: int) -> bool:
  """Locks an open file until it is closed or the process ends.

  Args:
    file: the file, or its descriptor.
    how: `fcntl.LOCK_EX` or `LOCK_SH`; with `LOCK_NB`, the function does not wait.

  Returns:
    False if the file system has no locks. Another process may then use the file, too.

  Raises:
    BlockingIOError: another process has the lock, and `how` says not to wait.
  """
  try:
    fcntl.flock(file, how)
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    return False
  return True


def try_lock(file: int | IO[bytes], how: int = fcntl.LOCK_EX) -> bool:
  """Locks an open file without waiting; False if another process has the lock.

  See `lock`. If the file system has no locks, other processes cannot be noticed.
  """
  try:
    lock(file, how | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


@contextmanager
def locked(directory: str | os.PathLike[str]) -> Iterator[None]:
  """Holds the lock of a directory, waiting until no one else holds it.

  It protects files in the directory that are read, changed and written back. If the
  file system has no locks, it does not wait.

  Raises:
    OSError: there is no such directory.

  >>> import tempfile
  >>> with locked(tempfile.gettempdir()):
  ...   pass
  """
  held = os.open(directory, os.O_RDONLY)
  try:
    lock(held, fcntl.LOCK_EX)
    yield
  finally:
    os.close(held)


def move(draft: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
  """Renames a complete file on the same file system, so that it survives a crash.

  Raises:
    OSError: the file cannot be renamed.
  """
  with open(draft, "rb") as file:
    os.fsync(file.fileno())
  os.replace(draft, path)
  _sync_directory(os.path.dirname(path) or ".")


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """Writes a string in UTF-8, atomically; see `replacing`."""
  with replacing(path) as file:
    file.write(text.encode("utf-8"))


def _sync_directory(path: str) -> None:
  """Syncs a rename to disk, if the file system supports that."""
  with suppress(OSError):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)
