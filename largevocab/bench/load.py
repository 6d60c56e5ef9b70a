"""Measures how busy other programs keep a machine, before and during a timed run."""

import os
import pathlib
import time

import numpy as np

from largevocab.tools.sweeps.records import Record

MOST = 0.5  # maximum number of busy cores of a machine that counts as idle
_STAT = pathlib.Path("/proc/stat")


class Others:
  """The load of other programs, from now on, on the cores that this process may use.

  Programs that this process starts count as its own once they have ended.
  """

  def __init__(self):
    self._began = os.times(), _ticks()

  def busy(self) -> float | None:
    """The average number of cores that other programs have kept busy since the start.

      sum over cores of 1 - (time idle or waiting) / time, less the own share

    Unlike the load average, this does not count a run that ended before. It is None if
    the system has no /proc/stat with counts.
    """
    (own, before), now, after = self._began, os.times(), _ticks()
    spent = [np.subtract(after[core], before[core]) for core in after if core in before]
    cores = [1 - idle / whole for idle, whole in spent if whole]
    if not cores:
      return None
    own_share = (sum(now[:4]) - sum(own[:4])) / max(now.elapsed - own.elapsed, 1e-9)
    return max(round(float(sum(cores) - own_share), 2), 0.0)

  def note(self, state: Record) -> None:
    """Adds the load to the state of a machine, if it is higher than before."""
    busy = self.busy()
    if busy is not None:
      state["load"] = max(busy, state.get("load", busy))
      state |= {"shared": True} if busy > MOST else {}


def busy_cores(seconds: float = 1.0) -> float | None:
  """`Others.busy` while this process sleeps."""
  others = Others()
  time.sleep(seconds)
  return others.busy()


def _ticks() -> dict[int, tuple[int, int]]:
  """The idle ticks and all ticks of each core; empty if there is no /proc/stat."""
  found = {}
  for line in _STAT.read_text().splitlines() if _STAT.exists() else ():
    name, *ticks = line.split()
    number = name.removeprefix("cpu")
    if name != number and number.isdecimal() and int(number) in os.sched_getaffinity(0):
      spent = [int(each) for each in ticks[:8]]  # the fourth and fifth are without work
      found[int(number)] = sum(spent[3:5]), sum(spent)
  return found
