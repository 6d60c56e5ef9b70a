"""Entry points of scripts: flags, exit status, and one-line error messages."""

import argparse
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from largevocab.errors import UserError, message_of
from largevocab.tools.sweeps import records

MOST = 10**9  # largest count on a command line


class Parser(argparse.ArgumentParser):
  """A parser of flags whose help shows a script's docstring without reformatting.

  Rejects `--flag=--`, which argparse treats as a flag without a value.
  """

  def __init__(self, description: str | None):
    super().__init__(
      description=description,
      formatter_class=argparse.RawDescriptionHelpFormatter,
      allow_abbrev=False,
    )

  def parse_known_args(self, args=None, namespace: Any = None) -> Any:
    for given in sys.argv[1:] if args is None else args:
      flag, _, value = given.partition("=")
      if flag.startswith("--") and value == "--":
        self.error(f"argument {flag}: expected one argument")
    return super().parse_known_args(args, namespace)


def run(name: str, main: Callable[[], int]) -> int:
  """Runs a script's `main`; prints user errors in one line and returns status 1."""
  try:
    return main()
  except KeyboardInterrupt:
    return 130
  except Exception as error:
    message = message_of(error)
    if message is None:
      raise
  print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
  return 1


def check_output(path: pathlib.Path | None) -> None:
  """Checks that records can go to the file of --output, if one is given.

  This is checked before the records are measured. Makes the directory of the file.

  Raises:
    UserError: the path is a directory, or the file holds something other than records
      of runs.
  """
  if path is None:
    return
  check_file(path, "--output", ".jsonl")
  if path.exists():
    records.load(path, ["run"])


def check_file(path: pathlib.Path, flag: str, suffix: str) -> None:
  """Checks that a flag names a file that can be written, and makes its directory.

  Raises:
    UserError: the path is a directory; the message names the suffix of a file.
  """
  if path.is_dir():
    raise UserError(f"{flag}={path} is a directory: name a {suffix} file")
  path.parent.mkdir(parents=True, exist_ok=True)


def check_counts(args: argparse.Namespace, *names: str, least: int = 1) -> None:
  """Checks that integer flags, or lists of integers, are in range; ignores None.

  Raises:
    UserError: a value is out of range; the message names the flag.

  >>> check_counts(argparse.Namespace(jobs=2, dims=[3, 4]), "jobs", "dims")
  """
  for name in names:
    given = getattr(args, name)
    for value in given if isinstance(given, list) else [given]:
      if value is not None and not least <= value <= MOST:
        what = "positive" if least == 1 else f"at least {least}"
        what = what if value < least else f"at most {MOST:,}"
        raise UserError(f"--{name}={value}: must be {what}")
