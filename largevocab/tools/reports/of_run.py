"""The config of a sweep's run, with the paths of data on this machine."""

from collections.abc import Sequence

from ml_collections import ConfigDict

from largevocab import command_line
from largevocab.tools.sweeps.launch import PathSetting
from largevocab.tools.sweeps.sweep_run import Run


def settings_of(run: Run, settings: Sequence[PathSetting]) -> ConfigDict:
  """The run's config with all overrides, for `largevocab.config.build`."""
  _, *flags = run.flags()
  flags += [each.flag for each in settings if each.is_for(run)]
  block = command_line.load(run.source)
  command_line.override(block, ["of_run", *flags], known=[])
  return block
