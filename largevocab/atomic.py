"""Files that are whole or not there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
  """A file to write to that takes the place of `path` when the block ends.

  Until then it lies beside `path` under a name that no file or link has; it is on disk
  before it is renamed. So `path` is whole, the old or the new one, also after a crash
  and with several writers at once. A link at `path` is replaced, not followed. If the
  block raises, `path` stays as it is.

  Raises:
    OSError: it cannot be written.

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


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """Writes a text, as UTF-8, see `replacing`."""
  with replacing(path) as file:
    file.write(text.encode("utf-8"))


def _sync_directory(path: str) -> None:
  """Brings a renaming to disk, where the file system can; no harm where it cannot."""
  with suppress(OSError):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)
