"""How a script begins and ends: with flags, with a status, and with one line for what
its user can mend."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import jax

from largevocab.errors import UserError

MOST = 10**9  # of what is counted on a command line


class Parser(argparse.ArgumentParser):
  """Of the flags of a script, whose docstring is its help as it stands.

  Refuses `--flag=--`, which argparse takes for a flag without its value.
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
  """Runs a script's `main`; what its user can mend is told in one line, status 1."""
  try:
    return main()
  except UserError as error:
    message = str(error)
  except OSError as error:
    place = f"{error.filename}: " if error.filename else ""
    message = f"{place}{error.strerror or error}"
  except (MemoryError, OverflowError, jax.errors.JaxRuntimeError) as error:
    first = str(error).partition("\n")[0][:200]
    message = f"too large for this machine; ask for less ({first})"
  except KeyboardInterrupt:
    return 130
  print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
  return 1


def check_counts(args: argparse.Namespace, *names: str, least: int = 1) -> None:
  """That whole numbers, or lists of them, are in range; None stands for a default.

  Raises:
    UserError: names the flag.

  >>> check_counts(argparse.Namespace(jobs=2, dims=[3, 4]), "jobs", "dims")
  """
  for name in names:
    given = getattr(args, name)
    for value in given if isinstance(given, list) else [given]:
      if value is not None and not least <= value <= MOST:
        what = "positive" if least == 1 else f"at least {least}"
        what = what if value < least else f"at most {MOST:,}"
        raise UserError(f"--{name}={value}: must be {what}")
