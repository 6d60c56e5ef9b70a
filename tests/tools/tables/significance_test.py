"""Marks of significance on data with a known truth."""

import math

import numpy as np
import pytest
from scipy import stats

from largevocab.tools.tables.significance import compared, of_pairs
from tests.long import others_long


def runs(values, metric="test_ppl", first=0, **fields):
  return [
    {"name": "a", "overrides": {"train.seed": seed}, metric: float(value), **fields}
    for seed, value in enumerate(values, start=first)
  ]


def test_interval_matches_the_paired_t_test():
  rng = np.random.default_rng(0)
  own, other = rng.normal(100, 5, 7), rng.normal(97, 5, 7)
  found = compared(runs(own), runs(other), "test_ppl")
  known = stats.ttest_rel(np.log(own), np.log(other))
  low, high = known.confidence_interval(0.95)
  assert found.mean == pytest.approx(np.mean(np.log(own / other)))
  assert (found.mean - found.half, found.mean + found.half) == pytest.approx(
    (low, high)
  )
  assert found.is_significant == (known.pvalue < 0.05)


def test_pairing_reveals_a_small_difference_beside_large_seed_effects():
  rng = np.random.default_rng(1)
  of_seed = rng.normal(0, 0.05, 5)
  own = np.exp(4.62 + of_seed + rng.normal(0, 0.001, 5))
  other = np.exp(4.60 + of_seed)
  found = compared(runs(own), runs(other), "test_ppl")
  assert found.is_significant
  assert found.mean == pytest.approx(0.02, abs=0.003)
  shuffled = compared(runs(own), runs(np.roll(other, 1)), "test_ppl")
  assert not shuffled.is_significant  # without pairing, nothing is significant


@pytest.mark.parametrize("num", others_long([2, 3, 5, 10], [3, 10]))
def test_noise_is_significant_at_the_nominal_rate(num):
  rng = np.random.default_rng(num)
  trials = 4000
  false = sum(
    of_pairs(noise).is_significant for noise in rng.normal(size=(trials, num))
  )
  # 5 %, give or take four standard deviations of a binomial.
  assert abs(false / trials - 0.05) < 4 * math.sqrt(0.05 * 0.95 / trials)


def test_only_common_seeds_are_compared():
  own, other = runs([100, 110], first=1), runs([50, 100, 110])
  assert compared(own, other, "test_ppl").mean == pytest.approx(0)
  assert compared(own, runs([50]), "test_ppl") is None


def test_one_seed_gives_no_interval():
  found = compared(runs([120]), runs([100]), "test_ppl")
  assert found.half is None
  assert not found.is_significant


def test_precision_is_compared_without_logs():
  found = compared(runs([0.5, 0.6], "p@1"), runs([0.4, 0.5], "p@1"), "p@1")
  assert found.mean == pytest.approx(0.1)


def test_baseline_has_one_value_for_all_seeds():
  counted = runs([195], baseline=True)
  found = compared(counted, runs([115, 116, 117]), "test_ppl")
  assert found.is_significant
  assert found.mean == pytest.approx(math.log(195 / 116), abs=1e-3)
  other_way = compared(runs([115, 116, 117]), counted, "test_ppl")
  assert other_way == (-found.mean, found.half)


def test_equal_seeds_show_no_difference():
  found = compared(runs([100, 101]), runs([100, 101]), "test_ppl")
  assert found == (0.0, 0.0)
  assert not found.is_significant


def test_infinite_values_are_left_out_of_pairs():
  found = compared(runs([math.inf, 100]), runs([100, 100]), "test_ppl")
  assert found == (0.0, None)


def test_baseline_with_several_data_seeds_is_paired_by_them():
  row = lambda ppl, **seeds: {"test_ppl": ppl, "overrides": seeds}
  counted = [
    row(200.0, **{"data.seed": seed}) | {"baseline": True, "test_ppl": ppl}
    for seed, ppl in ((0, 200.0), (1, 400.0))
  ]
  own = [
    row(100.0, **{"data.seed": 0, "train.seed": 0}),
    row(200.0, **{"data.seed": 1, "train.seed": 1}),
    row(999.0, **{"data.seed": 2}),  # no baseline was counted for this seed
  ]
  found = compared(own, counted, "test_ppl")
  assert found == pytest.approx((-math.log(2), 0))
  assert compared(counted, own, "test_ppl") == pytest.approx((math.log(2), 0))
