import math
import time

import pytest

from largevocab.tools.reports import measure


def test_shortened_comparison_keeps_its_minimum_of_turns(monkeypatch):
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.0)
  add = lambda: math.fsum(range(10))
  with measure.shortened(0.0):
    short = measure.compare(add, add, seconds=0.2, min_turns=3)
  assert short["turns"] == 3
  begin = time.perf_counter()
  measure.compare(add, add, seconds=0.2, min_turns=3)
  assert time.perf_counter() - begin >= 0.2


def test_first_calls_take_no_time_from_a_comparison(monkeypatch):
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.0)
  calls = []

  def slow_at_first():
    time.sleep(0 if calls else 0.3)
    calls.append(None)

  figures = measure.compare(slow_at_first, lambda: None, seconds=0.1, min_turns=1)
  assert figures["turns"] > 1


@pytest.mark.parametrize(
  ("given", "has_many"),
  [("", True), ("glibc.malloc.hugetlb=1", False), ("glibc.malloc.hugetlb=0", True)],
)
def test_page_faults_are_recorded_as_the_environment_sets_them(
  monkeypatch, given, has_many
):
  monkeypatch.setenv("GLIBC_TUNABLES", given)
  assert measure.about_this_run()["page_faults"] is has_many
