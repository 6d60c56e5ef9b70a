"""The experiment of a sweep's run, with the data of this machine."""

import pathlib
from collections.abc import Sequence
from typing import Protocol

from ml_collections import ConfigDict
from sweepfile import Run

from largevocab import command_line

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


class Setting(Protocol):
  """A setting for those runs whose config takes it."""

  @property
  def flag(self) -> str: ...

  def is_for(self, run: Run) -> bool: ...


def settings_of(run: Run, settings: Sequence[Setting]) -> ConfigDict:
  """What `largevocab.config.build` builds: the run's config, overridden."""
  _, *flags = run.flags()
  flags += [each.flag for each in settings if each.is_for(run)]
  block = command_line.load(str(REPOSITORY / run.config))
  command_line.override(block, ["of_run", *flags], known=[])
  return block
