"""What the tests of samplers share: the chi-square test."""

import numpy as np
import pytest
import scipy.stats


@pytest.fixture(scope="session")
def chi_square():
  """p-value of independent draws under a law; cells expected below 5 are pooled."""

  def p_value(ids, law_V) -> float:
    law_V = np.asarray(law_V, np.float64)
    ids = np.asarray(ids).ravel()
    count_V = np.bincount(ids, minlength=len(law_V))
    enough_V = law_V * len(ids) >= 5
    counts = np.append(count_V[enough_V], count_V[~enough_V].sum())
    expected = np.append(law_V[enough_V], law_V[~enough_V].sum()) * len(ids)
    if expected[-1] == 0:
      assert counts[-1] == 0
      counts, expected = counts[:-1], expected[:-1]
    expected *= len(ids) / expected.sum()
    return scipy.stats.chisquare(counts, expected).pvalue

  return p_value
