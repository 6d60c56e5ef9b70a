"""A config from the command line: --config=FILE:ARG and --config.KEY=VALUE."""

import re
import runpy
import traceback
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags

from largevocab.config import listed, nearest
from largevocab.errors import UserError


def load(argument: str) -> ConfigDict:
  """What get_config(ARG) of FILE returns, for an argument FILE or FILE:ARG.

  Raises:
    UserError: there is no such file, or it fails; a line of it is named.
  """
  name, _, arg = argument.partition(":")
  path = Path(name)
  if not path.is_file():
    others = [str(p) for p in path.parent.glob("*.py")]
    raise UserError(f"--config: there is no file {name}{nearest(name, others)}")
  try:
    get_config = runpy.run_path(str(path)).get("get_config")
    config = get_config(arg) if get_config else None
  except UserError as error:
    raise UserError(f"--config={argument}: {error}") from error
  except Exception as error:
    what = f"{type(error).__name__}: {error}"
    raise UserError(f"{_place(path, error)}: {what}") from error
  if not isinstance(config, ConfigDict):
    raise UserError(f"{path} has no get_config(arg) that returns a config")
  return config


def override(config: ConfigDict, argv: list[str], known: list[str]) -> None:
  """Sets what flags --config.KEY=VALUE say, each to a value of the type it has.

  Args:
    config: changed in place.
    argv: the program, and what is left of its arguments.
    known: the program's other flags, to name the one that was meant.

  Raises:
    UserError: no such key, ill-typed value, or an argument that is none of these flags.
  """
  kinds = {}
  for word in argv[1:]:
    if match := re.match(r"--?(no)?config\.([^=]*)(=?)", word):
      negation, key, has_value = match.groups()
      kinds[key] = _kind(config, key)
      if negation and (has_value or kinds[key] is not bool):
        raise UserError(
          f"{word}: 'no' is for keys of type bool, and takes no value; set "
          f"--config.{key}=VALUE"
        )
    elif word.startswith("-"):
      name = word.lstrip("-").partition("=")[0].partition(".")[0]
      raise UserError(f"there is no flag --{name}{nearest(name, known)}")
  own = flags.FlagValues()
  own.set_gnu_getopt()
  try:
    config_flags.DEFINE_config_dict("config", config, flag_values=own, sys_argv=argv)
    _, *stray = own(argv)
  except flags.IllegalFlagValueError as error:
    flag = str(error).removeprefix("flag ").partition(": ")[0]
    kind = kinds[flag.partition("=")[0].removeprefix("--config.")]
    raise UserError(f"{flag}: it must be of type {kind.__name__}") from error
  except flags.Error as error:
    raise UserError(str(error)) from error
  if stray:
    raise UserError(f"unexpected argument {stray[0]!r}; flags begin with --")


def _kind(config: ConfigDict, key: str) -> type:
  """The type of what `key`, with dots, stands for."""
  if key.endswith(".name"):
    raise UserError(
      f"--config.{key}: choose it after the colon of --config=FILE:ARG, or in the file"
    )
  value = config
  for name in key.split("."):
    if not isinstance(value, ConfigDict):
      raise UserError(f"--config.{key}: {name!r} is below what is no block")
    if name not in value:
      raise UserError(f"--config.{key}: there is no key {name!r}{nearest(name, value)}")
    value = value[name]
  if isinstance(value, ConfigDict):
    raise UserError(f"--config.{key} is a block; set one of its keys: {listed(value)}")
  return type(value)


def _place(path: Path, error: Exception) -> str:
  """File and line of a config at which it failed."""
  if isinstance(error, SyntaxError):
    return f"{error.filename}, line {error.lineno}"
  frames = traceback.extract_tb(error.__traceback__)
  own = [f.lineno for f in frames if Path(f.filename) == path]
  return f"{path}, line {own[-1]}" if own else str(path)
