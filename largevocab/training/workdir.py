"""Files of a workdir: config.json, meta.json, result.json and diverged.json."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from largevocab.errors import Diverged, UserError
from largevocab.paths import user_path
from largevocab.provenance import describe_machine
from largevocab.training.config_changes import Change, check_resumable
from largevocab.training.json_files import (
  CONFIG,
  as_json,
  read_json,
  write_json,
  writing,
)


def workdir_path(text: str, flag: str = "--workdir") -> str:
  """Validates the workdir that a user gives with a flag.

  Raises:
    UserError: the path is not possible.
  """
  path = str(user_path(text, flag))
  if "://" in text:
    raise UserError(f"{flag} is {text!r}: give a directory on this machine")
  if not path.isprintable():
    raise UserError(
      f"{flag} is {text!r}: it has characters that cannot be printed; choose "
      "another name"
    )
  return path


def changes_of(workdir: str, config: dict[str, Any]) -> list[Change]:
  """The keys in which a config differs from that of the run in a workdir.

  A workdir without a checkpoint has no run.

  Raises:
    UserError: a key changed that may not change in a run.
  """
  if not _holds_results(workdir):
    return []
  return check_resumable(workdir, _config_of(workdir), config)


def has_result_of(workdir: str, config: dict[str, Any]) -> bool:
  """Whether a workdir has the result of this config, and nothing is left to do."""
  return has_finished(workdir) and _config_of(workdir) == as_json(config)


def claim_workdir(workdir: str, config: dict[str, Any], step: int = 0) -> None:
  """Writes config.json and meta.json for this config.

  When a run resumes, meta.json describes this start. `changed` lists the keys with new
  values and the step at which they changed. `earlier` lists the previous starts, oldest
  first.

  Raises:
    UserError: see `changes_of`.
  """
  meta = describe_machine()
  changes = changes_of(workdir, config)
  if changes:
    meta["changed"] = [{**change._asdict(), "step": step} for change in changes]
  path = os.path.join(workdir, "meta.json")
  if _holds_results(workdir) and os.path.exists(path):
    before = read_json(path)
    earlier = before.pop("earlier", [])
    if not isinstance(earlier, list):
      raise UserError(f"{path} is damaged (`earlier` is not a list); delete it")
    meta["earlier"] = [*earlier, before]
  write_json(path, meta)
  write_json(config_path(workdir), as_json(config))


def has_finished(workdir: str) -> bool:
  return os.path.exists(result_path(workdir))


def has_ended(workdir: str) -> bool:
  """Whether a run has a result, or has diverged."""
  return has_finished(workdir) or os.path.exists(diverged_path(workdir))


@contextmanager
def noting_divergence(workdir: str) -> Iterator[None]:
  """Records in diverged.json the step at which a run diverged."""
  try:
    yield
  except Diverged as error:
    write_json(diverged_path(workdir), {"step": error.step})
    raise


def forget_divergence(workdir: str) -> None:
  """Removes diverged.json, at the beginning of a new attempt."""
  if os.path.exists(diverged_path(workdir)):
    with writing(diverged_path(workdir)):
      os.remove(diverged_path(workdir))


def diverged_path(workdir: str) -> str:
  return os.path.join(workdir, "diverged.json")


def result_path(workdir: str) -> str:
  return os.path.join(workdir, "result.json")


def set_result_aside(workdir: str) -> None:
  """Renames result.json, if it exists, to result.1.json or the next free number."""
  number = 1
  while os.path.lexists(aside := os.path.join(workdir, f"result.{number}.json")):
    number += 1
  if has_finished(workdir):
    with writing(aside):
      os.rename(result_path(workdir), aside)


def checkpoints_path(workdir: str) -> str:
  return os.path.join(workdir, "checkpoints")


def config_path(workdir: str) -> str:
  return os.path.join(workdir, CONFIG)


def _config_of(workdir: str) -> dict[str, Any]:
  """The config of the run in a workdir."""
  path = config_path(workdir)
  if not os.path.exists(path):
    raise UserError(
      f"{path} is missing, but {workdir} holds a run: restore the file, or choose "
      "another --workdir"
    )
  return read_json(path)


def _holds_results(workdir: str) -> bool:
  checkpoints = checkpoints_path(workdir)
  # Other directories come from a save that was interrupted.
  names = os.listdir(checkpoints) if os.path.isdir(checkpoints) else []
  return any(name.isdecimal() for name in names) or has_finished(workdir)
