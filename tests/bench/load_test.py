"""How busy a machine is, by the ticks of its cores."""

import os

from largevocab.bench import load

BEFORE = """cpu  9 9 9 999 9 9 9 0 0 0
cpu0 100 0 20 800 80 0 0 0 5 0
cpu1 100 0 20 800 80 0 0 0 5 0
cpu2 100 0 20 800 80 0 0 0 5 0
intr 7
"""
# Of 100 ticks, the first core was busy for 50 and the second for 10. The third core,
# which belongs to others, was busy all the time.
AFTER = """cpu  9 9 9 999 9 9 9 0 0 0
cpu0 140 5 25 840 90 0 0 0 9 0
cpu1 100 0 20 880 90 10 0 0 5 0
cpu2 200 0 20 800 80 0 0 0 5 0
intr 8
"""


def test_busy_share_of_ticks_is_summed_over_own_cores(tmp_path, monkeypatch):
  stat = tmp_path / "stat"
  stat.write_text(BEFORE)
  monkeypatch.setattr(load, "_STAT", stat)
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
  clock = iter([(1.0, 1.0, 0.0, 0.0, 7.0), (1.0, 1.0, 0.0, 0.0, 8.0)])
  monkeypatch.setattr(os, "times", lambda: os.times_result(next(clock)))
  monkeypatch.setattr(load.time, "sleep", lambda _: stat.write_text(AFTER))
  assert load.busy_cores() == 0.6


def test_work_of_this_process_is_not_counted_as_others(tmp_path, monkeypatch):
  """It and its children worked for a quarter of a second within one second."""
  stat = tmp_path / "stat"
  stat.write_text(BEFORE)
  monkeypatch.setattr(load, "_STAT", stat)
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
  clock = iter([(1.0, 1.0, 0.0, 0.0, 7.0), (1.1, 1.05, 0.06, 0.04, 8.0)])
  monkeypatch.setattr(os, "times", lambda: os.times_result(next(clock)))
  others = load.Others()
  stat.write_text(AFTER)
  assert others.busy() == 0.35
  for busy, before, after in (
    (0.35, {"load": 0.2}, {"load": 0.35}),
    (0.35, {"load": 0.4}, {"load": 0.4}),
    (0.75, {"load": 0.4}, {"load": 0.75, "shared": True}),
    (None, {}, {}),
  ):
    monkeypatch.setattr(others, "busy", lambda busy=busy: busy)
    state = dict(before)
    others.note(state)
    assert state == after


def test_load_is_unknown_on_other_systems(tmp_path, monkeypatch):
  monkeypatch.setattr(load, "_STAT", tmp_path / "none")
  assert load.busy_cores(0.0) is None
