"""Which keys of a config may change when a run goes on, or when its model is used."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from largevocab.errors import UserError
from largevocab.training.json_files import as_json

# Keys that change neither what a step does nor by what the best state is chosen: inputs
# of another length (eval.unroll) have other costs. Classes of data at another path are
# compared with those of the run.
_FREE = re.compile(
  r"config\.((eval(?!\.(best|unroll)$)|log|checkpoint)\..*|mesh\.num|"
  r"data\.(cache_dir|data_dir|path)|train\.(max_steps|epochs|patience))"
)
# Keys that say where data lie.
PLACES = (
  r"eval\.word_pairs|"
  r"data\.(cache_dir|data_dir|path|train|valid|test|tokenizer|sources|interactions)"
)
# Keys that change no result of a run that has ended: where its data are, for instance.
_FREE_AT_END = re.compile(
  rf"config\.((log|checkpoint)\..*|mesh\.num|head\.budget_mib|{PLACES})"
)
# Where a trained model is only used, also those of training, and names of files.
_FREE_IN_USE = re.compile(
  r"config\.(eval\..*|train\.(?!tied$).*|head\.budget_mib|"
  r"data\.(train|valid|test|file|tokenizer|sources|interactions))"
)
# And those that change by what metric the best state is chosen, if it is by one.
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
    """Whether the data are read from another place.

    >>> Change("config.data.path", "/scratch", "/data").moves_data
    True
    """
    return self.key in {"config.data.data_dir", "config.data.path"}

  @property
  def makes_other_data(self) -> bool:
    """Whether the data are others, wherever they are: they are split in another way, or
    their tokens are of another kind.

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
  """The keys in which a config differs from that of a run that it is to continue.

  Args:
    workdir: of the run, for messages.
    was, config: the run's config, and the other one.

  Raises:
    UserError: a key changed that is not free.
  """
  changes = list(_differences("config", as_json(was), as_json(config)))
  fixed = _OF_BEST if config.get("eval", {}).get("best") else set()
  bound = [each for each in changes if not each.is_free or each.key in fixed]
  _refuse(workdir, bound, "choose another --workdir")
  return changes


def check_ended(
  workdir: str, was: dict[str, Any], config: dict[str, Any], what_to_do: str
) -> None:
  """Checks that a run that has ended would have the same result with a config, if its
  data are the same.

  Args:
    workdir: of the run, for messages.
    was, config: the run's config, whose keys that the other one lacks are of an older
      version of this package and are not compared; and the other one.
    what_to_do: the advice of a message.

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
  """What a config has of the keys of another."""
  if not (isinstance(was, dict) and isinstance(config, dict)):
    return was
  return {key: _known(was[key], config[key]) for key in was.keys() & config.keys()}


def check_model(
  workdir: str, was: dict[str, Any], config: dict[str, Any], other_data: bool = False
) -> None:
  """Checks that a config is of the model that a config was trained with, and changes
  only how that is used.

  Args:
    workdir: of the run, for messages.
    was, config: the run's config, and the other one.
    other_data: whether the data may be others.

  Raises:
    UserError: the model is another one.
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
  _refuse(workdir, bound, "leave it as it was trained")


def _refuse(workdir: str, bound: list[Change], what_to_do: str) -> None:
  """Raises a UserError about the first of changes that a run may not have, if any."""
  # Of other parts first the name: the rest of their keys follows from it.
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
