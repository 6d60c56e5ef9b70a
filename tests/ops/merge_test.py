import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops import merge
from tests.long import others_long

METHODS = [merge.merge_by_hash, merge.merge_by_sort, merge.merge_rows]


def _naive(ids_R, rows_RD, num_rows):
  dense_VD = np.zeros((num_rows, rows_RD.shape[1]))
  for i, row_D in zip(ids_R, rows_RD, strict=True):
    if i < num_rows:
      dense_VD[i] += row_D
  return dense_VD


IDS = [
  [3],
  [0, 0, 0],
  [5, 2, 5, 9, 2, 5],
  [10, 12, 3, 10],  # padding
  list(range(10)),
  (np.random.default_rng(0).zipf(1.3, 4000).clip(max=10) % 10).tolist(),
]


@pytest.mark.parametrize(
  ("method", "ids"),
  others_long(
    itertools.product(METHODS, IDS),
    [(METHODS[i % 3], ids) for i, ids in enumerate(IDS)],
  ),
)
def test_merge_sums_equal_ids_once(method, ids):
  num_rows = 10
  ids_R = np.asarray(ids, np.int32)
  rows_RD = np.random.default_rng(1).integers(-9, 9, (len(ids_R), 3)).astype(np.float32)
  merged = jax.jit(lambda i, r: method(i, r, num_rows=num_rows))
  out_R, out_RD = map(np.asarray, merged(ids_R, rows_RD))
  assert len(np.unique(out_R)) == len(out_R)
  np.testing.assert_array_equal(out_RD[out_R >= num_rows], 0)
  np.testing.assert_array_equal(
    _naive(out_R, out_RD, num_rows), _naive(ids_R, rows_RD, num_rows)
  )
  assert np.sum(out_R < num_rows) == len(np.unique(ids_R[ids_R < num_rows]))


@pytest.mark.parametrize("method", METHODS)
def test_merge_accepts_no_rows(method):
  ids_R, rows_RD = method(jnp.zeros(0, jnp.int32), jnp.zeros((0, 3)), num_rows=10)
  assert (ids_R.shape, rows_RD.shape) == ((0,), (0, 3))


def test_first_occurrence_with_a_million_possible_ids():
  ids_R = np.random.default_rng(0).integers(0, 2**31 - 1, 5000)
  ids_R = np.concatenate([ids_R, ids_R[::-1]]).astype(np.int32)
  _, first, inverse = np.unique(ids_R, return_index=True, return_inverse=True)
  got_R = merge.first_occurrence(jnp.asarray(ids_R))
  np.testing.assert_array_equal(got_R, first[inverse])


FIRST = [merge.first_occurrence, merge._first_occurrence_by_sort]


@pytest.mark.parametrize("first", FIRST)
def test_first_occurrence(first):
  ids_R = jnp.asarray([9, 2, 9, 2, 2, 5], jnp.int32)
  assert first(ids_R).tolist() == [0, 1, 0, 1, 1, 5]


def test_sums_of_equal_ids_equal_the_merged_rows():
  rng = np.random.default_rng(2)
  ids_R = rng.integers(0, 12, 200).astype(np.int32)
  rows_RD = rng.integers(-9, 9, (200, 3)).astype(np.float32)
  dense_VD = np.vstack([_naive(ids_R, rows_RD, 10), np.zeros((2, 3))])
  got_RD = jax.jit(merge.sums_of_equals, static_argnums=2)(ids_R, rows_RD, 10)
  np.testing.assert_array_equal(got_RD, dense_VD[ids_R])
