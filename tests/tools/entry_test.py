"""What a script prints about an error, and its exit status."""

import errno
import os

import jax
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.tools import entry


def run(error):
  def main():
    raise error

  return entry.run("script", main)


@pytest.mark.parametrize(
  ("error", "says"),
  [
    (UserError("--k=0: must\nbe positive"), "--k=0: must be positive"),
    (OSError(errno.EACCES, "Denied", "a.txt"), "a.txt: Denied; change its perm"),
    (MemoryError("9 GiB"), "ask for less (9 GiB)"),
    (OverflowError("int too large"), "ask for less (int too large)"),
    (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB"), "ask for less"),
  ],
)
def test_user_error_is_one_line(capsys, error, says):
  assert run(error) == 1
  said = capsys.readouterr().err
  assert said.startswith("script: ")
  assert said.count("\n") == 1
  assert says in said


def test_too_large_array_is_one_line(capsys):
  assert entry.run("script", lambda: np.zeros([2**40, 2**40]).size) == 1
  assert "ask for less" in capsys.readouterr().err


@pytest.mark.parametrize(
  "error",
  [jax.errors.JaxRuntimeError("INTERNAL: a fault"), ValueError("x"), KeyError()],
)
def test_internal_error_keeps_its_traceback(error):
  with pytest.raises(type(error)):
    run(error)


def test_keyboard_interrupt_ends_with_status_130():
  assert run(KeyboardInterrupt()) == 130


def test_closed_pipe_is_one_line(capsys):
  assert run(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))) == 1
  assert capsys.readouterr().err == "script: Broken pipe\n"
