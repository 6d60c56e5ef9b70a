"""Rank correlations under a paired bootstrap, over word pairs and over seeds.

A resample has the same number of pairs as the data, drawn with replacement. It has the
same pairs for all methods, so that common effects cancel in a difference. Ranks are
computed anew within a resample. If a method has n runs, n of them are also drawn with
replacement, separately for each method, and their correlations are averaged. The 2.5 %
and 97.5 % quantiles over all resamples are the percentile interval.

With few runs of a method, the interval is too narrow, since the variance between n runs
is taken to be (n - 1) / n of its unbiased estimate. With one run, the interval is for
this run, and says nothing about other seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.05
CHUNK = 64  # number of resamples that are ranked at once


class Interval(NamedTuple):
  """A value, and the ends of its 95 % interval."""

  value: float
  low: float
  high: float


class Bootstrap(NamedTuple):
  """Mean rank correlations of M methods.

  Attributes:
    rho_M: f64[M], mean correlations over all pairs and all runs.
    rho_BM: f64[B, M], mean correlations in each of B resamples.
  """

  rho_M: np.ndarray
  rho_BM: np.ndarray

  def of(self, method: int) -> Interval:
    """The correlation of a method."""
    return interval(self.rho_M[method], self.rho_BM[:, method])

  def difference(self, method: int, other: int) -> Interval:
    """The correlation of a method minus that of another method."""
    rho_M, rho_BM = self
    return interval(rho_M[method] - rho_M[other], rho_BM[:, method] - rho_BM[:, other])


def interval(value: float, resampled_B: np.ndarray) -> Interval:
  """The percentile interval of a value from its resamples.

  >>> interval(50.0, np.arange(101.0))
  Interval(value=50.0, low=2.5, high=97.5)
  """
  low, high = np.quantile(resampled_B, [LEVEL / 2, 1 - LEVEL / 2])
  return Interval(float(value), float(low), float(high))


def paired(
  cosines: Sequence[np.ndarray], score_R: np.ndarray, resamples: int, seed: int = 0
) -> Bootstrap:
  """Resamples the pairs for all methods together, and the runs of each method.

  Args:
    cosines: for each method, f64[S, R], the cosines of R pairs in S runs.
    score_R: f64[R], human similarity scores.
    resamples: B.
    seed: seed of the draws.

  Source: Efron 1979.

  Cost: O(B S R log R), and memory for a few resamples at a time.

  >>> paired([np.array([[3.0, 2, 1]])], np.array([3.0, 2, 1]), resamples=2).rho_M
  array([1.])
  """
  rng = np.random.default_rng(seed)
  num_pairs = len(score_R)
  at_1R = np.arange(num_pairs)[None]
  rho_M = [rank_correlations(x_SR, score_R, at_1R).mean() for x_SR in cosines]
  rho_BM = np.empty((resamples, len(cosines)))
  for start in range(0, resamples, CHUNK):
    rho_bM = rho_BM[start : start + CHUNK]
    at_bR = rng.integers(num_pairs, size=(len(rho_bM), num_pairs))
    for m, x_SR in enumerate(cosines):
      rho_Sb = rank_correlations(x_SR, score_R, at_bR)
      run_Sb = rng.integers(len(x_SR), size=rho_Sb.shape)
      rho_bM[:, m] = np.take_along_axis(rho_Sb, run_Sb, axis=0).mean(axis=0)
  return Bootstrap(np.array(rho_M), rho_BM)


def rank_correlations(
  x_SR: np.ndarray, score_R: np.ndarray, at_BR: np.ndarray
) -> np.ndarray:
  """Spearman's rank correlations f64[S, B] of runs with scores, within resamples.

  Ties have their mean rank. If all cosines or all scores are equal, the result is 0.

  Args:
    x_SR: f64[S, R], cosines.
    score_R: f64[R], scores.
    at_BR: int[B, R], the pairs of each resample.
  """
  x_SBR, y_BR = _centred_ranks(x_SR[:, at_BR]), _centred_ranks(score_R[at_BR])
  dot_SB = np.einsum("sbr,br->sb", x_SBR, y_BR)
  norm_SB = np.linalg.norm(x_SBR, axis=-1) * np.linalg.norm(y_BR, axis=-1)
  return dot_SB / np.where(norm_SB > 0, norm_SB, 1)


def _centred_ranks(x: np.ndarray) -> np.ndarray:
  """Ranks along the last axis, minus their mean."""
  return stats.rankdata(x, axis=-1) - (x.shape[-1] + 1) / 2
