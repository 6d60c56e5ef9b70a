"""Checks whether runs that have ended are still those that a sweep asks for."""

import json
import os
import pathlib
from collections.abc import Iterable

from ml_collections import ConfigDict

from largevocab import config
from largevocab.data.digests import digests
from largevocab.errors import UserError
from largevocab.tools.sweeps.launch import Launcher, settings_of
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training.config_changes import LOCATIONS, check_ended
from largevocab.training.data_of_run import check_digests
from largevocab.training.workdir import config_path, has_ended

_WHAT_TO_DO = (
  "undo that, or delete the workdir and the run's line in results.jsonl or "
  "search.jsonl to repeat it"
)
_MAIN_PLACES = ("path", "data_dir", "train", "sources")


def check_finished(
  path: pathlib.Path,
  runs: Iterable[Run],
  launcher: Launcher,
  known: dict[str, dict[str, str]] | None,
) -> None:
  """Checks that runs that have ended had the config and the data of today.

  Otherwise a table would mix rows of both.

  Args:
    path: path of the sweep file, for messages.
    runs: runs of the sweep, at the rates of its search. Runs that have not ended are
      left to `largevocab.main`, which compares them when they continue.
    launcher: the launcher of the runs.
    known: digests of data by their settings. Further data are read, and their digests
      are added. None: only configs are compared. If data cannot be read, only configs
      are compared, too, since nothing can be trained on such data.

  Raises:
    UserError: the config or the data of a run has changed; the message names the run
      and the key.
  """
  for run in runs:
    workdir = str(launcher.workdir(run))
    if not has_ended(workdir) or not os.path.exists(config_path(workdir)):
      continue
    try:
      was, block = config.of_workdir(workdir), settings_of(run, launcher.settings)
      _fill_places(block, was)
      check_ended(workdir, was.to_dict(), block.to_dict(), _WHAT_TO_DO)
      if known is not None:
        settings = json.dumps(block.data.to_dict(), sort_keys=True)
        if settings not in known:
          known[settings] = _digests(block)
        check_digests(workdir, known[settings], what_to_do=_WHAT_TO_DO)
    except UserError as error:
      raise UserError(f"{path}: run {run.name or run.id!r}: {error}") from error


def _fill_places(block: ConfigDict, was: ConfigDict) -> None:
  """Takes the places of data from the config `was`, if `block` names none.

  This is the case if results are only collected.
  """
  data, before = block.get("data"), was.get("data")
  if not (isinstance(data, ConfigDict) and isinstance(before, ConfigDict)):
    return
  if any(data.get(key) for key in _MAIN_PLACES):
    return
  for name in LOCATIONS:
    if name in data and name in before:
      data[name] = before[name]


def _digests(block: ConfigDict) -> dict[str, str]:
  """The digests of the data of a config; {} if they cannot be read."""
  fields = block.data.to_dict()
  try:
    return digests(config.part("data", fields.pop("name"), **fields).load())
  except UserError:
    return {}
