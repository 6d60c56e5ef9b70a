"""How busy a machine is, by the ticks of its cores."""

import os

from largevocab.bench import load

BEFORE = """cpu  9 9 9 999 9 9 9 0 0 0
cpu0 100 0 20 800 80 0 0 0 5 0
cpu1 100 0 20 800 80 0 0 0 5 0
cpu2 100 0 20 800 80 0 0 0 5 0
intr 7
"""
# Of 100 ticks the first has worked 50, the second 10, the third, of others, all.
AFTER = """cpu  9 9 9 999 9 9 9 0 0 0
cpu0 140 5 25 840 90 0 0 0 9 0
cpu1 100 0 20 880 90 10 0 0 5 0
cpu2 200 0 20 800 80 0 0 0 5 0
intr 8
"""


def test_the_share_of_ticks_is_summed_over_own_cores(tmp_path, monkeypatch):
  stat = tmp_path / "stat"
  stat.write_text(BEFORE)
  monkeypatch.setattr(load, "_STAT", stat)
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
  monkeypatch.setattr(load.time, "sleep", lambda _: stat.write_text(AFTER))
  assert load.busy_cores() == 0.6


def test_of_another_system_nothing_is_known(tmp_path, monkeypatch):
  monkeypatch.setattr(load, "_STAT", tmp_path / "none")
  assert load.busy_cores() is None
