"""Unpacks members of tar and zip archives into one directory and nowhere else."""

import gzip
import hashlib
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from largevocab.atomic import replacing
from largevocab.errors import UserError
from largevocab.tools.fetching.disk import require_room

_CHUNK = 1 << 20
_UNSOUND = (
  tarfile.TarError,
  zipfile.BadZipFile,
  gzip.BadGzipFile,
  lzma.LZMAError,
  zlib.error,
  EOFError,
  RuntimeError,  # Python lacks the compression, or a password is needed
)


@dataclass(frozen=True)
class Member:
  """A member of an archive; `kind` is '' unless it is a file or a directory."""

  name: str
  size: int
  kind: str
  open: Callable[[], IO[bytes]]


def unpack(archive: Path, wanted: Mapping[str, str], directory: Path) -> dict[str, str]:
  """Unpacks members of an archive, each atomically.

  All members are checked before the first is written, so that a .tar.gz is decompressed
  twice.

  Args:
    archive: a zip file, or a tar file with any compression.
    wanted: patterns of members' names, each with the name that the single matching
      member gets in the directory. If this name is empty, all members that match are
      unpacked, named as in the archive.
    directory: where the files go.

  Returns:
    The checksum of each file, by its name in the directory.

  Raises:
    UserError: the archive is not valid, a member is a link or lies outside of the
      directory, a pattern matches no member or too many members, or the disk has too
      little room.
    OSError: a file cannot be written.
  """
  with _opened(archive) as members:
    for member in members:
      _check(archive, member)
    chosen = _chosen(archive, members, wanted)
    require_room(directory, sum(member.size for member in chosen.values()))
    return {name: _copy(member, directory / name) for name, member in chosen.items()}


def _check(archive: Path, member: Member) -> None:
  path = PurePosixPath(member.name)
  fault = ""
  if path.is_absolute() or ".." in path.parts:
    fault = "lies outside of the directory"
  elif not member.name.isprintable():
    fault = "has a name with unprintable characters"
  elif not member.kind:
    fault = "is a link or a device"
  if fault:
    raise UserError(
      f"{archive}: its member {member.name!r} {fault}, so nothing is unpacked: delete "
      "the archive, and get it from somewhere else"
    )


def _chosen(
  archive: Path, members: Sequence[Member], wanted: Mapping[str, str]
) -> dict[str, Member]:
  """The members to unpack, by their names in the directory."""
  files = {str(PurePosixPath(m.name)): m for m in members if m.kind == "file"}
  chosen = {}
  for pattern, name in wanted.items():
    found = {own: m for own, m in files.items() if fnmatchcase(own, pattern)}
    if not found or (name and len(found) > 1):
      raise UserError(
        f"{archive}: {len(found)} members match {pattern}; it has "
        f"{', '.join(list(files)[:5]) or 'no files'}: it is another archive; delete it"
      )
    chosen |= dict.fromkeys([name], *found.values()) if name else found
  return chosen


def _copy(member: Member, path: Path) -> str:
  """Writes a member to a file, and returns its checksum."""
  path.parent.mkdir(parents=True, exist_ok=True)
  digest = hashlib.sha256()
  with member.open() as source, replacing(path) as file:
    while chunk := source.read(_CHUNK):
      digest.update(chunk)
      file.write(chunk)
  return digest.hexdigest()


@contextmanager
def _opened(archive: Path) -> Iterator[list[Member]]:
  """Opens an archive, and yields its members, which can be opened within the block."""
  try:
    if zipfile.is_zipfile(archive):
      with zipfile.ZipFile(archive) as of_zip:
        yield [_of_zip(of_zip, info) for info in of_zip.infolist()]
    elif tarfile.is_tarfile(archive):
      with tarfile.open(archive) as of_tar:
        yield [_of_tar(of_tar, info) for info in of_tar.getmembers()]
    else:
      with archive.open("rb") as file:
        start = file.read(15)
      raise UserError(
        f"{archive} is neither tar nor zip; it starts with {start!r}: delete it, and "
        "get it again"
      )
  except _UNSOUND as error:
    raise UserError(
      f"{archive} is not a valid archive ({error}): delete it, and get it again"
    ) from error


def _of_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
  of_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
  kind = "directory" if info.is_dir() else "file" if of_file else ""
  return Member(info.filename, info.file_size, kind, lambda: archive.open(info))


def _of_tar(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
  def open_it() -> IO[bytes]:
    file = archive.extractfile(info)
    assert file is not None  # only links and directories have None
    return file

  kind = "directory" if info.isdir() else "file" if info.isreg() else ""
  return Member(info.name, info.size, kind, open_it)
