"""The lock of a workdir against other training processes."""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from largevocab.atomic import lock
from largevocab.errors import UserError
from largevocab.training.json_files import writing

_LOG = logging.getLogger("largevocab")
_PATIENCE = 1.0  # seconds to wait for a lock, which `is_held` holds only briefly


@contextmanager
def held(workdir: str) -> Iterator[None]:
  """Creates the workdir if needed, and locks it against other training processes.

  The operating system holds the lock, on the file `lock`, and releases it when the
  process ends in any way. The file stays and names the last process that had the lock.

  Raises:
    UserError: another process has the lock.
  """
  path = _lock_path(workdir)
  with writing(workdir):
    os.makedirs(workdir, exist_ok=True)
  with writing(path):
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    file = open(os.open(path, flags, 0o666), "r+b")  # noqa: SIM115
  with file:
    deadline = time.monotonic() + _PATIENCE
    while not _lock(file, fcntl.LOCK_EX):
      if time.monotonic() > deadline:
        raise UserError(
          f"{workdir} is in use: {_holder(file)} is training in it; wait until "
          "it ends, or choose another --workdir"
        )
      time.sleep(0.05)
    with writing(path):
      file.truncate()
      content = {"host": socket.gethostname(), "pid": os.getpid()}
      content["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
      file.write(json.dumps(content).encode())
      file.flush()
      os.fsync(file.fileno())  # other processes of the run read it on their machines
    yield


def is_held(workdir: str | os.PathLike[str]) -> bool:
  """Whether some process is training in a workdir.

  >>> is_held("no/such/workdir")
  False
  """
  try:
    with open(_lock_path(os.fspath(workdir)), "rb") as file:
      return not _lock(file, fcntl.LOCK_SH)
  except OSError:
    return False


def holder(workdir: str) -> str:
  """Names the last process that locked a workdir.

  >>> holder("no/such/workdir")
  'no process'
  """
  try:
    with open(_lock_path(workdir), "rb") as file:
      return _holder(file)
  except OSError:
    return "no process"


def _lock(file: IO[bytes], kind: int) -> bool:
  """Locks an open file until it is closed; False if another process has the lock."""
  try:
    if not lock(file, kind | fcntl.LOCK_NB):
      _LOG.warning("%s cannot be locked: do not start another process there", file.name)
  except BlockingIOError:
    return False
  return True


def _lock_path(workdir: str) -> str:
  return os.path.join(workdir, "lock")


def _holder(file: IO[bytes]) -> str:
  """'process 7 on HOST (since ...)', from the content of a lock file."""
  try:
    content = json.loads(file.read(1000))
    return "process {pid} on {host} (since {since})".format(**content)
  except (OSError, ValueError, KeyError, TypeError, RecursionError):
    return "another process"
