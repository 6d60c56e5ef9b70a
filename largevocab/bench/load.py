"""How busy a machine is before a run whose time is measured."""

import os
import pathlib
import time

import numpy as np

MOST = 0.5  # busy cores of a machine that counts as idle
_STAT = pathlib.Path("/proc/stat")


def busy_cores(seconds: float = 1.0) -> float | None:
  """How many of the cores that this process may use are busy, while it sleeps.

    sum over cores of 1 - (time idle or waiting) / time

  Unlike the load average this does not count a run that has just ended. None: the
  system has no /proc/stat that counts.
  """
  if not _STAT.exists():
    return None
  before = _times()
  time.sleep(seconds)
  after = _times()
  cores = [core for core in after if core in before and after[core] != before[core]]
  spent = [np.subtract(after[core], before[core]) for core in cores]
  return (
    round(float(sum(1 - idle / whole for idle, whole in spent)), 2) if cores else None
  )


def _times() -> dict[int, tuple[int, int]]:
  """Of each core the ticks that it was idle, and all."""
  found = {}
  for line in _STAT.read_text().splitlines():
    name, *ticks = line.split()
    number = name.removeprefix("cpu")
    if name != number and number.isdecimal() and int(number) in os.sched_getaffinity(0):
      spent = [int(each) for each in ticks[:8]]  # the fourth and fifth without work
      found[int(number)] = sum(spent[3:5]), sum(spent)
  return found
