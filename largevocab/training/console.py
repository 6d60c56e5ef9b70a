"""Writes terminal output: log lines on stderr, and user errors as single lines."""

import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from largevocab.errors import UserError, message_of


def run(program: Callable[[], None]) -> int:
  """Runs a program and returns its exit status; prints a UserError in one line.

  Other exceptions are bugs of this package, and keep their traceback.
  """
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  with _log_to_stderr():
    try:
      program()
      return 0
    except KeyboardInterrupt:
      return _fail("interrupted; the same command goes on from what is saved", 130)
    except Exception as error:
      smaller = (
        "lower train.batch_size, train.unroll or the sizes of the model and the head"
      )
      message = message_of(error, smaller)
      if message is None:
        raise
      return _fail(message)


def say(content: dict[str, Any]) -> None:
  """Prints an object as a line of JSON, flushed.

  The line is plain ASCII if the encoding of standard output lacks some characters.

  Raises:
    UserError: standard output is closed, or cannot be written to.
  """
  if sys.stdout is None:
    raise UserError("standard output is closed; direct it to a file or a terminal")
  line = json.dumps(content, ensure_ascii=False)
  try:
    line.encode(sys.stdout.encoding or "ascii")
  except UnicodeEncodeError:
    line = json.dumps(content)
  try:
    print(line, flush=True)
  except OSError as error:
    # Otherwise flushing the buffer of standard output would fail again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise UserError(f"cannot write to standard output: {error.strerror}") from error


@contextmanager
def _log_to_stderr() -> Iterator[None]:
  """Shows the log lines of this package only, since checkpointing logs a lot.

  Errors of checkpointing are raised, too.
  """
  import absl.logging

  handler = logging.StreamHandler()
  handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
  log = logging.getLogger("largevocab")
  log.addHandler(handler)
  log.setLevel(logging.INFO)
  log.propagate = False
  absl.logging.set_verbosity(absl.logging.FATAL)
  _hush_late_failures()
  try:
    yield
  finally:
    log.removeHandler(handler)
    log.propagate = True


# Messages of reads and writes that orbax abandons when another one fails.
_LATE = ("Event loop is closed", "Encountered error while reading array index")


def _hush_late_failures() -> None:
  """Hides errors of reads and writes that are abandoned after a failed save or restore.

  Such reads and writes find their event loop closed, or fail for the same reason as the
  first one. Only asyncio logs their errors, some of them at exit, so this stays in
  effect until then.
  """
  show = sys.unraisablehook
  if getattr(show, "func", None) is not _show_others:
    sys.unraisablehook = functools.partial(_show_others, show)
  logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _show_others(
  show: "Callable[[sys.UnraisableHookArgs], object]",
  unraisable: "sys.UnraisableHookArgs",
) -> None:
  if not str(unraisable.exc_value).startswith(_LATE):
    show(unraisable)


def _fail(message: str, status: int = 1) -> int:
  print(f"error: {' '.join(message.split())}", file=sys.stderr)
  return status
