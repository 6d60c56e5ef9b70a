"""Downloads files over HTTP, and resumes interrupted downloads."""

import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from tqdm import tqdm

from largevocab.atomic import try_lock
from largevocab.errors import UserError
from largevocab.tools.fetching.disk import require_room

_CHUNK = 1 << 18
_TIMEOUT = 60.0  # seconds without a byte
_TRIES = 4  # number of tries in a row without a new byte
_BUSY = 429  # the status "too many requests"
# Errors that another try may fix. Other system errors come from the disk.
_OF_THE_NETWORK = (
  ConnectionError,
  TimeoutError,
  http.client.HTTPException,
  ssl.SSLError,
  urllib.error.URLError,
)


def download(url: str, part: Path, size: int = 0, pause: float = 1.0) -> None:
  """Completes the file `part` from an address; redirects are followed.

  If the server can send ranges, it sends only what `part` does not have yet. Otherwise
  the download starts again. A broken connection is reopened until several tries in a
  row bring nothing new. Everything received stays in `part` for the next call.

  Args:
    url: the address.
    part: the file, which may exist in part.
    size: size of the whole file in bytes; 0: as the server says.
    pause: seconds to wait after the first try that brought nothing; the wait becomes
      longer by as many after each further one.

  Raises:
    UserError: the address has no such file, or a file of another size; the connection
      breaks too often; the disk has too little room; another process is writing `part`.
    OSError: the file cannot be written.
  """
  with part.open("ab") as file:
    if not try_lock(file):
      raise UserError(f"another process is writing {part}: wait until it ends")
    try:
      _complete(url, file, size, part.parent, pause)
    except BaseException:
      if not _length(file):
        part.unlink()
      raise


def _complete(
  url: str, file: IO[bytes], size: int, directory: Path, pause: float
) -> None:
  """Receives a file in as many tries as needed; see `download` for the arguments."""
  most, failures = _length(file), 0
  while True:
    try:
      return _receive(url, file, size, directory)
    except _OF_THE_NETWORK as error:
      _raise_if_final(url, error)
      length = _length(file)
      failures = 0 if length > most else failures + 1
      most = max(most, length)
      if failures == _TRIES:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise UserError(
          f"{url}: the connection failed after {length:,} bytes ({reason}): check the "
          "network, and run the same command again, which resumes from there"
        ) from error
      time.sleep(pause * failures)


def _receive(url: str, file: IO[bytes], size: int, directory: Path) -> None:
  """Appends what is missing; raises one of `_OF_THE_NETWORK` if more is missing."""
  start = _length(file)
  if size and start >= size:
    if start == size:
      return
    start = file.truncate(0)  # it belongs to another version of the file
  if size:
    require_room(directory, size - start)
  headers = {"User-Agent": "largevocab", "Accept-Encoding": "identity"}
  if start:
    headers["Range"] = f"bytes={start}-"
  try:
    answer = urllib.request.urlopen(
      urllib.request.Request(url, headers=headers), timeout=_TIMEOUT
    )
  except urllib.error.HTTPError as error:
    if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
      raise
    whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
    if whole and int(whole[1]) == start:
      return
    file.truncate(0)
    raise ConnectionError("the file has become shorter") from error
  with answer:
    if start and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
      start = file.truncate(0)
    part = answer.headers.get("Content-Range", "")
    if start and not part.startswith(f"bytes {start}-"):
      file.truncate(0)
      raise ConnectionError("another range than the one asked for")
    sent = answer.headers.get("Content-Length", "")
    total = start + int(sent) if sent.isdecimal() else 0
    if size and total and total != size:
      file.truncate(0)
      raise UserError(
        f"{url} has {total:,} bytes, but {size:,} are expected: the address now "
        "has another file; get the data elsewhere"
      )
    require_room(directory, total - start)
    with tqdm(
      **{"initial": start, "total": total or None, "desc": url.rsplit("/", 1)[-1]},
      **{"unit": "B", "unit_scale": True, "disable": None},
    ) as progress:
      while chunk := answer.read(_CHUNK):
        file.write(chunk)
        progress.update(len(chunk))
    file.flush()
  whole = total or size
  if whole and _length(file) != whole:  # `read` ends without an error
    raise ConnectionError("it was closed early")


def _raise_if_final(url: str, error: Exception) -> None:
  """Raises a UserError for an answer that another try would not change."""
  is_answer = isinstance(error, urllib.error.HTTPError)
  if is_answer and error.code < 500 and error.code != _BUSY:
    reason = " ".join(str(error.reason).split())
    raise UserError(
      f"{url}: {error.code} {reason}: the address is no longer valid; get the "
      "file elsewhere and put it into the directory, where it is verified"
    ) from error


def _length(file: IO[bytes]) -> int:
  """Number of bytes in a file that is open for appending."""
  file.flush()
  return file.seek(0, 2)
