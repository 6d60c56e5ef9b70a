"""Runs the command that fetches data on a table with one data set."""

import hashlib
import pathlib

import numpy as np
import pytest

from largevocab.data.sources import File, Source
from largevocab.errors import UserError
from largevocab.tools import fetch

CONTENT = np.random.default_rng(0).bytes(300_000)
digest = lambda content: hashlib.sha256(content).hexdigest()


def source(*files: File, **more: str) -> Source:
  return Source(licence="free", files=files, flags="--config=c --x={dir}", **more)


def names(directory: pathlib.Path) -> list[str]:
  found = directory.rglob("*")
  return sorted(str(p.relative_to(directory)) for p in found if p.is_file())


def run(directory: pathlib.Path, *files: File, **more: str) -> int:
  table = {"mine": source(*files, **more)}
  return fetch.main(["mine", str(directory)], table)


def ends(directory, *files, says, **more):
  """Checks that the command ends with this one-line error."""
  with pytest.raises(UserError, match=says) as error:
    run(directory, *files, **more)
  assert "\n" not in str(error.value)
