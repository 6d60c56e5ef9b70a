"""A directory of things made once: found by content, made whole or not at all, and
checked when it is used."""

import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from largevocab.atomic import write_text
from largevocab.errors import UserError, remedy
from largevocab.paths import user_path

_LOG = logging.getLogger("largevocab")
_DEFAULT = "~/.cache/largevocab"
_CHECKSUMS = "checksums.json"  # in each directory: size and digest of each file
_MEMO = "digests.json"  # beside them: digests of files read before
_HASH = "blake2b"

Memo = dict[str, Any]


def cache_root(cache_dir: str = "") -> Path:
  """`cache_dir`, or else $LARGEVOCAB_CACHE, or else ~/.cache/largevocab.

  A user without a home directory has one among the temporary files; a line says so.

  Raises:
    UserError: there is no such home directory as a path begins with.
  """
  if cache_dir:
    return user_path(cache_dir, "data.cache_dir")
  if chosen := os.environ.get("LARGEVOCAB_CACHE"):
    return user_path(chosen, "LARGEVOCAB_CACHE")
  default = Path(os.path.expanduser(_DEFAULT))
  return default if default.is_absolute() else _temporary_root()


def cached(root: Path, name: str, build: Callable[[Path], None]) -> Path:
  """The directory `name` under `root`; `build` fills it if it is not there.

  It is filled under another name, brought to disk and renamed when done. So a build
  that was killed, or ran out of disk, leaves nothing that is taken for good; its
  remains are cleared by the next one. Of processes that ask at once, one builds and the
  others wait. A directory whose files are not those that were built is made anew, and a
  line is logged that says so.

  Cost: a file is read to check it when its size, time of modification or inode is not
  as at the last time.

  Raises:
    UserError: the directory cannot be written.
  """
  final = root / name
  try:
    if final.is_dir() and not _fault(final, root):
      return final
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root / f"{name}.lock") as is_alone:
      fault = _fault(final, root) if final.is_dir() else ""
      if final.is_dir() and not fault:
        return final
      if is_alone:
        for remains in root.glob(f"{name}.partial*"):
          shutil.rmtree(remains, ignore_errors=True)
      if fault:
        _LOG.warning("%s is damaged (%s); it is made anew", final, fault)
      partial = root / f"{name}.partial-{secrets.token_hex(8)}"
      partial.mkdir()
      try:
        build(partial)
        built = {
          str((final / file).resolve()): [_identity(partial / file), digest]
          for file, digest in _seal(partial).items()
        }
        _replace(partial, final, is_damaged=bool(fault))
        with _memo(root) as memo:
          memo.update(built)
      finally:
        shutil.rmtree(partial, ignore_errors=True)
  except OSError as error:
    raise UserError(
      f"cannot write to the cache directory {root} ({error.strerror or error}): "
      f"{remedy(error.errno, 'make room')}, or set cache_dir or LARGEVOCAB_CACHE to "
      "another directory"
    ) from error
  return final


def content_key(root: Path, files: Iterable[Path], options: object) -> str:
  """A short hash of the content of files, in order, and of options (JSON values).

  The digest of a file is kept under `root` and found again by path, size, time of
  modification and inode, so that a large file is read once.

  Raises:
    UserError: a file is missing or cannot be read.
  """
  with _memo(root) as memo:
    digests = [_source_digest(path, memo) for path in files]
  text = json.dumps([options, digests], sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _temporary_root() -> Path:
  root = Path(tempfile.gettempdir(), f"largevocab-{os.geteuid()}")
  try:
    root.mkdir(mode=0o700, exist_ok=True)
    is_own = root.lstat().st_uid == os.geteuid() and not root.is_symlink()
  except OSError:
    is_own = False
  if not is_own:
    raise UserError(
      f"this user has no home directory, and {root} cannot be used: set "
      "LARGEVOCAB_CACHE to a directory for encoded data"
    )
  _LOG.warning(
    "this user has no home directory: encoded data is kept in %s, or where "
    "LARGEVOCAB_CACHE says",
    root,
  )
  return root


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
  """Whether no other process builds meanwhile: not every file system has locks."""
  flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
  with open(os.open(path, flags, 0o666), "wb") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX)
      is_alone = True
    except OSError:
      is_alone = False
    yield is_alone


def _seal(directory: Path) -> dict[str, str]:
  """Notes what the files are, and brings them to disk; returns the digest of each."""
  digests, sizes = {}, {}
  for path in sorted(path for path in directory.rglob("*") if path.is_file()):
    name = str(path.relative_to(directory))
    with path.open("rb") as file:
      digests[name] = hashlib.file_digest(file, _HASH).hexdigest()[:32]
      sizes[name] = path.stat().st_size
      os.fsync(file.fileno())
  noted = {name: [sizes[name], digest] for name, digest in digests.items()}
  write_text(directory / _CHECKSUMS, json.dumps(noted, indent=1) + "\n")
  return digests


def _replace(partial: Path, final: Path, is_damaged: bool) -> None:
  """Puts what was built in its place, where nothing is but what is damaged."""
  old = partial.with_name(f"{partial.name}-old")
  if is_damaged and final.is_dir():
    final.rename(old)
  try:
    partial.rename(final)
  except OSError:
    if not final.is_dir():  # else another process, which no lock kept out, was first
      raise
  shutil.rmtree(old, ignore_errors=True)


def _fault(directory: Path, root: Path) -> str:
  """What is not as it was built; empty: nothing."""
  try:
    checksums = json.loads((directory / _CHECKSUMS).read_text("utf-8"))
    expected = {str(name): (size, digest) for name, (size, digest) in checksums.items()}
  except FileNotFoundError:
    return f"{_CHECKSUMS} is missing"
  except (IsADirectoryError, ValueError, TypeError, AttributeError, RecursionError):
    return f"{_CHECKSUMS} cannot be read"
  with _memo(root) as memo:
    for name, (size, digest) in expected.items():
      path = directory / name
      if not path.is_file():
        return f"{name} is missing"
      if path.stat().st_size != size:
        return f"{name} has another size"
      if digest != _digest(path, memo) and digest != _digest(path, memo, afresh=True):
        return f"{name} has another content"
  return ""


@contextmanager
def _memo(root: Path) -> Iterator[Memo]:
  """Digests of files by path, with what they were found for; written if they changed.

  One that cannot be written is no fault: a cache that cannot is reported by `cached`.
  """
  path = root / _MEMO
  try:
    memo = json.loads(path.read_text("utf-8"))
  except (OSError, ValueError, RecursionError):
    memo = {}
  if not isinstance(memo, dict):
    memo = {}
  before = dict(memo)
  yield memo
  if memo != before:
    with suppress(OSError):
      root.mkdir(parents=True, exist_ok=True)
      write_text(path, json.dumps(memo))


def _identity(path: Path) -> list[int]:
  stat = path.stat()
  return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _digest(path: Path, memo: Memo, afresh: bool = False) -> str:
  """The digest of a file, which is read unless it was before and has not changed."""
  name, identity = str(path.resolve()), _identity(path)
  match memo.get(name):
    case [known, str(digest)] if known == identity and not afresh:
      return digest
  with path.open("rb") as file:
    digest = hashlib.file_digest(file, _HASH).hexdigest()[:32]
  memo[name] = [identity, digest]
  return digest


def _source_digest(path: Path, memo: Memo) -> str:
  try:
    return _digest(path, memo)
  except OSError as error:
    raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
