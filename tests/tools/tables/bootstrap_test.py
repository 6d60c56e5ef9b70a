"""The paired bootstrap of rank correlations, against all possible resamples."""

import itertools

import numpy as np
import pytest
from scipy import stats

from largevocab.tools.tables import bootstrap

RNG = np.random.default_rng(3)
SCORES = np.array([9.0, 4.0, 4.0, 1.0])
# A method with two runs and one with a single run; one of them has a tie.
METHODS = [
  np.array([[0.9, 0.1, 0.5, 0.2], [0.3, 0.3, 0.8, -0.1]]),
  np.array([[0.7, 0.2, 0.6, 0.1]]),
]


def naive(x_R, y_R):
  """Pearson's correlation of mean ranks; 0 if it is undefined."""
  rank = lambda x: [sum(a < b for a in x) + sum(a == b for a in x) / 2 for b in x]
  if len(set(x_R)) == 1 or len(set(y_R)) == 1:
    return 0.0
  return np.corrcoef(rank(x_R), rank(y_R))[0, 1]


def every_resample():
  """The correlations of both methods in each of the equally likely resamples."""
  found = []
  for at in itertools.product(range(4), repeat=4):
    at = list(at)
    runs = [[naive(x_R[at], SCORES[at]) for x_R in x_SR] for x_SR in METHODS]
    for drawn in itertools.product(runs[0], repeat=2):
      found.append([np.mean(drawn), runs[1][0]])
  return np.array(found)


def test_resamples_follow_the_law_of_all_resamples():
  resampled = bootstrap.paired(METHODS, SCORES, resamples=20_000)
  law = every_resample()
  by_hand = lambda rho_BM: np.column_stack([rho_BM, rho_BM[:, 0] - rho_BM[:, 1]])
  drawn, exact = by_hand(resampled.rho_BM), by_hand(law)
  for power in (1, 2):  # means and second moments, also of the difference
    error = (exact**power).std(axis=0) / np.sqrt(len(drawn))
    np.testing.assert_array_less(
      np.abs((drawn**power).mean(axis=0) - (exact**power).mean(axis=0)), 4 * error
    )
  # With independent pairs for each method, the difference would have another variance.
  independent = law[:, 0].var() + law[:, 1].var()
  assert abs(exact[:, 2].var() / independent - 1) > 0.1
  assert resampled.rho_M == pytest.approx(
    [np.mean([naive(x_R, SCORES) for x_R in x_SR]) for x_SR in METHODS]
  )


def test_correlations_within_resamples_match_scipy():
  x_SR, score_R = RNG.normal(size=(2, 30)), RNG.integers(6, size=30) * 1.0
  at_BR = RNG.integers(30, size=(5, 30))
  rho_SB = bootstrap.rank_correlations(x_SR, score_R, at_BR)
  expected = [
    [stats.spearmanr(x_R[at], score_R[at])[0] for at in at_BR] for x_R in x_SR
  ]
  np.testing.assert_allclose(rho_SB, expected, atol=1e-12)


def test_interval_of_a_difference_is_narrower_than_of_its_parts():
  score_R = RNG.normal(size=200)
  x_R = score_R + RNG.normal(size=200)
  near_R = x_R + 0.1 * RNG.normal(size=200)
  resampled = bootstrap.paired([x_R[None], near_R[None]], score_R, resamples=300)
  width = lambda interval: interval.high - interval.low
  for found in (resampled.of(0), resampled.of(1), resampled.difference(1, 0)):
    assert found.low < found.value < found.high
  assert width(resampled.difference(1, 0)) < width(resampled.of(0)) / 3
  same = bootstrap.paired([x_R[None]] * 2, score_R, resamples=10).difference(1, 0)
  assert same == (0, 0, 0)
