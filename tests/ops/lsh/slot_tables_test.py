"""Tables hold each id in its bucket and slot, and draws from them have a known law."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.lsh import slot_tables
from largevocab.ops.lsh.votes import first_distinct, most_common
from tests.long import others_long
from tests.samplers import naive_lsh

KEY = jax.random.key(0)
L, K, V = 6, 7, 60
build = jax.jit(slot_tables.build, static_argnums=(2, 3))
insert = jax.jit(slot_tables.insert, static_argnums=3)
remove = jax.jit(slot_tables.remove, static_argnums=3)
look_up = jax.jit(slot_tables.look_up, static_argnums=2)
draw = jax.jit(slot_tables.draw, static_argnums=(2, 3))
law = jax.jit(slot_tables.law)


def random_tables(slots, seed=0):
  factor_L = slot_tables.new_factors(KEY, L)
  bucket_LV = np.random.default_rng(seed).integers(0, K, (L, V)).astype(np.int32)
  return build(factor_L, jnp.asarray(bucket_LV), K, slots), bucket_LV


def naive_tables(tables, bucket_LV, slots):
  ids_LKE = np.full((L, K, slots), V)
  for number, factor in enumerate(np.asarray(tables.factor_L)):
    for c in naive_lsh.order(factor, V):
      bucket = bucket_LV[number, c]
      ids_LKE[number, bucket, naive_lsh.slot(factor, c, slots)] = c
  return ids_LKE


@pytest.mark.parametrize("slots", others_long([1, 3, 8, 16], [1, 8]))
def test_tables_equal_naive_ones_after_many_changes(slots):
  tables, bucket_LV = random_tables(slots)
  want_LKE = naive_tables(tables, bucket_LV, slots)
  np.testing.assert_array_equal(tables.ids_LKE, want_LKE)
  rng = np.random.default_rng(1)
  for _ in range(20):
    ids_R = rng.permutation(V + 5)[:7].astype(np.int32)  # some are padding
    new_LR = rng.integers(0, K, (L, 7)).astype(np.int32)
    old_LR = bucket_LV[:, np.minimum(ids_R, V - 1)]
    tables = remove(tables, ids_R, old_LR, V)
    tables = insert(tables, ids_R, new_LR, V)
    for number, factor in enumerate(np.asarray(tables.factor_L)):
      for c in ids_R[ids_R < V]:
        at = bucket_LV[number, c], naive_lsh.slot(factor, c, slots)
        if want_LKE[number][at] == c:
          want_LKE[number][at] = V
      taken = {}
      for r in np.flatnonzero(ids_R < V):
        at = new_LR[number, r], naive_lsh.slot(factor, ids_R[r], slots)
        taken.setdefault(at, set()).add(int(ids_R[r]))
      for at, classes in taken.items():  # of several new ones, any
        assert int(tables.ids_LKE[number][at]) in classes
        want_LKE[number][at] = tables.ids_LKE[number][at]
    bucket_LV[:, ids_R[ids_R < V]] = new_LR[:, ids_R < V]
    np.testing.assert_array_equal(tables.ids_LKE, want_LKE)


def test_ids_lost_in_one_table_are_kept_in_others():
  """Pairs of classes share a bucket in all tables."""
  num, slots = 4000, 8
  factor_L = slot_tables.new_factors(KEY, num)
  slot_LV = np.asarray(slot_tables.slots_of(factor_L, jnp.arange(40), slots))
  same_VV = (slot_LV[:, :, None] == slot_LV[:, None]).mean(0)
  np.fill_diagonal(same_VV, 0)
  assert same_VV.max() < 2 / slots + 0.05  # the bound of multiplicative hashing
  size_E = np.bincount(slot_LV.ravel(), minlength=slots)
  assert np.abs(size_E / slot_LV.size * slots - 1).max() < 0.2
  # 40 classes for 8 slots: each class is kept in about a fifth of the tables.
  tables = build(factor_L[:500], jnp.zeros((500, 40), jnp.int32), 1, slots)
  kept_V = np.bincount(np.ravel(tables.ids_LKE), minlength=40)[:40] / 500
  assert kept_V.min() > 0.1
  assert kept_V.max() < 0.3


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_law_equals_its_definition(slots):
  tables, _ = random_tables(slots)
  tables = tables._replace(ids_LKE=tables.ids_LKE.at[::2, :3].set(V))
  rng = np.random.default_rng(2)
  bucket_NL = rng.integers(0, K + 1, (8, L)).astype(np.int32)  # K: none
  bucket_NL[0] = K
  members_NLE = look_up(tables, bucket_NL, V)
  size_NL = slot_tables.sizes(members_NLE, V)
  ids_NV = jnp.broadcast_to(jnp.arange(V), (8, V))
  law_NV = np.asarray(law(tables, bucket_NL, size_NL, ids_NV))
  ids_LKE = np.asarray(tables.ids_LKE)
  for n in range(8):
    buckets = [
      ids_LKE[number, bucket][ids_LKE[number, bucket] < V] if bucket < K else []
      for number, bucket in enumerate(bucket_NL[n])
    ]
    buckets = [list(bucket) for bucket in buckets]
    want_V = naive_lsh.law(buckets, V)
    want_V = np.zeros(V) if want_V is None else want_V
    np.testing.assert_allclose(law_NV[n], want_V, rtol=1e-6, atol=1e-9)
  assert not law_NV[0].any()


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_draws_follow_the_law_and_the_test_would_notice(slots, chi_square):
  tables, _ = random_tables(slots)
  tables = tables._replace(ids_LKE=tables.ids_LKE.at[::2, :3].set(V))
  bucket_NL = np.random.default_rng(2).integers(0, K, (5, L)).astype(np.int32)
  bucket_NL[1, :4] = K
  members_NLE = look_up(tables, bucket_NL, V)
  size_NL = slot_tables.sizes(members_NLE, V)
  ids_NV = jnp.broadcast_to(jnp.arange(V), (5, V))
  law_NV = np.float64(law(tables, bucket_NL, size_NL, ids_NV))
  ids_NM = draw(KEY, members_NLE, V, 20_000)
  for ids_M, law_V in zip(ids_NM, law_NV, strict=True):
    some_V = law_V > 0
    assert some_V[ids_M].all()
    if some_V.sum() == 1:
      continue
    assert chi_square(ids_M, law_V) > 1e-4
    tilted_V = law_V * np.where(np.cumsum(some_V) % 2, 0.9, 1.1)
    assert chi_square(ids_M, tilted_V) < 1e-4


def test_every_member_has_its_share_of_the_random_words():
  """Enumerated for all first 16 bits: the split of a word is even."""
  u_N = jnp.arange(1 << 16, dtype=jnp.uint32) << 16
  for num in (1, 3, 50, 400):
    which_N, rest_N = slot_tables._split(u_N, jnp.full(u_N.shape, num))
    count = np.bincount(which_N, minlength=num)
    assert len(count) == num
    assert np.ptp(count) <= 1
    np.testing.assert_array_equal(rest_N, u_N * jnp.uint32(num))


def test_most_common_ids_come_first_and_once():
  rng = np.random.default_rng(0)
  ids_NM = rng.integers(0, 30, (20, 45)).astype(np.int32)
  ids_NM[rng.random(ids_NM.shape) < 0.5] = 30
  ids_NM[0] = 33
  for size in (1, 8, 45, 50):
    got_NS = np.asarray(most_common(jnp.asarray(ids_NM), 30, size))
    for ids_M, got_S in zip(ids_NM, got_NS, strict=True):
      # `Counter` too keeps the order of first occurrence among equals.
      common = Counter(ids_M[ids_M < 30].tolist()).most_common(size)
      want_S = [c for c, _ in common] + [30] * (size - len(common))
      assert got_S.tolist() == want_S


def test_first_distinct_ids_equal_those_of_a_loop():
  """Includes rows without any id, and more room than ids."""
  rng = np.random.default_rng(0)
  ids_NM = rng.integers(0, 30, (20, 45)).astype(np.int32)
  ids_NM[rng.random(ids_NM.shape) < 0.3] = 30
  ids_NM[0], ids_NM[1] = 33, 7
  without_NP = rng.integers(-2, 34, (20, 3)).astype(np.int32)
  without_NP[1] = [34, 7, 7]
  for size in (1, 8, 45, 50):
    got_NS = first_distinct(
      jnp.asarray(ids_NM), 30, size, without_NP=jnp.asarray(without_NP)
    )
    for ids_M, without_P, got_S in zip(ids_NM, without_NP, got_NS, strict=True):
      want = []
      for c in ids_M.tolist():
        if c < 30 and c not in want and c not in without_P:
          want.append(c)
      want = want[:size]
      assert got_S.tolist() == want + [30] * (size - len(want))
