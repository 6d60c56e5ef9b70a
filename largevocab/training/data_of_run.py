"""Records which data a run was trained and measured on: vocabulary.txt, data.json."""

import os
from collections.abc import Collection
from pathlib import Path

from largevocab.data.base import Data, DataSet
from largevocab.errors import UserError
from largevocab.training.json_files import read_json, write_json, writing
from largevocab.training.workdir import config_path


def classes_path(workdir: str) -> Path:
  """The path of the file with the name and the count of each class."""
  return Path(workdir, "vocabulary.txt")


def save_data(workdir: str, data: Data, found: dict[str, str]) -> None:
  """Writes the classes, and the digests that tell other data from these."""
  with writing(workdir):
    data.vocabulary.save(classes_path(workdir))
  write_json(_digests_path(workdir), found)


def check_data_of_run(
  workdir: str, given: DataSet, data: Data, found: dict[str, str]
) -> None:
  """Checks that data are those of a workdir's run, regardless of their location.

  A validation or test text that the user gives in place of the run's text is not
  compared. Runs of older versions have no digests, so that only their classes are
  compared.

  Raises:
    UserError: the data differ; or see `Classes.check_saved`.
  """
  data.vocabulary.check_saved(classes_path(workdir))
  check_digests(workdir, found, _given_anew(workdir, given))


def check_digests(
  workdir: str,
  now: dict[str, str],
  left_out: Collection[str] = (),
  what_to_do: str = "restore the data of the run, or choose another --workdir",
) -> None:
  """Checks that digests of data are those of a workdir's run, if it has digests.

  Args:
    workdir: the workdir of the run.
    now: digests of the data.
    left_out: fields of the data that are not compared.
    what_to_do: advice for the error message.

  Raises:
    UserError: the digests differ.
  """
  path = _digests_path(workdir)
  if not os.path.exists(path):
    return
  saved = read_json(path)
  for name in sorted((now.keys() & saved.keys()).difference(left_out)):
    if now[name] != saved[name]:
      raise UserError(
        f"{path} has a digest of {name!r} that differs from that of the data now: "
        f"these are not the data of the run; {what_to_do}"
      )


def _digests_path(workdir: str) -> str:
  return os.path.join(workdir, "data.json")


def _given_anew(workdir: str, given: DataSet) -> set[str]:
  """The held-out splits for which a setting names other files than in the run."""
  if not os.path.exists(config_path(workdir)):
    return set()
  was = read_json(config_path(workdir)).get("data")
  return {
    split
    for split in ("valid", "test")
    if isinstance(was, dict) and getattr(given, split, None) != was.get(split)
  }
