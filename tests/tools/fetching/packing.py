"""Makes archives in memory, including hostile ones."""

import io
import tarfile
import zipfile


def tar_of(**members: bytes) -> bytes:
  return tar_with(*((tarfile.TarInfo(name), data) for name, data in members.items()))


def tar_with(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
  packed = io.BytesIO()
  with tarfile.open(fileobj=packed, mode="w:gz") as archive:
    for info, data in members:
      info.size = len(data)
      archive.addfile(info, io.BytesIO(data))
  return packed.getvalue()


def zip_of(members: dict[str | zipfile.ZipInfo, bytes]) -> bytes:
  packed = io.BytesIO()
  with zipfile.ZipFile(packed, "w") as archive:
    for name, data in members.items():
      archive.writestr(name, data)
  return packed.getvalue()


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE):
  info = tarfile.TarInfo(name)
  info.type, info.linkname = kind, to
  return info, b""


def zip_link(name: str) -> zipfile.ZipInfo:
  info = zipfile.ZipInfo(name)
  info.create_system, info.external_attr = 3, 0o120777 << 16
  return info
