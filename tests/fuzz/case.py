"""Cases, and how their programs ended."""

import pathlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
MAIN = "largevocab/main.py"
# In arguments and environment: the directory of the case.
HERE = "{here}"


class Done(NamedTuple):
  """How a program ended.

  Attributes:
    ending: 'exit', 'hang' (it was killed) or 'crash' (it died).
    status: of an exit.
    out, err: what it wrote.
    seconds: that it took.
  """

  ending: str
  status: int
  out: str
  err: str
  seconds: float


def filled(text: str, here: pathlib.Path) -> str:
  """An argument with the directory of the case in place of HERE."""
  return text.replace(HERE, str(here))


def no_files(here: pathlib.Path) -> None:
  """Makes no files."""


def nothing_more(here: pathlib.Path, done: Done) -> str:
  """Of a program of which nothing is known but that it may end with status 0."""
  return ""


@dataclass(frozen=True)
class Case:
  """A program to be run, and what must come of it.

  Attributes:
    id: kind and number, as in 'keys-17'.
    about: what is tried, in a few words; faults are listed by it.
    argv: its arguments; HERE is the directory of the case.
    script: of the repository, or an absolute path.
    prepare: makes the files in the directory of the case.
    must_fail: status 0 would be nonsense.
    names: what the line of an error must contain if it must fail.
    check: what is wrong with an end with status 0, in words; '' if nothing.
    then: arguments to run the script with after a status 0; its end is judged.
    stdin: None: closed.
    encoding: of its stdout.
    env: of the environment.
  """

  id: str
  about: str
  argv: list[str]
  script: str = MAIN
  prepare: Callable[[pathlib.Path], None] = no_files
  must_fail: bool = False
  names: tuple[str, ...] = ()
  check: Callable[[pathlib.Path, Done], str] = nothing_more
  then: list[str] = field(default_factory=list)
  stdin: bytes | None = b""
  encoding: str = "utf-8"
  env: dict[str, str] = field(default_factory=dict)

  @property
  def kind(self) -> str:
    return self.id.rpartition("-")[0]

  def at(self, here: pathlib.Path) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the case in a directory."""
    env = {"LARGEVOCAB_CACHE": f"{HERE}/cache", **self.env}
    argv = [filled(word, here) for word in self.argv]
    return argv, {key: filled(value, here) for key, value in env.items()}

  def command(self, here: pathlib.Path) -> str:
    """A shell command that does the same."""
    argv, env = self.at(here)
    program = [self.script]
    if self.script.startswith("largevocab/"):
      program = ["-m", self.script.removesuffix(".py").replace("/", ".")]
    settings = [f"{key}={shlex.quote(value)}" for key, value in env.items()]
    words = [
      arg.encode(errors="surrogateescape").decode(errors="replace") for arg in argv
    ]
    return " ".join([*settings, "python", *program, shlex.join(words)])
