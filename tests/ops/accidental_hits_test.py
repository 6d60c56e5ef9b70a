import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.accidental_hits import is_first, is_member

# Widths on both sides of that from which sets are sorted.
WIDTHS = [1, 7, 32, 33, 100]


def ids(num, width, below):
  return np.random.default_rng(width).integers(0, below, (num, width))


@pytest.mark.parametrize("width", WIDTHS)
def test_first_occurrences(width):
  ids_NP = ids(5, width, below=width)  # a third of them are repetitions
  ids_NP[0], ids_NP[1] = 3, np.arange(width)[::-1]
  want = [[x not in row[:i] for i, x in enumerate(row)] for row in ids_NP.tolist()]
  np.testing.assert_array_equal(is_first(jnp.asarray(ids_NP)), want)


@pytest.mark.parametrize("width", WIDTHS)
def test_membership_in_a_set_for_each_row(width):
  ids_NM, set_NS = ids(5, 11, below=2 * width), ids(5, width, below=2 * width)
  want = [np.isin(ids_M, set_S) for ids_M, set_S in zip(ids_NM, set_NS, strict=True)]
  np.testing.assert_array_equal(is_member(ids_NM, set_NS), want)


@pytest.mark.parametrize("width", WIDTHS)
def test_membership_in_one_set_for_all_rows(width):
  ids_NM, set_S = ids(5, 11, below=2 * width), ids(1, width, below=2 * width)[0]
  got = is_member(jnp.asarray(ids_NM), jnp.asarray(set_S)[None])
  np.testing.assert_array_equal(got, np.isin(ids_NM, set_S))
