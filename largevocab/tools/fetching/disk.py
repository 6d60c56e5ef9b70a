"""Checks the room on the disk."""

import shutil
from pathlib import Path

from largevocab.errors import UserError


def require_room(directory: Path, needed: int) -> None:
  """Checks that a directory has room for `needed` more bytes.

  Raises:
    UserError: there is too little room.

  >>> require_room(Path("/"), 0)
  """
  free = shutil.disk_usage(directory).free
  if needed > free:
    raise UserError(
      f"{directory} has {free:,} bytes free, but {needed:,} are needed: make room, or "
      "give another directory"
    )
