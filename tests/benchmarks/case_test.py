"""The check that both sides of a comparison agree."""

import numpy as np
import pytest

from benchmarks.case import check_close

WANT = [np.array([1.0, -4.0]), np.array([2.0])]


def test_error_is_the_largest_of_all_leaves():
  got = [np.array([1.0, -4.2]), np.array([2.01])]
  assert check_close(got, WANT, 0.06) == pytest.approx(0.05)
  with pytest.raises(AssertionError, match=r"differ by 0\.05"):
    check_close(got, WANT, 0.04)


@pytest.mark.parametrize("leaf", [0, 1])
def test_nan_in_any_leaf_is_a_difference(leaf):
  got = [x.copy() for x in WANT]
  got[leaf][0] = np.nan
  with pytest.raises(AssertionError, match="differ by nan"):
    check_close(got, WANT, 0.5)
