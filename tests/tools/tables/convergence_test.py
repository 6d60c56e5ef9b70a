"""Slopes at the end of curves with known slopes."""

import math

import pytest

from largevocab.tools.tables.convergence import at_one_place, cell, change_at_end


def curve(nll, steps=1000, every=20):
  return [[s, nll(s), float(s)] for s in range(every, steps + 1, every)]


def test_straight_line_changes_by_a_tenth_of_its_slope():
  falling = curve(lambda step: 6 - 0.001 * step)
  assert change_at_end(falling, 1000) == pytest.approx(-0.1)
  assert cell([{"steps": 1000, "curve": falling}]) == "-9.5 %"


def test_converged_curve_does_not_change():
  ended = curve(lambda step: 5 + 3 * math.exp(-step / 50))
  assert cell([{"steps": 1000, "curve": ended}]) == "-0.0 %"
  rising = curve(lambda step: 5 + max(0, step - 900) / 1000)
  assert change_at_end(rising, 1000) > 0.05


def test_only_the_last_tenth_counts():
  cliff = curve(lambda step: 9.0 if step < 900 else 5.0)
  assert change_at_end(cliff, 1000) == 0


def test_points_at_the_same_place_of_an_epoch_are_compared():
  def zigzag(step):  # every other evaluation is at the end of an epoch
    return 5 - step / 1e4 - (0.3 if step % 100 else 0.0)

  points = curve(zigzag, steps=700, every=50)  # seven epochs
  assert change_at_end(points, 700, every=0.5) == pytest.approx(-0.007)
  assert change_at_end(points, 700, every=0.0) > 0.1
  row = {"steps": 700, "curve": points, "overrides": {"eval.every_epochs": 0.5}}
  assert cell([row]) == "-0.7 %"


@pytest.mark.parametrize(
  ("every", "steps", "there"),
  [
    (0.3, [30, 60, 90, 120, 150, 180, 210, 240, 270, 300], [300]),
    (0.6, [46, 92, 138, 184, 230, 231], [231]),  # of 77 steps an epoch
    (0.5, [1160, 2320, 3480, 4640, 4642], [2320, 4642]),  # of 2,321
    (1.5, [150, 300, 450, 600], [300, 600]),
    (1.0, [100, 200, 300, 400], [100, 200, 300, 400]),
    (0.25, [25, 50, 75, 125, 150, 175, 200], [200]),  # one was not finite
  ],
)
def test_evaluations_at_one_place_of_an_epoch(every, steps, there):
  assert at_one_place(steps, every) == there


def test_steps_within_one_epoch_have_no_common_place():
  row = {"steps": 1000, "overrides": {"eval.every_epochs": 0.01}}
  assert cell([row | {"curve": curve(lambda step: 6 - 0.001 * step)}]) == "-9.5 %"


def test_last_two_count_if_evaluations_are_rare():
  assert change_at_end([[820, 5.0, 1.0], [1000, 4.1, 2.0]], 1000) == pytest.approx(-0.5)


def test_rare_evaluations_need_two_points_at_the_end():
  sparse = curve(lambda step: 1 / step, every=250)
  assert change_at_end(sparse, 1000) is None
  assert cell([{"steps": 1000, "curve": sparse}]) == "-"
  assert change_at_end([], 1000) is None


def test_point_measured_twice_counts_once():
  assert change_at_end([[1000, 5.0, 1.0], [1000, 4.0, 1.0]], 1000) is None


def test_seeds_are_averaged_and_precision_is_in_points():
  rows = [
    {"steps": 1000, "curve_p@1": curve(lambda s, slope=slope: slope * s)}
    for slope in (1e-4, 3e-4)
  ]
  assert cell(rows) == "+2.0 points"
