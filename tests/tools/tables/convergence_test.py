"""Slopes at the end of curves whose slope is known."""

import math

import pytest

from largevocab.tools.tables.convergence import cell, change_at_end


def curve(nll, steps=1000, every=20):
  return [[s, nll(s), float(s)] for s in range(every, steps + 1, every)]


def test_a_line_changes_by_a_tenth_of_its_slope():
  falling = curve(lambda step: 6 - 0.001 * step)
  assert change_at_end(falling, 1000) == pytest.approx(-0.1)
  assert cell([{"steps": 1000, "curve": falling}]) == "-9.5 %"


def test_what_has_come_to_its_end_changes_no_more():
  ended = curve(lambda step: 5 + 3 * math.exp(-step / 50))
  assert cell([{"steps": 1000, "curve": ended}]) == "-0.0 %"
  rising = curve(lambda step: 5 + max(0, step - 900) / 1000)
  assert change_at_end(rising, 1000) > 0.05


def test_only_the_last_tenth_counts():
  cliff = curve(lambda step: 9.0 if step < 900 else 5.0)
  assert change_at_end(cliff, 1000) == 0


def test_two_points_are_needed_there():
  sparse = curve(lambda step: 1 / step, every=200)
  assert change_at_end(sparse, 1000) is None
  assert cell([{"steps": 1000, "curve": sparse}]) == "-"
  assert change_at_end([], 1000) is None


def test_a_point_that_was_measured_twice_is_one():
  assert change_at_end([[1000, 5.0, 1.0], [1000, 4.0, 1.0]], 1000) is None


def test_seeds_are_averaged_and_labels_told_in_points():
  rows = [
    {"steps": 1000, "curve_p@1": curve(lambda s, slope=slope: slope * s)}
    for slope in (1e-4, 3e-4)
  ]
  assert cell(rows) == "+2.0 points"
