"""Which keys of a config may change when a run continues, or when its model is used."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from largevocab.errors import UserError
from largevocab.training.json_files import as_json

# Keys that change neither the steps nor the choice of the best state. eval.unroll is
# not one of them, since inputs of another length have other costs. eval.batch_size is:
# with another one, only the first words of each stream have other costs. If data are at
# another path, their classes are compared with those of the run.
_FREE = re.compile(
  r"config\.((eval(?!\.(best|unroll)$)|log|checkpoint)\..*|mesh\.num|"
  r"data\.(cache_dir|data_dir|path)|train\.(max_steps|epochs|patience))"
)
# Fields of data sets that give the location of data, and the keys for all locations.
LOCATIONS = (
  *("path", "file", "train", "valid", "test", "tokenizer", "sources", "interactions"),
  *("data_dir", "cache_dir"),
)
PLACES = {*(f"data.{name}" for name in LOCATIONS), "eval.word_pairs"}
# Keys that do not change the result of a run that has ended, such as the location of
# its data.
_FREE_AT_END = re.compile(
  r"config\.((log|checkpoint)\..*|mesh\.num|head\.budget_mib|eval\.word_pairs|"
  rf"data\.({'|'.join(LOCATIONS)}))"
)
# Where a trained model is only used, keys of training and names of files may change,
# too.
_FREE_IN_USE = re.compile(
  r"config\.(eval\..*|train\.(?!tied$).*|head\.budget_mib|"
  rf"data\.({'|'.join(LOCATIONS)}))"
)
# If a metric selects the best state (eval.best), these keys change that metric.
_OF_BEST = {"config.eval.hide_seen", "config.eval.unlabelled"}


class Change(NamedTuple):
  """A key of a config with a changed value."""

  key: str
  old: Any
  new: Any

  @property
  def is_free(self) -> bool:
    """Whether a run may continue with the change.

    >>> Change("config.eval.batch_size", 20, 10).is_free
    True
    >>> Change("config.data.path", "/scratch", "/data").is_free
    True
    >>> Change("config.train.lr", 1.0, 2.0).is_free
    False
    """
    return bool(_FREE.fullmatch(self.key))

  @property
  def moves_data(self) -> bool:
    """Whether the change makes the data come from another place.

    >>> Change("config.data.path", "/scratch", "/data").moves_data
    True
    """
    return self.key in {"config.data.data_dir", "config.data.path"}

  @property
  def makes_other_data(self) -> bool:
    """Whether the change makes the data different, regardless of their location.

    This is the case if they are split in another way, or have another kind of tokens.

    >>> Change("config.data.test", "", "a.txt").makes_other_data  # it was cut off
    True
    >>> Change("config.data.test", "/scratch/a.txt", "/data/a.txt").makes_other_data
    False
    """
    keys = {f"config.data.{name}" for name in ("valid", "test", "tokenizer")}
    return self.key in keys and bool(self.old) != bool(self.new)


def check_resumable(
  workdir: str, was: dict[str, Any], config: dict[str, Any]
) -> list[Change]:
  """The keys in which a config differs from that of the run that it is to continue.

  Args:
    workdir: the run's workdir, for messages.
    was, config: the run's config, and the new config.

  Raises:
    UserError: a key changed that may not change.
  """
  changes = list(_differences("config", as_json(was), as_json(config)))
  fixed = _OF_BEST if config.get("eval", {}).get("best") else set()
  bound = [each for each in changes if not each.is_free or each.key in fixed]
  _refuse(workdir, bound, "choose another --workdir")
  return changes


def check_ended(
  workdir: str, was: dict[str, Any], config: dict[str, Any], what_to_do: str
) -> None:
  """Checks that a run that has ended would have the same result with a given config.

  The data are assumed to be the same.

  Args:
    workdir: the run's workdir, for messages.
    was, config: the run's config, and the given one. Keys of the run's config that the
      given one lacks are from an older version of this package, and are not compared.
    what_to_do: advice for the error message.

  Raises:
    UserError: a key changed on which the result depends.
  """
  changes = _differences("config", _known(as_json(was), config), as_json(config))
  bound = [
    each
    for each in changes
    if each.makes_other_data or not _FREE_AT_END.fullmatch(each.key)
  ]
  _refuse(workdir, bound, what_to_do)


def _known(was: Any, config: Any) -> Any:
  """The part of the config `was` whose keys the other config has, too."""
  if not (isinstance(was, dict) and isinstance(config, dict)):
    return was
  return {key: _known(was[key], config[key]) for key in was.keys() & config.keys()}


def check_model(
  workdir: str, was: dict[str, Any], config: dict[str, Any], other_data: bool = False
) -> None:
  """Checks that a config describes a run's model and changes only how it is used.

  Args:
    workdir: the run's workdir, for messages.
    was, config: the run's config, and the other config.
    other_data: whether the data may differ.

  Raises:
    UserError: the config describes another model.
  """
  changes = _differences("config", as_json(was), as_json(config))
  bound = [
    each
    for each in changes
    if not (
      each.is_free
      or (_FREE_IN_USE.fullmatch(each.key) and not each.makes_other_data)
      or (other_data and each.key.startswith("config.data."))
    )
  ]
  _refuse(workdir, bound, "keep the value of the training run")


def _refuse(workdir: str, bound: list[Change], what_to_do: str) -> None:
  """Raises a UserError about the first forbidden change, if there is one."""
  # If a part was exchanged, its name comes first: its other keys follow from the name.
  for change in sorted(bound, key=lambda change: not change.key.endswith(".name")):
    raise UserError(
      f"{workdir} holds a run with {change.key} = {change.old!r:.99}, not "
      f"{change.new!r:.99}; {what_to_do}"
    )


def _differences(key: str, old: Any, new: Any) -> Iterator[Change]:
  if isinstance(old, dict) and isinstance(new, dict):
    for name in sorted(old.keys() | new.keys()):
      yield from _differences(f"{key}.{name}", old.get(name), new.get(name))
  elif old != new:
    yield Change(key, old, new)
