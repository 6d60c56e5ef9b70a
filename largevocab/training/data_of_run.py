"""Which data a run was trained and measured on: vocabulary.txt and data.json."""

import os
from collections.abc import Collection
from pathlib import Path

from largevocab.data.base import Data, DataSet
from largevocab.errors import UserError
from largevocab.training.json_files import read_json, write_json, writing
from largevocab.training.workdir import config_path


def classes_path(workdir: str) -> Path:
  """Of the file with the name and the count of each class."""
  return Path(workdir, "vocabulary.txt")


def save_data(workdir: str, data: Data, found: dict[str, str]) -> None:
  """Writes the classes, and the digests by which other data are told."""
  with writing(workdir):
    data.vocabulary.save(classes_path(workdir))
  write_json(_digests_path(workdir), found)


def check_data(workdir: str, given: DataSet, data: Data, found: dict[str, str]) -> None:
  """Checks that data are those of a workdir's run, wherever they are.

  A validation or test text that the user has given in place of the run's is not
  compared, and neither are data of a run of an older version, which has no digests:
  only the classes are.

  Raises:
    UserError: they are others; or see `Classes.check_saved`.
  """
  data.vocabulary.check_saved(classes_path(workdir))
  check_digests(workdir, found, _given_anew(workdir, given))


def check_digests(
  workdir: str,
  now: dict[str, str],
  left_out: Collection[str] = (),
  what_to_do: str = "restore those, or choose another --workdir",
) -> None:
  """Checks that digests of data are those of a workdir's run, if that has some.

  Args:
    workdir: of the run.
    now: digests of the data.
    left_out: fields of the data that are not compared.
    what_to_do: the advice of a message.

  Raises:
    UserError: they are others.
  """
  path = _digests_path(workdir)
  if not os.path.exists(path):
    return
  saved = read_json(path)
  for name in sorted((now.keys() & saved.keys()).difference(left_out)):
    if now[name] != saved[name]:
      raise UserError(
        f"{path} has another digest of {name!r} than the data now: these are not the "
        f"data of the run; {what_to_do}"
      )


def _digests_path(workdir: str) -> str:
  return os.path.join(workdir, "data.json")


def _given_anew(workdir: str, given: DataSet) -> set[str]:
  """The held-out splits for which a setting names other files than the run's did."""
  if not os.path.exists(config_path(workdir)):
    return set()
  was = read_json(config_path(workdir)).get("data")
  return {
    split
    for split in ("valid", "test")
    if isinstance(was, dict) and getattr(given, split, None) != was.get(split)
  }
