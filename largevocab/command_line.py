"""Reads a config from the flags --config=CONFIG:ARG and --config.KEY=VALUE."""

import re
import runpy
import sys
import traceback
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags

from largevocab.data.lines import marked_encoding
from largevocab.errors import UserError, listed, nearest

# Configs of the package; a wheel installs them inside the package.
_INSTALLED = Path(__file__).with_name("configs")
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "configs"


def load(argument: str) -> ConfigDict:
  """Loads a config from CONFIG or CONFIG:ARG, by calling its get_config(ARG).

  CONFIG is the path of a Python file, which is run, or the name of a config of the
  package: `ptb` is the package's configs/ptb.py in any current directory. As with
  Python scripts, a file can import modules from its own directory, now and later.

  Raises:
    UserError: there is no such config, or it fails; the message names the line.
  """
  name, _, arg = argument.partition(":")
  path = _find(name)
  _check_encoding(path)
  folder = str(path.resolve().parent)
  if path.resolve().parent != _FOLDER.resolve() and folder not in sys.path:
    sys.path.insert(0, folder)
  try:
    get_config = runpy.run_path(str(path)).get("get_config")
    config = get_config(arg) if get_config else None
  except UserError as error:
    raise UserError(f"--config={argument}: {error}") from error
  except BaseException as error:  # also SystemExit, which would exit silently
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    raise UserError(f"{_place(path, error)}: {what}") from error
  if not isinstance(config, ConfigDict):
    raise UserError(f"{path} has no get_config(arg) that returns a config: define one")
  return config


def is_name(config: str) -> bool:
  """Whether CONFIG names a config of the package, rather than the path of a file.

  >>> is_name("ptb"), is_name("ptb.py"), is_name("configs/ptb")
  (True, False, False)
  """
  path = Path(config)
  return path.suffix != ".py" and path.name == config


def _find(name: str) -> Path:
  """Finds the file of a config, given its path or the name of a packaged config."""
  own = {path.stem: path for path in _FOLDER.glob("*.py")}
  path = Path(name)
  if is_name(name):
    if name not in own:
      raise UserError(
        f"--config: the package has no config {name!r} (the path of your own file must "
        f"end in .py or contain a /){nearest(name, own)}"
      )
    return own[name]
  if path.is_file():
    return path
  if path.exists():
    kind = "a directory" if path.is_dir() else "not a regular file"
    raise UserError(f"--config: {name} is {kind}; give a Python file")
  others = [str(p) for p in path.parent.glob("*.py") if p.is_file()]
  hint = nearest(name, others) if others else "; give a Python file"
  if path.stem in own:
    hint = f"; for the config of the package, give --config={path.stem}"
  raise UserError(f"--config: there is no file {name}{hint}")


def _check_encoding(path: Path) -> None:
  """Raises a UserError for encodings about which Python only reports null bytes."""
  with path.open("rb") as file:
    head = file.read(1 << 16)
  kind = marked_encoding(head)
  if not kind and b"\0" in head:
    kind = "binary, or UTF-16 or UTF-32 without a byte order mark"
  if kind:
    raise UserError(f"--config: {path} is {kind}: save it as text in UTF-8")


def override(config: ConfigDict, argv: list[str], known: list[str]) -> None:
  """Applies flags --config.KEY=VALUE; values are cast to the type of the key.

  Args:
    config: changed in place.
    argv: the program and its remaining arguments.
    known: the program's other flags, for suggestions in error messages.

  Raises:
    UserError: a key is unknown, a value is ill-typed, or there is another argument.
  """
  kinds: dict[str, type] = {}
  words = iter(argv[1:])
  for word in words:
    if match := re.match(r"--?(no)?config\.([^=]*)(=?)", word):
      negation, key, has_value = match.groups()
      kinds[key] = _kind(config, key)
      if negation and (has_value or kinds[key] is not bool):
        raise UserError(
          f"{word}: the prefix 'no' is for keys of type bool and takes no value; set "
          f"--config.{key}=VALUE"
        )
      if not (has_value or kinds[key] is bool):
        next(words, None)  # the value, which may begin with a minus sign
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
    raise UserError(f"{flag}: the value must be of type {kind.__name__}") from error
  except flags.Error as error:
    raise UserError(str(error)) from error
  if stray:
    raise UserError(f"unexpected argument {stray[0]!r}; flags begin with --")


def _kind(config: ConfigDict, key: str) -> type:
  """The type of the value at a dotted key."""
  if key.endswith(".name"):
    raise UserError(
      f"--config.{key} cannot be set: choose it after the colon of --config=CONFIG:ARG"
      ", or in a config file of your own"
    )
  value = config
  for name in key.split("."):
    if not isinstance(value, ConfigDict):
      raise UserError(
        f"--config.{key}: the key before {name!r} is not a block; drop {name!r} and "
        "what follows"
      )
    if name not in value:
      raise UserError(f"--config.{key}: there is no key {name!r}{nearest(name, value)}")
    value = value[name]
  if isinstance(value, ConfigDict):
    raise UserError(f"--config.{key} is a block; set one of its keys: {listed(value)}")
  return type(value)


def _place(path: Path, error: BaseException) -> str:
  """File and line of a config where an error was raised."""
  frames = traceback.extract_tb(error.__traceback__)
  own = [f.lineno for f in frames if Path(f.filename) == path]
  if own:
    return f"{path}, line {own[-1]}"
  if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
    return f"{path}, line {error.lineno}"
  return str(path)
