"""Reads and checks the JSON files of a workdir, and writes them atomically."""

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from largevocab.atomic import write_text
from largevocab.errors import UserError, remedy

CONFIG = "config.json"
_LARGEST = 2**26  # maximum size of these files in bytes


def as_json(config: dict[str, Any]) -> dict[str, Any]:
  """A config after a round trip through JSON, which turns tuples into lists."""
  return json.loads(json.dumps(config))


@contextmanager
def writing(path: str) -> Iterator[None]:
  """Adds file name and advice to errors in writing."""
  try:
    yield
  except OSError as error:
    room = "make room or choose another --workdir; the same command goes on from "
    what_to_do = remedy(error.errno, room + "the last checkpoint")
    raise UserError(
      f"{path} cannot be written ({error.strerror or error}); {what_to_do}"
    ) from error


def write_json(path: str, content: dict[str, Any]) -> None:
  """Writes a file atomically."""
  with writing(path):
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def read_json(path: str) -> dict[str, Any]:
  """Reads the JSON object in a file.

  Raises:
    UserError: the file cannot be read or has other content.
  """
  advice = _restored(path)
  try:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
      raise UserError(f"{path} is damaged (not a regular file, or too large); {advice}")
    with open(path, encoding="utf-8") as file:
      content = json.load(file)
  except OSError as error:
    what_to_do = remedy(error.errno, advice)
    raise UserError(
      f"{path} cannot be read ({error.strerror}); {what_to_do}"
    ) from error
  except UserError:
    raise
  except (ValueError, RecursionError) as error:  # not JSON, or not even text
    raise UserError(f"{path} is damaged ({error}); {advice}") from error
  if not isinstance(content, dict):
    raise UserError(f"{path} is damaged (it is not a JSON object); {advice}")
  return content


def _restored(path: str) -> str:
  """What to do with a damaged file; every file but the config can be made again."""
  is_config = os.path.basename(path) == CONFIG
  return "restore it, or choose another --workdir" if is_config else "delete it"


def read_numbers(path: str) -> dict[str, float]:
  """Reads the JSON object in a file, whose values must all be numbers.

  Raises:
    UserError: see `read_json`; or a value is not a number.
  """
  content = read_json(path)
  for key, value in content.items():
    is_int = type(value) is int and abs(value) <= sys.float_info.max
    if not (is_int or type(value) is float):
      raise UserError(
        f"{path} is damaged ({key!r:.99} is {value!r:.99}, not a number); delete it"
      )
  return content
