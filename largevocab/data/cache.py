"""A directory of things made once: found by content, made whole or not at all."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from largevocab.errors import UserError

_DEFAULT = "~/.cache/largevocab"


def cache_root(cache_dir: str = "") -> Path:
  """`cache_dir`, or else $LARGEVOCAB_CACHE, or else ~/.cache/largevocab."""
  chosen = cache_dir or os.environ.get("LARGEVOCAB_CACHE") or _DEFAULT
  return Path(chosen).expanduser()


def cached(root: Path, name: str, build: Callable[[Path], None]) -> Path:
  """The directory `name` under `root`; `build` fills it if it is not there.

  It is filled under another name and renamed when done. So a build that was killed, or
  ran out of disk, leaves nothing that is taken for good; its remains are cleared by the
  next one. Of processes that ask at once, one builds and the others wait.

  Raises:
    UserError: the directory cannot be written.
  """
  final, partial = root / name, root / f"{name}.partial"
  if final.is_dir():
    return final
  try:
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{name}.lock").open("w") as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      if final.is_dir():
        return final
      shutil.rmtree(partial, ignore_errors=True)
      partial.mkdir()
      try:
        build(partial)
        partial.replace(final)
      finally:
        shutil.rmtree(partial, ignore_errors=True)
  except OSError as error:
    raise UserError(
      f"cannot write to the cache directory {root} ({error.strerror or error}): make "
      "room, or set cache_dir or LARGEVOCAB_CACHE to another directory"
    ) from error
  return final


def content_key(root: Path, files: Iterable[Path], options: object) -> str:
  """A short hash of the content of files, in order, and of options (JSON values).

  The digest of a file is kept under `root` and found again by path, size and time of
  modification, so that a large file is read once.

  Raises:
    UserError: a file is missing or cannot be read.
  """
  memo_path = root / "digests.json"
  try:
    memo = json.loads(memo_path.read_text())
  except (OSError, ValueError):
    memo = {}
  known = len(memo)
  digests = [_digest(path, memo) for path in files]
  if len(memo) > known:
    # A cache that cannot be written is reported where it is needed, by `cached`.
    with suppress(OSError):
      root.mkdir(parents=True, exist_ok=True)
      draft = memo_path.with_suffix(f".{os.getpid()}")
      draft.write_text(json.dumps(memo))
      draft.replace(memo_path)
  text = json.dumps([options, digests], sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _digest(path: Path, memo: dict[str, str]) -> str:
  try:
    stat = path.stat()
    identity = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    if identity not in memo:
      with path.open("rb") as file:
        memo[identity] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
  except OSError as error:
    raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
  return memo[identity]
