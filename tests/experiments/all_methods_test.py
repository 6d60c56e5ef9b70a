"""all_methods: its methods are registered, and every run is finished and timed."""

import pathlib
import runpy

import pytest

from largevocab.config import head_names
from largevocab.samplers import SAMPLERS
from largevocab.tools.sweeps import records, sweepfile

HERE = pathlib.Path(__file__).parents[2] / "experiments" / "all_methods"
SWEEP = runpy.run_path(str(HERE / "sweep.py"))
METHODS = SWEEP["METHODS"]
LOADED = sweepfile.load(HERE / "sweep.py")
ROWS = {
  row["name"]: row
  for row in LOADED.complete(records.load(HERE / "results.jsonl"))
  if not row.get("baseline")
}


def test_methods_are_in_the_registries():
  paths = [path for path, *_ in METHODS.values()]
  assert {path.partition("/")[0] for path in paths} <= set(head_names())
  sampled = {path.partition("/")[2] for path in paths if path.startswith("sampled/")}
  assert sampled <= set(SAMPLERS)


def test_every_run_is_finished_and_timed():
  names = {run.name for run in LOADED.runs}
  assert set(ROWS) == names == set(SWEEP["TIMES"])


def test_pace_converts_between_steps_and_seconds():
  pace = SWEEP["Pace"](10, 100, [1, 2, 4])
  assert [pace.seconds(n) for n in (0, 1, 3, 4, 9)] == [0, 0.11, 0.23, 0.34, 0.39]
  assert [pace.steps(t) for t in (0.11, 0.23, 0.39)] == pytest.approx([1, 3, 9])
  assert pace.steps(0.05) == 1  # it is still rebuilding


def test_curves_are_interpolated_between_their_points():
  curve = [[10, 2.0, 0], [20, 1.0, 30]]
  assert [SWEEP["at"](curve, step) for step in (10, 15, 20)] == [2.0, 1.5, 1.0]
  assert SWEEP["at"](curve, 9) is None
  assert SWEEP["at"](curve, 21) is None
