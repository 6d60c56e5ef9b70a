"""A cache of directories, keyed by content, written atomically, and verified on use."""

import fcntl
import hashlib
import inspect
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from largevocab.atomic import lock, write_text
from largevocab.errors import UserError, remedy
from largevocab.paths import user_path

_LOG = logging.getLogger("largevocab")
_DEFAULT = "~/.cache/largevocab"
_CHECKSUMS = "checksums.json"  # in each directory: size and digest of each file
_MEMO = "digests.json"  # next to the directories: digests of files read before
_HASH = "blake2b"

_KNOWN = {"largevocab", *sys.stdlib_module_names}

Memo = dict[str, Any]


def cache_root(cache_dir: str = "") -> Path:
  """`cache_dir`, or else $LARGEVOCAB_CACHE, or else ~/.cache/largevocab.

  Without a home directory, a directory for temporary files is used, which is logged.

  Raises:
    UserError: the home directory that the path starts with does not exist.
  """
  if cache_dir:
    return user_path(cache_dir, "data.cache_dir")
  if chosen := os.environ.get("LARGEVOCAB_CACHE"):
    return user_path(chosen, "LARGEVOCAB_CACHE")
  default = Path(os.path.expanduser(_DEFAULT))
  return default if default.is_absolute() else _temporary_root()


def cached(root: Path, name: str, build: Callable[[Path], None]) -> Path:
  """The directory `name` under `root`, which `build` fills if it does not exist.

  The directory is built under another name, and synced and renamed when it is complete.
  An interrupted build, or one that runs out of disk space, therefore never leaves a
  directory that looks valid. The next build removes its remains. If several processes
  run at the same time, one builds and the others wait. A directory with changed files
  is rebuilt, and this is logged.

  Cost: a file is read for verification if its size, time of modification or inode has
  changed since the last time.

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
        _LOG.warning("%s is damaged (%s) and is made again", final, fault)
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

  Digests of files are kept under `root`, keyed by path, size, time of modification and
  inode, so that a large file is read only once.

  Raises:
    UserError: a file is missing or cannot be read.
  """
  with _memo(root) as memo:
    digests = [_source_digest(path, memo) for path in files]
  text = json.dumps([options, digests], sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def class_key(cls: type) -> str | list[str]:
  """The part of a key that identifies a class of data, as a JSON value.

  For a class of this package, this is the name, since `_FORMAT` stands for its code.
  For other classes, it also has the module, and the source of the class and of its
  bases outside this package. The source is left out if it is not known, as for classes
  in a config file or a notebook.
  """
  if _package(cls) == "largevocab":
    return cls.__name__
  others = [base for base in cls.__mro__ if _package(base) not in _KNOWN]
  return [cls.__name__, cls.__module__, *map(_source, others)]


def _package(cls: type) -> str:
  return cls.__module__.partition(".")[0]


def _source(cls: type) -> str:
  try:
    return inspect.getsource(cls)
  except (OSError, TypeError, SyntaxError):
    return ""


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
    "this user has no home directory: encoded data is kept in %s; set "
    "LARGEVOCAB_CACHE to keep it elsewhere",
    root,
  )
  return root


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
  """Acquires a lock; yields False if the file system has no locks."""
  flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
  with open(os.open(path, flags, 0o666), "wb") as file:
    yield lock(file, fcntl.LOCK_EX)


def _files(directory: Path) -> dict[str, Path]:
  """The files in a directory and below, by name, without the file of checksums.

  Hidden files, which file systems and desktops leave, are left out, too.
  """
  paths = sorted(path for path in directory.rglob("[!.]*") if path.is_file())
  names = {str(path.relative_to(directory)): path for path in paths}
  return {name: path for name, path in names.items() if name != _CHECKSUMS}


def _seal(directory: Path) -> dict[str, str]:
  """Writes checksums of the files and syncs them; returns the digest of each file."""
  digests, sizes = {}, {}
  for name, path in _files(directory).items():
    with path.open("rb") as file:
      digests[name] = hashlib.file_digest(file, _HASH).hexdigest()[:32]
      sizes[name] = path.stat().st_size
      os.fsync(file.fileno())
  noted = {name: [sizes[name], digest] for name, digest in digests.items()}
  write_text(directory / _CHECKSUMS, json.dumps(noted, indent=1) + "\n")
  return digests


def _replace(partial: Path, final: Path, is_damaged: bool) -> None:
  """Moves a finished build to its final name, which at most a damaged one has."""
  old = partial.with_name(f"{partial.name}-old")
  if is_damaged and final.is_dir():
    final.rename(old)
  try:
    partial.rename(final)
  except OSError:
    if not final.is_dir():  # otherwise another process, without a lock, was first
      raise
  shutil.rmtree(old, ignore_errors=True)


def _fault(directory: Path, root: Path) -> str:
  """Describes how the files differ from those that were built; empty if they do not."""
  try:
    checksums = json.loads((directory / _CHECKSUMS).read_text("utf-8"))
    expected = {str(name): (size, digest) for name, (size, digest) in checksums.items()}
  except FileNotFoundError:
    return f"{_CHECKSUMS} is missing"
  except (IsADirectoryError, ValueError, TypeError, AttributeError, RecursionError):
    return f"{_CHECKSUMS} cannot be read"
  there = _files(directory)
  for name in there.keys() - expected:
    return f"{_CHECKSUMS} does not list {name}"
  with _memo(root) as memo:
    for name, (size, digest) in expected.items():
      if name not in there:
        return f"{name} is missing"
      path = there[name]
      if path.stat().st_size != size:
        return f"{name} has a different size"
      if digest != _digest(path, memo) and digest != _digest(path, memo, afresh=True):
        return f"{name} has different content"
  return ""


@contextmanager
def _memo(root: Path) -> Iterator[Memo]:
  """Known digests of files, with the paths and stats they hold for; saved if changed.

  Errors in writing are ignored here, since `cached` reports an unwritable cache.
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
  """The digest of a file, which is read only if it is new or has changed."""
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
    raise UserError(
      f"{path} cannot be read: {error.strerror or error}; "
      f"{remedy(error.errno, 'give another file')}"
    ) from error
