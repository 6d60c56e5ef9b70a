"""The memory of a run does not grow with its length."""

import gc
import logging
import pathlib
import sys

import pytest

from largevocab import main

REPOSITORY = pathlib.Path(__file__).parents[1]


class Blocks(logging.Handler):
  """Counts Python's allocated blocks when the lines of given steps are logged."""

  def __init__(self, *steps):
    super().__init__()
    self.starts = tuple(f"step {step}/" for step in steps)
    self.found = []

  def emit(self, record):
    if record.getMessage().startswith(self.starts):
      gc.collect()
      self.found.append(sys.getallocatedblocks())


@pytest.mark.long
def test_steps_and_log_lines_do_not_accumulate_memory(tmp_path):
  """Without checkpoints, for each of which tensorstore keeps some kilobytes.

  Its `to_json` makes Python objects and leaks a reference to each.
  """
  settings = {
    "train.max_steps": 1700,
    "train.epochs": 10_000,
    "log.every_steps": 1,
    "log.monitor_every_steps": 0,
    "eval.every_epochs": 0,
    "checkpoint.every_steps": 10_000,
  }
  flags = [f"--config.{key}={value}" for key, value in settings.items()]
  config = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  blocks = Blocks(199, 1699)
  log = logging.getLogger("largevocab")
  log.addHandler(blocks)
  try:
    assert main.run(["main", config, f"--workdir={tmp_path}", *flags]) == 0
  finally:
    log.removeHandler(blocks)
  first, last = blocks.found
  assert last - first < 1000  # over 1500 steps
