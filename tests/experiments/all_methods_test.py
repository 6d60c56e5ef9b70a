"""all_methods: every method is in it, and its page says what came out."""

import runpy

import pytest

from largevocab.heads import HEADS
from largevocab.samplers import SAMPLERS
from tests.claims import ROOT

HERE = ROOT / "experiments" / "all_methods"
SWEEP = runpy.run_path(str(HERE / "sweep.py"))


def test_every_head_and_every_sampler_is_in_it():
  paths = [path for path, *_ in SWEEP["METHODS"].values()]
  assert {path.partition("/")[0] for path in paths} == set(HEADS)
  sampled = {path.partition("/")[2] for path in paths if path.startswith("sampled/")}
  assert sampled == set(SAMPLERS)


def test_pace():
  pace = SWEEP["Pace"](10, 100, [1, 2, 4])
  assert [pace.seconds(n) for n in (0, 1, 3, 4, 9)] == [0, 0.11, 0.23, 0.34, 0.39]
  assert [pace.steps(t) for t in (0.11, 0.23, 0.39)] == pytest.approx([1, 3, 9])
  assert pace.steps(0.05) == 1  # it is rebuilding


def test_curves_are_read_between_their_points():
  curve = [[10, 2.0, 0], [20, 1.0, 30]]
  assert [SWEEP["at"](curve, step) for step in (10, 15, 20)] == [2.0, 1.5, 1.0]
  assert SWEEP["at"](curve, 9) is None
  assert SWEEP["at"](curve, 21) is None
