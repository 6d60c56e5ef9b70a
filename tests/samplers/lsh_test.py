"""Hash tables that follow the rows: what is where, and the law of draws from them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, single_targets
from largevocab.ops import hashing
from largevocab.samplers import LSHEmbedding, LSHLabel
from tests.samplers import naive_lsh

V, N, D, M = 60, 4, 16, 8
KEY = jax.random.key(0)
FAMILIES = {"dwta": 1, "simhash": 4, "mips": 4}  # with about as large buckets


def sampler_of(family, make=LSHEmbedding, **fields):
  fields = {"tables": 7, "slots": 4, **fields}
  return make(family=family, codes=FAMILIES[family], **fields)


def problem(num_classes=V, seed=0):
  rng = np.random.default_rng(seed)
  w_VD = rng.normal(size=(num_classes, D)).astype("f")
  h_ND = w_VD[rng.integers(0, num_classes, N)] + 0.3 * rng.normal(size=(N, D))
  counts = Counts(rng.integers(0, 20, num_classes) + 1)
  y = single_targets(jnp.asarray(rng.integers(0, num_classes, N)))
  return counts, jnp.asarray(w_VD), jnp.asarray(h_ND, jnp.float32), y


@partial(jax.jit, static_argnames=("sampler", "m"))
def sample(sampler, stats, w_VD, key, h_ND, y, m=M):
  return sampler.sample(stats, w_VD, key, h_ND, y, m)


@partial(jax.jit, static_argnames=("sampler", "m"))
def enumerated(sampler, stats, w_VD, h_ND, y, m=M):
  ids_V = jnp.arange(len(w_VD))
  return jnp.exp(sampler.log_expected(stats, w_VD, h_ND, y, ids_V, m))


@partial(jax.jit, static_argnames=("sampler", "steps", "rows"))
def change_rows(sampler, stats, w_VD, steps, rows, seed=1):
  """Consecutive updates of a few random rows, some ids being padding."""

  def step(carry, key):
    stats, w_VD = carry
    k_ids, k_rows = jax.random.split(key)
    ids_R = jax.random.permutation(k_ids, len(w_VD) + 3)[:rows]
    old_RD = w_VD.at[ids_R].get(mode="clip")
    new_RD = jax.random.normal(k_rows, old_RD.shape)
    w_VD = w_VD.at[ids_R].set(new_RD, mode="drop")
    return (sampler.update(stats, w_VD, ids_R, old_RD, new_RD), w_VD), ids_R

  keys = jax.random.split(jax.random.key(seed), steps)
  return jax.lax.scan(step, (stats, w_VD), keys)


def row_codes(sampler, stats, w_VD, is_row=True):
  """Naive codes [L][V] of rows, or of queries."""
  functions = jax.tree.map(np.asarray, stats.functions)
  code = lambda number, x_D: naive_lsh.code(
    functions, number, x_D, sampler.codes, is_row
  )
  return [[code(number, x_D) for x_D in w_VD] for number in range(sampler.tables)]


def number_of(sampler, code):
  radix = hashing.radix(sampler.family, D)
  return sum(int(c) * radix**i for i, c in enumerate(reversed(code)))


def buckets_of(sampler, stats, query_ND):
  """What the tables have in the buckets of queries, by naive codes: [N][L] lists."""
  ids_LKE, V = np.asarray(stats.tables.ids_LKE), len(stats.by_count.log_expected_V)
  code_LN = row_codes(sampler, stats, query_ND, is_row=False)
  found = []
  for n in range(len(query_ND)):
    bucket_LE = [
      ids_LKE[number, number_of(sampler, code_LN[number][n])]
      for number in range(sampler.tables)
    ]
    found.append([bucket_E[bucket_E < V].tolist() for bucket_E in bucket_LE])
  return found


def naive_law(sampler, counts, stats, query_ND):
  weight_V = counts.unigram_V + sampler.smoothing
  mix = partial(naive_lsh.mixture, sampler, unigram_V=weight_V / weight_V.sum())
  found = buckets_of(sampler, stats, query_ND)
  return np.array([mix(law_V=naive_lsh.law(buckets, V)) for buckets in found])


@pytest.mark.parametrize("make", [LSHEmbedding, LSHLabel])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_law_is_that_of_the_tables_as_they_are(family, make, chi_square):
  sampler = sampler_of(family, make)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, M)
  (updated, new_VD), _ = change_rows(sampler, stats, w_VD, steps=30, rows=9)
  states = {
    "new": (stats, w_VD),
    "stale": (stats, new_VD),
    "updated": (updated, new_VD),
    "refreshed": (sampler.refresh(updated, new_VD, KEY), new_VD),
  }
  for stats, table in states.values():
    query_ND = h_ND if make is LSHEmbedding else table[y.ids_NP[:, 0]]
    law_NV = naive_law(sampler, counts, stats, query_ND)
    expected_NV = enumerated(sampler, stats, table, h_ND, y)
    np.testing.assert_allclose(expected_NV, M * law_NV, rtol=5e-6)
    draw = sample(sampler, stats, table, KEY, h_ND, y)
    at_ids = np.take_along_axis(law_NV, np.asarray(draw.ids), 1)
    np.testing.assert_allclose(draw.log_expected, np.log(M * at_ids), atol=1e-5)
  draw = sample(sampler, stats, new_VD, KEY, h_ND, y, m=8000)
  for ids_M, law_V in zip(draw.ids, law_NV, strict=True):
    assert chi_square(ids_M, law_V) > 1e-4
    tilted_V = law_V * np.where(np.arange(V) % 2, 1.2, 0.8)
    assert chi_square(ids_M, tilted_V / tilted_V.sum()) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_every_candidate_shares_a_bucket_with_the_query(family):
  sampler = sampler_of(family, exact=28)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, M)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  code_LN = row_codes(sampler, stats, h_ND, is_row=False)
  code_LV = row_codes(sampler, stats, w_VD)
  for n, exact_S in enumerate(np.asarray(draw.exact_ids)):
    shares = lambda c, n=n: any(
      of_N[n] == of_V[c] for of_N, of_V in zip(code_LN, code_LV, strict=True)
    )
    found = set(exact_S[exact_S < V].tolist())
    assert found
    assert all(shares(c) for c in found)
    assert not all(shares(c) for c in range(V))


@pytest.mark.parametrize("family", FAMILIES)
def test_after_100_updates_every_entry_is_where_a_new_table_would_have_it(family):
  """A touched class is in its slot, or another that belongs there; no class is where
  its row of today does not belong, but for projections that round to either side."""
  sampler = sampler_of(family)
  counts, w_VD, _, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  (stats, w_VD), ids_TR = change_rows(sampler, stats, w_VD, steps=100, rows=9)
  code_LV = row_codes(sampler, stats, w_VD)
  ids_LKE = np.asarray(stats.tables.ids_LKE)
  touched = np.setdiff1d(np.unique(ids_TR), np.arange(V, V + 3))
  assert len(touched) == V
  stale = 0
  for number, factor in enumerate(np.asarray(stats.tables.factor_L)):
    place = lambda c, number=number, factor=factor: (
      number_of(sampler, code_LV[number][c]),
      naive_lsh.slot(factor, c, sampler.slots),
    )
    places = [place(c) for c in range(V)]
    for c in touched:
      there = ids_LKE[number][places[c]]
      # Whoever took the slot later may have moved on and left it empty.
      assert there in (V, c) or places[there] == places[c]
    entries = np.argwhere(ids_LKE[number] < V)
    stale += sum(places[ids_LKE[number][*at]] != tuple(at) for at in entries)
  assert stale == 0
  # The last step's rows are there, if not for each other.
  last = [c for c in np.asarray(ids_TR[-1]) if c < V]
  kept = sum((ids_LKE == c).any() for c in last)
  assert kept == len(last)


def test_a_touched_row_is_where_it_belongs_and_an_untouched_one_stays():
  sampler = sampler_of("dwta", slots=64)  # room for all
  counts, w_VD, _, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  (updated, new_VD), _ = change_rows(sampler, stats, w_VD, steps=100, rows=9)
  built = sampler.init(counts, new_VD, M)  # by the same functions
  jax.tree.map(np.testing.assert_array_equal, built.functions, stats.functions)
  same = np.mean(np.asarray(updated.tables.ids_LKE) == np.asarray(built.tables.ids_LKE))
  assert same > 0.9  # but for who came last
  (unchanged, _), _ = change_rows(sampler, stats, w_VD, steps=0, rows=9)
  jax.tree.map(np.testing.assert_array_equal, unchanged, stats)


def test_without_rehashing_tables_wait_for_a_refresh():
  sampler = sampler_of("dwta", rehash=False)
  counts, w_VD, _, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  (updated, _), _ = change_rows(sampler, stats, w_VD, steps=3, rows=9)
  jax.tree.map(np.testing.assert_array_equal, updated.tables, stats.tables)


@pytest.mark.parametrize("rebuild", [1, 3, 7])
def test_tables_rebuilt_in_turn_are_new_tables_of_their_own_functions(rebuild):
  """After ceil(L / rebuild) updates of no row: built from the rows by functions other
  than before; and the updates of one round differ from those of the next."""
  sampler = sampler_of("dwta", rehash=False, rebuild_tables=rebuild)
  counts, w_VD, _, _ = problem()
  start = stats = sampler.init(counts, w_VD, M)
  none_R = jnp.full(2, V)
  update = jax.jit(sampler.update)
  rounds = [start]
  for _ in range(2):
    for i in range(-(-7 // rebuild)):
      before = stats
      stats = update(stats, w_VD, none_R, w_VD[:2], w_VD[:2])
      same_L = (stats.tables.ids_LKE == before.tables.ids_LKE).all((1, 2))
      first = min(i * rebuild, 7 - rebuild)
      changed = np.flatnonzero(~np.asarray(same_L))
      assert changed.tolist() == list(range(first, first + rebuild))
    rounds.append(stats)
  for a, b in [(0, 1), (1, 2), (0, 2)]:
    for x_L, y_L in zip(
      jax.tree.leaves((rounds[a].functions, rounds[a].tables)),
      jax.tree.leaves((rounds[b].functions, rounds[b].tables)),
      strict=True,
    ):
      assert (np.asarray(x_L) != np.asarray(y_L)).reshape(7, -1).any(1).all()
  tables = naive_lsh.fill(
    stats.functions, stats.tables.factor_L, w_VD, sampler.codes, sampler.slots
  )
  for ids_KE, table in zip(np.asarray(stats.tables.ids_LKE), tables, strict=True):
    want_KE = np.full(ids_KE.shape, V)
    for code, bucket in table.items():
      for slot, c in bucket.items():
        want_KE[number_of(sampler, code), slot] = c
    np.testing.assert_array_equal(ids_KE, want_KE)


def test_what_is_rebuilt_in_turn_follows_from_the_key_of_the_last_refresh():
  sampler = sampler_of("dwta", rehash=False, rebuild_tables=7)
  counts, w_VD, _, _ = problem()
  start = sampler.init(counts, w_VD, M)
  refresh, update = jax.jit(sampler.refresh), jax.jit(sampler.update)
  none_R = jnp.full(2, V)
  coords = []
  for seed in (0, 0, 1):
    stats = refresh(start, w_VD, jax.random.key(seed))
    coords.append(stats.functions.coord_LKE)
    stats = update(stats, w_VD, none_R, w_VD[:2], w_VD[:2])
    coords.append(stats.functions.coord_LKE)
  np.testing.assert_array_equal(coords[1], coords[3])
  for i, j in [(0, 1), (1, 5), (0, 4)]:
    assert (coords[i] != coords[j]).any()


def test_exact_classes_are_those_found_in_most_tables():
  counts, w_VD, h_ND, y = problem()
  stats = None
  for size in (1, 5, 28):
    sampler = sampler_of("dwta", exact=size)
    stats = sampler.init(counts, w_VD, M)
    draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
    assert draw.exact_ids.shape == (N, size)
    assert draw.ids.shape == (M,)
    plain = sampler_of("dwta")  # the same tables
    found = buckets_of(plain, plain.init(counts, w_VD, M), h_ND)
    for buckets, exact_S in zip(found, np.asarray(draw.exact_ids), strict=True):
      votes_V = np.bincount(np.concatenate(buckets).astype(int), minlength=V)
      ids = exact_S[exact_S < V]
      assert len(set(ids.tolist())) == len(ids) == min(size, (votes_V > 0).sum())
      assert (exact_S[len(ids) :] == V).all()
      want = np.sort(votes_V)[::-1][: len(ids)]
      assert votes_V[ids].tolist() == want.tolist()


def test_true_classes_share_the_tables_out():
  """Table l is asked by number l mod P_n, whatever stands between the labels."""
  sampler = sampler_of("dwta", LSHLabel)
  counts, w_VD, h_ND, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  ids_NP = jnp.array([[5, V, 9], [V, 3, V], [7, 8, 9], [V, V, V]])
  w_NP = jnp.array([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5], [0, 0, 0]])
  y = Targets(ids_NP, w_NP, jnp.zeros(N, int))
  bucket_NL = sampler.query_buckets(stats, w_VD, h_ND, y)
  num_buckets = stats.tables.ids_LKE.shape[1]
  code_LV = row_codes(sampler, stats, w_VD, is_row=False)
  for n, labels in enumerate([[5, 9], [3], [7, 9], []]):
    for number, bucket in enumerate(bucket_NL[n].tolist()):
      if not labels:
        assert bucket == num_buckets
        continue
      c = labels[number % len(labels)]
      assert bucket == number_of(sampler, code_LV[number][c])
  expected_NV = enumerated(sampler, stats, w_VD, h_ND, y)
  weight_V = counts.unigram_V + 1
  np.testing.assert_allclose(expected_NV[3], M * weight_V / weight_V.sum(), rtol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.3, 1.0])
@pytest.mark.parametrize("m", [1, 3])
def test_the_share_by_counts_is_exact_also_of_few_draws(share, m, chi_square):
  sampler = sampler_of("dwta", unigram_share=share)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, m)
  keys = jax.random.split(KEY, 4000)
  draw = jax.jit(jax.vmap(lambda key: sampler.sample(stats, w_VD, key, h_ND, y, m)))
  ids_RNM = draw(keys).ids
  expected_NV = np.float64(enumerated(sampler, stats, w_VD, h_ND, y, m))
  np.testing.assert_allclose(expected_NV.sum(1), m, rtol=1e-5)
  for n in range(N):
    assert chi_square(ids_RNM[:, n], expected_NV[n] / m) > 1e-4
    other_V = np.roll(expected_NV[n], 1) / m + 1e-9
    assert chi_square(ids_RNM[:, n], other_V / other_V.sum()) < 1e-4


def test_where_buckets_are_empty_counts_decide():
  """So many codes that no query finds anything."""
  counts, w_VD, _, y = problem()
  h_ND = -w_VD[:N]
  for codes, share in [(30, 0.5), (30, 0.0)]:
    sampler = LSHEmbedding(codes=codes, tables=2, slots=1, unigram_share=share)
    stats = sampler.init(counts, w_VD, M)
    empty = jnp.full_like(stats.tables.ids_LKE, V)
    stats = stats._replace(tables=stats.tables._replace(ids_LKE=empty))
    expected_NV = enumerated(sampler, stats, w_VD, h_ND, y)
    weight_V = counts.unigram_V + 1
    want_V = M * weight_V / weight_V.sum()
    np.testing.assert_allclose(expected_NV, np.broadcast_to(want_V, (N, V)), rtol=1e-5)
    draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
    assert np.isfinite(draw.log_expected).all()
    assert len(set(np.ravel(draw.ids).tolist())) > 10


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_classes", [1, 2, 60])
def test_one_table_and_activations_of_zero(family, num_classes):
  counts, w_VD, h_ND, y = problem(num_classes)
  sampler = LSHEmbedding(family=family, codes=3, tables=1, slots=1, rebuild_tables=1)
  stats = sampler.init(counts, w_VD, M)
  for w, h in ((w_VD, 0 * h_ND), (0 * w_VD, h_ND)):
    stats = sampler.update(stats, w, jnp.arange(1), w[:1], w[:1])
    expected_NV = enumerated(sampler, stats, w, h, y)
    np.testing.assert_allclose(expected_NV.sum(1), M, rtol=1e-5)
    draw = sample(sampler, stats, w, KEY, h, y)
    assert np.isfinite(draw.log_expected).all()


def test_draws_hold_nothing_of_all_classes():
  num_classes = 200_000
  sampler = LSHEmbedding(codes=3, tables=10)
  counts = Counts(np.ones(num_classes, int))
  w_VD, h_ND = jnp.zeros((num_classes, 8)), jnp.ones((64, 8))
  y = single_targets(np.zeros(64, int))
  stats = sampler.init(counts, w_VD, 16)
  lowered = jax.jit(sampler.sample, static_argnums=5).lower(
    stats, w_VD, KEY, h_ND, y, 16
  )
  memory = lowered.compile().memory_analysis()
  assert memory.temp_size_in_bytes < num_classes * 64 / 4


@pytest.mark.parametrize(
  ("field", "value"),
  [
    *(("codes", 0), ("tables", 0), ("slots", 0), ("exact", -1)),
    *(("slots", 65537), ("exact", 801)),
    *(("rebuild_tables", -1), ("rebuild_tables", 51), ("unigram_share", 1.5)),
    ("family", "minhash"),
  ],
)
def test_wrong_values_are_refused(field, value):
  with pytest.raises(UserError, match=rf"sampler\.{field} is .*[;:] use"):
    LSHEmbedding(**{field: value})
