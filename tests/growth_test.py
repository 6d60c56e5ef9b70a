"""A run of any length takes as much memory as a short one."""

import gc
import logging
import pathlib
import sys

import pytest

from largevocab import main

REPOSITORY = pathlib.Path(__file__).parents[1]


class Blocks(logging.Handler):
  """How many blocks of memory Python has when the lines of these steps are logged."""

  def __init__(self, *steps):
    super().__init__()
    self.starts = tuple(f"step {step}/" for step in steps)
    self.found = []

  def emit(self, record):
    if record.getMessage().startswith(self.starts):
      gc.collect()
      self.found.append(sys.getallocatedblocks())


@pytest.mark.long
def test_nothing_is_kept_of_a_step_or_of_its_line(tmp_path):
  """Without checkpoints: of each of these tensorstore keeps some kilobytes.

  They are Python objects that its `to_json` makes, with a reference too many to each.
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
  assert last - first < 1000  # in 1500 steps
