import math
import time

from largevocab.tools.reports import measure


def test_a_shortened_comparison_still_has_its_turns(monkeypatch):
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.0)
  add = lambda: math.fsum(range(10))
  with measure.shortened(0.0):
    short = measure.compare(add, add, seconds=0.2, min_turns=3)
  assert short["turns"] == 3
  begin = time.perf_counter()
  measure.compare(add, add, seconds=0.2, min_turns=3)
  assert time.perf_counter() - begin >= 0.2
