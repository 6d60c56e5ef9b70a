"""Downloads over HTTP that go on where they stopped."""

import fcntl
import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from tqdm import tqdm

from largevocab.atomic import lock
from largevocab.errors import UserError
from largevocab.tools.fetching.disk import require_room

_CHUNK = 1 << 18
_TIMEOUT = 60.0  # seconds without a byte
_TRIES = 4  # in a row without a new byte
_BUSY = 429  # the status "too many requests"
# What another try may mend. Other errors of the system are of the disk.
_OF_THE_NETWORK = (
  ConnectionError,
  TimeoutError,
  http.client.HTTPException,
  ssl.SSLError,
  urllib.error.URLError,
)


def download(url: str, part: Path, size: int = 0, pause: float = 1.0) -> None:
  """Completes the file `part` with what an address has; redirects are followed.

  What `part` has already is not sent again if the server can send ranges; otherwise the
  file begins anew. A broken connection is opened again until several tries in a row
  bring nothing new. What has arrived stays in `part` for the next call.

  Args:
    url: the address.
    part: the file, which may be there in part.
    size: bytes that the whole file has; 0: as the server says.
    pause: seconds to wait after the first try that brought nothing; then twice, and so
      on.

  Raises:
    UserError: the address has no such file, or one of another size; the connection
      breaks too often; the disk has too little room; another process writes `part`.
    OSError: the file cannot be written.
  """
  with part.open("ab") as file:
    try:
      lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise UserError(
        f"another process is writing {part}: wait until it has ended"
      ) from error
    try:
      _complete(url, file, size, part.parent, pause)
    except BaseException:
      if not _length(file):
        part.unlink()
      raise


def _complete(
  url: str, file: IO[bytes], size: int, directory: Path, pause: float
) -> None:
  """Receives a file in as many tries as it takes; for the arguments see `download`."""
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
          "network, and give the same command again, which goes on from there"
        ) from error
      time.sleep(pause * failures)


def _receive(url: str, file: IO[bytes], size: int, directory: Path) -> None:
  """Appends what is missing; raises one of `_OF_THE_NETWORK` if that was not all."""
  start = _length(file)
  if size and start >= size:
    if start == size:
      return
    start = file.truncate(0)  # of another version of the file
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
        f"{url} has {total:,} bytes, and {size:,} are expected: the address has "
        "another file now; get the data elsewhere"
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
  """Raises a UserError for an answer that another try would bring again."""
  is_answer = isinstance(error, urllib.error.HTTPError)
  if is_answer and error.code < 500 and error.code != _BUSY:
    reason = " ".join(str(error.reason).split())
    raise UserError(
      f"{url}: {error.code} {reason}: the address is not valid any more; get the "
      "file elsewhere and put it into the directory, where it is verified"
    ) from error


def _length(file: IO[bytes]) -> int:
  """Bytes in a file that is open to append."""
  file.flush()
  return file.seek(0, 2)
