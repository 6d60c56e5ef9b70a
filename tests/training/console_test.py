"""How programs end, and what they print."""

import asyncio
import gc
import logging
import os
import sys

import jax.numpy as jnp
import pytest

from largevocab.errors import UserError
from largevocab.training import console


def fail_with(error):
  def program():
    raise error

  return program


def read_missing():
  with open("/no/such/file", encoding="utf-8"):
    pass


@pytest.mark.parametrize(
  ("program", "status", "words"),
  [
    (fail_with(UserError("a.b is 3;\n  use 4")), 1, "a.b is 3; use 4"),
    (read_missing, 1, "/no/such/file: No such file"),
    (
      fail_with(KeyboardInterrupt()),
      130,
      "interrupted; the same command goes on from what is saved",
    ),
    (lambda: jnp.zeros((10**5, 10**5, 10**4)), 1, "out of memory; lower"),
  ],
)
def test_user_error_is_reported_in_one_line(program, status, words, capsys):
  assert console.run(program) == status
  out, err = capsys.readouterr()
  assert out == ""
  (line,) = err.splitlines()
  assert line.startswith(f"error: {words}")


@pytest.mark.parametrize(
  "error", [RuntimeError("ours"), ValueError("ours"), KeyError(3)]
)
def test_bugs_keep_their_traceback(error):
  with pytest.raises(type(error)):
    console.run(fail_with(error))


def test_only_log_lines_of_largevocab_are_shown(capsys):
  def program():
    logging.getLogger("largevocab").info("one of ours")
    logging.getLogger("absl").error("one of theirs")

  for _ in range(2):
    assert console.run(program) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(" one of ours\n")
    assert err.count("\n") == 1


def test_system_exit_passes_through():
  def program():
    raise SystemExit(143)

  with pytest.raises(SystemExit, match="143"):
    console.run(program)
  assert os.environ["TF_CPP_MIN_LOG_LEVEL"]


def test_errors_of_abandoned_reads_and_writes_stay_hidden(monkeypatch):
  shown = []
  monkeypatch.setattr(sys, "unraisablehook", shown.append)

  class LeftBehind:
    def __init__(self, message):
      self.message = message

    def __del__(self):
      raise RuntimeError(self.message)

  for _ in range(2):
    assert console.run(lambda: None) == 0
  LeftBehind("Event loop is closed")
  LeftBehind("Encountered error while reading array index: (). See full TensorStore")
  assert not shown
  LeftBehind("something else")
  assert len(shown) == 1


def test_errors_of_abandoned_tasks_stay_hidden(caplog):
  caplog.set_level(logging.ERROR, "asyncio")  # restored at the end

  async def fail():
    raise ValueError("disk is full")

  async def leave_behind():
    left = asyncio.create_task(fail())
    await asyncio.sleep(0.01)
    del left
    gc.collect()

  asyncio.run(leave_behind())
  assert "Task exception was never retrieved" in caplog.text
  caplog.clear()
  assert console.run(lambda: None) == 0
  asyncio.run(leave_behind())
  assert not caplog.records
