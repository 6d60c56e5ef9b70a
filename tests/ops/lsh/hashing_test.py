"""Hashes agree as often as theory says, and equal their definitions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from largevocab.ops.lsh import hashing, winner_take_all
from tests.long import others_long
from tests.ops.lsh import collisions
from tests.samplers import naive_lsh

KEY = jax.random.key(0)
NUM = 20_000
wta_digits = jax.jit(winner_take_all.digits, static_argnums=2)


def pair(dim, zeros=0, seed=0):
  """Two similar vectors, with zeros at different places."""
  rng = np.random.default_rng(seed)
  a_D = rng.normal(size=dim)
  b_D = a_D + rng.normal(size=dim)
  a_D[rng.choice(dim, zeros, replace=False)] = 0
  b_D[rng.choice(dim, zeros, replace=False)] = 0
  return np.float32(a_D), np.float32(b_D)


def check_share(agree, p, others=()):
  """A share of independent agreements, and that the test would notice another."""
  agree = np.asarray(agree)
  assert binomtest(int(agree.sum()), agree.size, p).pvalue > 1e-4
  for other in others or (p * 0.9, 1 - (1 - p) * 0.9):
    assert binomtest(int(agree.sum()), agree.size, other).pvalue < 1e-4


@pytest.mark.parametrize("zeros", [0, 1, 3])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_collision_probability_equals_that_over_all_bins(width, zeros):
  a_D, b_D = pair(6, zeros)
  agree, neither = 0, 0
  for coords in itertools.combinations(range(6), width):
    a, b = ([x_D[d] if x_D[d] else -np.inf for d in coords] for x_D in (a_D, b_D))
    if max(a) > -np.inf and max(b) > -np.inf:
      neither += 1
      agree += np.argmax(a) == np.argmax(b)
  p = collisions.winner_take_all(a_D, b_D, width)
  np.testing.assert_allclose(p, agree / neither, rtol=1e-12)


@pytest.mark.parametrize(("dim", "zeros"), [(24, 0), (20, 0), (24, 14), (20, 12)])
def test_winner_take_all_agrees_as_often_as_theory_says(dim, zeros):
  a_D, b_D = pair(dim, zeros)
  functions = winner_take_all.new_functions(KEY, dim, 1, NUM)
  a_L, b_L = np.asarray(wta_digits(functions, jnp.stack([a_D, b_D]), 1))[:, 0].T
  coord_LE = np.asarray(functions.coord_LKE)[:, 0]
  neither_L = (a_D[coord_LE] != 0).any(1) & (b_D[coord_LE] != 0).any(1)
  assert neither_L.all() == (zeros == 0)
  check_share((a_L == b_L)[neither_L], collisions.winner_take_all(a_D, b_D))


@pytest.mark.parametrize("codes", [1, 3])
def test_simhash_agrees_as_often_as_theory_says(codes):
  a_D, b_D = pair(10)
  functions = hashing.new_simhash(KEY, 10, codes, NUM)
  digit_LCN = hashing.sign_digits(functions, jnp.stack([a_D, b_D]))
  agree_L = (digit_LCN[:, :, 0] == digit_LCN[:, :, 1]).all(1)
  check_share(agree_L, collisions.simhash(a_D, b_D) ** codes)


@pytest.mark.parametrize("size", [0.5, 1.0, 1.7])
def test_mips_agrees_as_often_as_theory_says(size):
  query_D, row_D = pair(10)
  longest_D = row_D / size  # rows may have grown
  functions = hashing.new_mips(KEY, longest_D[None], 1, NUM)
  a_L = hashing.sign_digits(functions, query_D[None])[:, 0, 0]
  b_L = hashing.mips_row_digits(functions, row_D[None])[:, 0, 0]
  p = collisions.mips(query_D, row_D, np.linalg.norm(longest_D))
  check_share(a_L == b_L, p)
  # Longer queries are the same, shorter rows are further away.
  same_L = hashing.sign_digits(functions, 3 * query_D[None])[:, 0, 0]
  np.testing.assert_array_equal(a_L, same_L)
  shorter = collisions.mips(query_D, row_D / 2, np.linalg.norm(longest_D))
  assert p - shorter > 0.01


@pytest.mark.parametrize(
  ("family", "codes", "dim", "num"),
  [
    *(("simhash", 3, 24, NUM), ("mips", 3, 24, NUM), ("dwta", 1, 24, NUM)),
    # Codes of winners are not independent: bins of a permutation have nothing in
    # common. Where they are few of many, this is less than 4000 tries can tell.
    pytest.param("dwta", 3, 256, 8000, marks=pytest.mark.long),
  ],
)
def test_retrieval_over_many_hash_functions(family, codes, dim, num):
  """At least one of L tables, their functions drawn num / L times."""
  tables = 2
  a_D, b_D = pair(dim)
  rows = jnp.stack([a_D, b_D])
  functions = hashing.new_functions(family, KEY, rows, codes, num)
  buckets = hashing.num_buckets(hashing.radix(family, dim), codes, 1 << 20)
  query_L = hashing.query_buckets(functions, rows[:1], codes, buckets)[:, 0]
  row_L = hashing.row_buckets(functions, rows, codes, buckets)[:, 1]
  p = {
    "dwta": collisions.winner_take_all(a_D, b_D),
    "simhash": collisions.simhash(a_D, b_D),
    "mips": collisions.mips(a_D, b_D, max(map(np.linalg.norm, (a_D, b_D)))),
  }[family]
  found = (query_L == row_L).reshape(-1, tables).any(1)
  wrong = [(codes + 1, tables), (codes, tables + 1), (codes, tables - 1)]
  check_share(
    found,
    collisions.retrieval(p, codes, tables),
    [collisions.retrieval(p, *sizes) for sizes in wrong],
  )


SIZES = [(64, 4), (24, 3), (20, 2), (20, 3), (9, 4), (8, 2), (5, 3), (1, 2)]


@pytest.mark.parametrize(("dim", "codes"), others_long(SIZES, SIZES[1::3]))
def test_digits_equal_their_definition_also_for_sparse_vectors(dim, codes):
  rng = np.random.default_rng(1)
  functions = winner_take_all.new_functions(KEY, dim, codes, 5)
  coord_LKE = np.asarray(functions.coord_LKE)
  assert coord_LKE.shape[1] >= codes
  for coord_KE in coord_LKE:  # every coordinate is in some bin, and in a bin once
    assert set(range(dim)) <= set(coord_KE.ravel().tolist())
    assert all(len(set(c)) == len(c) for c in (x[x < dim].tolist() for x in coord_KE))
  x_ND = rng.integers(-3, 4, (40, dim)).astype("f")  # with ties
  x_ND *= rng.random((40, dim)) < rng.random((40, 1)) ** 3
  x_ND[0] = 0
  digit_LCN = np.asarray(wta_digits(functions, jnp.asarray(x_ND), codes))
  functions = jax.tree.map(np.asarray, functions)
  for number, (n, x_D) in itertools.product(range(5), enumerate(x_ND)):
    want = naive_lsh.digits(functions, number, x_D, codes, True)
    assert digit_LCN[number, :, n].tolist() == want
  assert not digit_LCN[:, :, 0].any()


def test_vectors_hash_the_same_in_chunks_and_alone():
  functions = winner_take_all.new_functions(KEY, 24, 3, 4)
  x_ND = jax.random.normal(KEY, (1100, 24)).at[700:, 3:].set(0)
  all_LCN = wta_digits(functions, x_ND, 3)
  for part in (slice(0, 512), slice(511, 1030), slice(1099, 1100)):
    np.testing.assert_array_equal(
      wta_digits(functions, x_ND[part], 3), all_LCN[:, :, part]
    )


def test_both_ways_to_find_winners_agree():
  functions = winner_take_all.new_functions(KEY, 24, 3, 4)
  x_DN = jnp.round(jax.random.normal(KEY, (24, 30)))
  one = winner_take_all.winners_by_bin(x_DN, functions.coord_LKE)
  other = winner_take_all.winners_at_once(x_DN, functions.coord_LKE)
  for a, b in zip(one, other, strict=True):
    np.testing.assert_array_equal(a, b)


def test_different_digits_give_different_numbers():
  digit_CN = np.array(list(itertools.product(range(5), repeat=4)), np.uint32).T
  code_N = np.asarray(hashing.combine(jnp.asarray(digit_CN)[None], 5))[0]
  assert sorted(code_N.tolist()) == list(range(5**4))


@pytest.mark.parametrize(("radix", "codes"), [(8, 10), (8, 11), (8, 30), (2, 60)])
def test_every_digit_counts_however_many_there_are(radix, codes):
  rng = np.random.default_rng(0)
  digit_C = rng.integers(0, radix, codes)
  changed_CC = (digit_C[None] + np.eye(codes, dtype=int)) % radix
  all_CN = np.concatenate([digit_C[None], changed_CC]).T.astype(np.uint32)
  code_N = np.asarray(hashing.combine(jnp.asarray(all_CN)[None], radix))[0]
  assert len(set(code_N.tolist())) == codes + 1


def test_folded_codes_fill_the_buckets_evenly():
  code_LN = jnp.arange(8**5, dtype=jnp.uint32)[None]
  for buckets in (1, 2, 64, 1024):
    bucket_N = np.asarray(hashing.fold(code_LN, 8**5, buckets))[0]
    size_K = np.bincount(bucket_N, minlength=buckets)
    assert len(size_K) == buckets
    mean = 8**5 / buckets
    assert np.abs(size_K - mean).max() <= 6 * np.sqrt(mean)
