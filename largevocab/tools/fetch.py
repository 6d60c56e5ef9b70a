"""Fetches a public data set into a directory, and prints the command that trains on it.

  python -m largevocab.tools.fetch ptb data/ptb
  python -m largevocab.tools.fetch europarl:da data/europarl

The table of addresses, licences and checksums is largevocab/data/sources.py. A download
that was interrupted resumes where it stopped. Sizes and checksums are verified.
DIR/NAME.sha256 records the checksums of all files, even if none is published. Data that
is complete is verified and not fetched again. Files that only a person can get are
named, and are verified and unpacked once they are in DIR.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from largevocab.atomic import move
from largevocab.data.sources import SOURCES, File, Source
from largevocab.errors import UserError, remedy
from largevocab.paths import user_path
from largevocab.tools import entry
from largevocab.tools.fetching.archives import unpack
from largevocab.tools.fetching.checksums import read_record, sha256, write_record
from largevocab.tools.fetching.download import download
from largevocab.tools.fetching.splits import write_split


def fetch(name: str, source: Source, directory: Path) -> None:
  """Fetches a data set into a directory.

  Raises:
    UserError: a file cannot be obtained, or is not the expected one.
    OSError: the directory cannot be written.
  """
  directory.mkdir(parents=True, exist_ok=True)
  record = directory / f"{name.replace(':', '-')}.sha256"
  recorded = read_record(record)
  if _is_complete(source, directory, recorded, record):
    print(f"{name} is in {directory} already, as recorded in {record}")
    return
  _check_alone(source, directory, record)
  print(f"licence: {source.licence}")
  found, new = {}, []
  for file in source.files:
    expected = file.sha256 or recorded.get(file.name, "")
    found[file.name] = _obtain(file, expected, source, directory)
    if not expected:
      new.append(file.name)
    if file.members:
      path = directory / file.name
      found |= unpack(path, file.members, directory)
      print(f"{path} is unpacked, and can be deleted")
  for made, (data, numbers) in source.splits.items():
    write_split(directory / data, directory / numbers, directory / made)
    found[made] = sha256(directory / made)
  write_record(record, found)
  if new:
    print(
      f"no checksum of {', '.join(new)} is published: the checksum of the download is "
      f"recorded in {record} and verified from now on"
    )


def _is_complete(
  source: Source, directory: Path, recorded: Mapping[str, str], record: Path
) -> bool:
  """Whether all recorded files are there; archives that were unpacked may be missing.

  Raises:
    UserError: a file differs from the one that was recorded.
  """
  if not all(file.name in recorded for file in source.files):
    return False
  archives = {file.name for file in source.files if file.members}
  needed = {name: digest for name, digest in recorded.items() if name not in archives}
  if not all((directory / name).is_file() for name in needed):
    return False
  for name, digest in needed.items():
    if sha256(directory / name) != digest:
      raise UserError(
        f"{directory / name} has changed since {record} was written: delete both to "
        "fetch it again"
      )
  return True


def _check_alone(source: Source, directory: Path, record: Path) -> None:
  """Raises a UserError if another data set has files that would be overwritten."""
  unpacked = {name for file in source.files for name in file.members.values()}
  for other in directory.glob("*.sha256"):
    if other != record and (both := unpacked & read_record(other).keys()):
      raise UserError(
        f"{directory} has {both.pop()} of another data set, as {other.name} says: give "
        "another directory"
      )


def _obtain(file: File, expected: str, source: Source, directory: Path) -> str:
  """Downloads a file unless it is there, verifies it, and returns its checksum."""
  path = directory / file.name
  if path.exists():
    digest = sha256(path)
    if fault := _fault(path, digest, file.size, expected):
      raise UserError(
        f"{path} {fault}: delete it, and run the same command again to fetch it"
      )
    return digest
  if not file.url:
    raise UserError(
      f"{file.name} cannot be fetched by a program: {source.by_hand}; put it into "
      f"{directory} and run the same command again"
    )
  part = directory / f"{file.name}.part"
  download(file.url, part, file.size)
  digest = sha256(part)
  if fault := _fault(part, digest, file.size, expected):
    part.unlink()
    raise UserError(
      f"{file.url} {fault}: the download is deleted; run the same command again; if "
      f"that fails too, get the file elsewhere and put it into {directory}"
    )
  move(part, path)
  return digest


def _fault(path: Path, digest: str, size: int, expected: str) -> str:
  """What is wrong with a file of this checksum; empty if nothing is wrong."""
  has = path.stat().st_size
  if not has:
    return "is empty"
  if size and has != size:
    return f"has {has:,} bytes instead of {size:,}"
  if expected and digest != expected:
    return f"has the SHA-256 checksum {digest} instead of {expected}"
  return ""


def main(
  argv: Sequence[str] | None = None, sources: Mapping[str, Source] = SOURCES
) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("name", metavar="NAME", help=f"one of {', '.join(sources)}")
  add("directory", metavar="DIR", help="directory of the files; made if missing")
  args = parser.parse_args(argv)
  if args.name not in sources:
    raise UserError(
      f"there is no data set {args.name!r} to fetch: name one of {', '.join(sources)}"
    )
  if not args.directory:
    raise UserError("DIR is empty: name the directory for the files")
  source, directory = sources[args.name], user_path(args.directory, "DIR")
  try:
    fetch(args.name, source, directory)
  except OSError as error:
    what_to_do = remedy(error.errno, "make room, or give another directory")
    place = error.filename or directory
    raise UserError(f"{place}: {error.strerror or error}: {what_to_do}") from error
  flags = source.flags.format(dir=shlex.quote(str(directory)))
  workdir = f"runs/{args.name.replace(':', '-')}"
  print(f"python -m largevocab.main {flags} --workdir={workdir}")
  return 0


def cli() -> int:
  return entry.run("fetch", main)


if __name__ == "__main__":
  sys.exit(cli())
