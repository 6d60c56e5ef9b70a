"""Hash tables that follow the rows: their entries, and the law of draws from them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, Targets, single_targets
from largevocab.losses import NCE, BlackOut, SampledSoftmax
from largevocab.ops.lsh import hashing, slot_tables
from largevocab.samplers import LSHEmbedding, LSHLabel
from tests.long import others_long
from tests.samplers import naive_lsh
from tests.samplers.changes import change_rows

V, N, D, M = 60, 4, 16, 8000
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


@partial(jax.jit, static_argnames="sampler")
def sample(sampler, stats, w_VD, key, h_ND, y):
  return sampler.sample(stats, w_VD, key, h_ND, y)


@partial(jax.jit, static_argnames="sampler")
def enumerated(sampler, stats, w_VD, h_ND, y):
  ids_V = jnp.arange(len(w_VD))
  return jnp.exp(sampler.log_expected(stats, w_VD, h_ND, y, ids_V))


@partial(jax.jit, static_argnames="sampler")
def update(sampler, stats, w_VD, ids_R, old_RD, new_RD):
  return sampler.update(stats, w_VD, ids_R, old_RD, new_RD)


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
  ids_LKE = np.asarray(stats.tables.ids_LKE)
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


@pytest.mark.parametrize("family", others_long(FAMILIES, ["dwta"]))
def test_law_is_that_of_the_current_tables(family, chi_square):
  sampler = sampler_of(family)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, M)
  updated, new_VD, _ = change_rows(sampler, stats, w_VD, steps=30, rows=9)
  states = {
    "new": (stats, w_VD),
    "stale": (stats, new_VD),
    "updated": (updated, new_VD),
    "refreshed": (sampler.refresh(updated, new_VD, KEY), new_VD),
  }
  for stats, table in states.values():
    law_NV = naive_law(sampler, counts, stats, h_ND)
    expected_NV = enumerated(sampler, stats, table, h_ND, y)
    np.testing.assert_allclose(expected_NV, M * law_NV, rtol=5e-6)
    draw = sample(sampler, stats, table, KEY, h_ND, y)
    at_ids = np.take_along_axis(law_NV, np.asarray(draw.ids), 1)
    np.testing.assert_allclose(draw.log_expected, np.log(M * at_ids), atol=1e-5)
  for ids_M, law_V in zip(draw.ids, law_NV, strict=True):
    assert chi_square(ids_M, law_V) > 1e-4
    tilted_V = law_V * np.where(np.arange(V) % 2, 1.2, 0.8)
    assert chi_square(ids_M, tilted_V / tilted_V.sum()) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_every_entry_is_where_a_new_table_has_it_after_100_updates(family):
  """A touched class is in its slot, or another that belongs there; no class is where
  its row of today does not belong, but for projections that round to either side."""
  sampler = sampler_of(family)
  counts, w_VD, _, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  stats, w_VD, ids_TR = change_rows(sampler, stats, w_VD, steps=100, rows=9)
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


def test_touched_row_is_rehashed_and_an_untouched_one_stays():
  sampler = sampler_of("dwta", slots=64)  # room for all
  counts, w_VD, _, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  updated, new_VD, _ = change_rows(sampler, stats, w_VD, steps=100, rows=9)
  built = sampler.init(counts, new_VD, M)  # by the same functions
  jax.tree.map(np.testing.assert_array_equal, built.functions, stats.functions)
  same = np.mean(np.asarray(updated.tables.ids_LKE) == np.asarray(built.tables.ids_LKE))
  assert same > 0.9  # but for who came last
  unchanged, _, _ = change_rows(sampler, stats, w_VD, steps=0, rows=9)
  jax.tree.map(np.testing.assert_array_equal, unchanged, stats)


def test_tables_without_rehashing_change_only_at_a_refresh():
  sampler = sampler_of("dwta", rehash=False)
  counts, w_VD, _, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  updated, _, _ = change_rows(sampler, stats, w_VD, steps=3, rows=9)
  jax.tree.map(np.testing.assert_array_equal, updated.tables, stats.tables)


def test_tables_rebuilt_in_turn_are_new_tables_with_their_own_functions():
  """After ceil(L / rebuild) updates of no row: built from the rows by functions other
  than before; and the updates of one round differ from those of the next."""
  rebuild = 3
  sampler = sampler_of("dwta", rehash=False, rebuild_tables=rebuild)
  counts, w_VD, _, _ = problem()
  start = stats = sampler.init(counts, w_VD, M)
  none_R = jnp.full(2, V)
  rounds = [start]
  for _ in range(2):
    for i in range(-(-7 // rebuild)):
      before = stats
      stats = update(sampler, stats, w_VD, none_R, w_VD[:2], w_VD[:2])
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


def test_rebuilt_tables_follow_from_the_key_of_the_last_refresh():
  sampler = sampler_of("dwta", rehash=False, rebuild_tables=3)
  counts, w_VD, _, _ = problem()
  start = sampler.init(counts, w_VD, M)
  none_R = jnp.full(2, V)
  coords = []
  for seed in (0, 0, 1):
    stats = sampler.refresh(start, w_VD, jax.random.key(seed))
    coords.append(stats.functions.coord_LKE)
    stats = update(sampler, stats, w_VD, none_R, w_VD[:2], w_VD[:2])
    coords.append(stats.functions.coord_LKE)
  np.testing.assert_array_equal(coords[1], coords[3])
  for i, j in [(0, 1), (1, 5), (0, 4)]:
    assert (coords[i] != coords[j]).any()
  other = sampler.refresh(start, w_VD, jax.random.key(0, impl="rbg"))
  same = lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype)
  assert jax.tree.all(jax.tree.map(same, other, start))
  update(sampler, other, w_VD, none_R, w_VD[:2], w_VD[:2])


@pytest.mark.parametrize(
  ("family", "size"), [("dwta", 28), ("simhash", 5), ("mips", 28)]
)
def test_exact_classes_are_those_found_in_most_tables(family, size):
  """They also share a bucket with the query, checked code by code."""
  sampler = sampler_of(family, exact=size)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, 8)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  assert draw.exact_ids.shape == (N, size)
  assert draw.ids.shape == (8,)
  code_LN = row_codes(sampler, stats, h_ND, is_row=False)
  code_LV = row_codes(sampler, stats, w_VD)
  found = buckets_of(sampler, stats, h_ND)
  for n, exact_S in enumerate(np.asarray(draw.exact_ids)):
    votes_V = np.bincount(np.concatenate(found[n]).astype(int), minlength=V)
    ids = exact_S[exact_S < V]
    assert len(set(ids.tolist())) == len(ids) == min(size, (votes_V > 0).sum()) > 0
    assert (exact_S[len(ids) :] == V).all()
    want = np.sort(votes_V)[::-1][: len(ids)]
    assert votes_V[ids].tolist() == want.tolist()
    shares = lambda c, n=n: any(
      of_N[n] == of_V[c] for of_N, of_V in zip(code_LN, code_LV, strict=True)
    )
    assert all(shares(c) for c in ids)
    assert not all(shares(c) for c in range(V))


FILL = {"draw": "fill", "unigram_share": 0.0}


@pytest.mark.parametrize(
  ("family", "m"),
  others_long(
    [*((family, 6) for family in FAMILIES), ("dwta", 1), ("simhash", 200)],
    [("dwta", 6), ("simhash", 200)],
  ),
)
def test_fill_takes_the_first_classes_of_the_buckets(family, m):
  """From dictionaries filled one class at a time: in table order, each once though
  several tables have it, the true ones left out; m = 200 is more than there are."""
  sampler = sampler_of(family, tables=9, slots=8, **FILL)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, m)
  tables = naive_lsh.fill(
    stats.functions, stats.tables.factor_L, w_VD, sampler.codes, sampler.slots
  )
  found = [
    naive_lsh.look_up(tables, stats.functions, h_D, sampler.codes) for h_D in h_ND
  ]
  members = [[c for bucket in buckets for c in bucket] for buckets in found]
  also_N = jnp.asarray([of_query[0] for of_query in members])  # true as well
  ids_NP = jnp.stack([y.ids_NP[:, 0], also_N, jnp.full(N, V)], axis=1)
  y = Targets(ids_NP, jnp.tile(jnp.array([0.5, 0.5, 0]), (N, 1)), jnp.zeros(N, int))
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  assert draw.ids.shape == draw.mask.shape == (N, m)
  expected_NV = enumerated(sampler, stats, w_VD, h_ND, y)
  for n in range(N):
    assert len(set(members[n])) < len(members[n])  # several tables have one
    want = naive_lsh.filled(found[n], ids_NP[n].tolist(), m)
    assert draw.ids[n][draw.mask[n]].tolist() == want
    assert draw.mask[n].tolist() == [i < len(want) for i in range(m)]
    assert np.flatnonzero(expected_NV[n]).tolist() == sorted(want)
    # And not as if the true ones counted.
    assert want != naive_lsh.filled(found[n], [], m)
  if m == 200:
    assert not draw.mask.all(axis=1).any()


def test_fill_skips_empty_buckets_and_may_find_nothing():
  sampler = sampler_of("simhash", **FILL)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, 5)
  ids_LKE = stats.tables.ids_LKE
  for kept in (slice(6, 7), slice(0, 0)):  # the last table alone, none
    some_LKE = jnp.full_like(ids_LKE, V).at[kept].set(ids_LKE[kept])
    some = stats._replace(tables=stats.tables._replace(ids_LKE=some_LKE))
    draw = sample(sampler, some, w_VD, KEY, h_ND, y)
    found = buckets_of(sampler, some, h_ND)
    for n in range(N):
      want = naive_lsh.filled(found[n], y.ids_NP[n].tolist(), 5)
      assert draw.ids[n][draw.mask[n]].tolist() == want
    assert draw.mask.any() == (kept.stop > 0)
    assert (draw.ids < V).all()


@pytest.mark.parametrize("make", others_long([LSHEmbedding, LSHLabel], [LSHLabel]))
def test_filled_negatives_form_the_active_set_of_the_loss(make):
  """The softmax over the true and the filled classes, in float64; where nothing is
  found the loss is 0."""
  sampler = sampler_of("simhash", make, **FILL)
  counts, w_VD, h_ND, y = problem()
  head = Sampled(
    loss=SampledSoftmax(corrected=False), sampler=sampler, num_samples=6, bias=False
  )
  state = head.init(KEY, counts, D)
  state = state._replace(
    table=state.table._replace(w_VD=w_VD), stats=sampler.init(counts, w_VD, 6)
  )
  query_ND = w_VD[y.ids_NP[:, 0]] if make is LSHLabel else h_ND
  found = buckets_of(sampler, state.stats, query_ND)
  o_NV = np.float64(h_ND) @ np.float64(w_VD).T
  losses = []
  for n, true in enumerate(y.ids_NP[:, 0].tolist()):
    active = [true, *naive_lsh.filled(found[n], [true], 6)]
    losses.append(np.log(np.exp(o_NV[n, active]).sum()) - o_NV[n, true])
  step = jax.jit(head.backward)(state, h_ND, y, KEY)
  np.testing.assert_allclose(step.loss, np.mean(losses), rtol=1e-5)
  none_LKE = jnp.full_like(state.stats.tables.ids_LKE, V)
  tables = state.stats.tables._replace(ids_LKE=none_LKE)
  empty = state._replace(stats=state.stats._replace(tables=tables))
  assert jax.jit(head.backward)(empty, h_ND, y, KEY).loss == 0
  assert jax.jit(head.monitor)(empty, h_ND, y, KEY)["chi2"] == np.inf


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: LSHEmbedding(draw="fill"), "share is 0.5, but head.sampler.draw is"),
    (lambda: LSHLabel(exact=3, **FILL), "exact is 3, but head.sampler.draw is 'fill'"),
    (lambda: LSHEmbedding(draw="all"), "draw is 'all'; it must be one of"),
    *(
      (
        lambda loss=loss: Sampled(loss=loss, sampler=LSHEmbedding(**FILL)),
        "head.loss.corrected to False",
      )
      for loss in (SampledSoftmax(), NCE(), BlackOut())
    ),
  ],
)
def test_settings_that_conflict_with_fill_are_refused(make, message):
  with pytest.raises(UserError, match=message):
    make()


def test_true_classes_take_turns_in_querying_the_tables():
  """Label number l mod P_n queries table l, regardless of padding between labels."""
  sampler = sampler_of("simhash", LSHLabel)
  counts, w_VD, h_ND, _ = problem()
  stats = sampler.init(counts, w_VD, M)
  ids_NP = jnp.array([[5, V, 9], [V, 3, V], [7, 8, 9], [V, V, V]])
  w_NP = jnp.array([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5], [0, 0, 0]])
  y = Targets(ids_NP, w_NP, jnp.zeros(N, int))
  bucket_NL = jax.jit(sampler.query_buckets)(stats, w_VD, h_ND, y)
  num_buckets = stats.tables.ids_LKE.shape[1]
  code_LV = row_codes(sampler, stats, w_VD, is_row=False)
  expected_NV = enumerated(sampler, stats, w_VD, h_ND, y)
  ids_LKE = np.asarray(stats.tables.ids_LKE)
  weight_V = counts.unigram_V + 1
  for n, labels in enumerate([[5, 9], [3], [7, 9], []]):
    found = []
    for number, bucket in enumerate(bucket_NL[n].tolist()):
      if not labels:
        assert bucket == num_buckets
        continue
      c = labels[number % len(labels)]
      assert bucket == number_of(sampler, code_LV[number][c])
      bucket_E = ids_LKE[number, bucket]
      found.append(bucket_E[bucket_E < V].tolist())
    law_V = naive_lsh.law(found, V)
    law_V = naive_lsh.mixture(sampler, law_V, weight_V / weight_V.sum())
    np.testing.assert_allclose(expected_NV[n], M * law_V, rtol=5e-6)


@pytest.mark.parametrize(
  ("share", "m"), others_long([(0.3, 1), (0.5, 3), (1.0, 3)], [(0.3, 1), (1.0, 3)])
)
def test_share_by_counts_is_exact_also_for_few_draws(share, m, chi_square):
  """If buckets are empty, all draws are by counts."""
  sampler = sampler_of("simhash", unigram_share=share)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, m)
  none_LKE = jnp.full_like(stats.tables.ids_LKE, V)
  empty = stats._replace(tables=stats.tables._replace(ids_LKE=none_LKE))
  many_ND = jnp.tile(h_ND, (4000, 1))
  for state in (stats, empty):
    draw = sample(sampler, state, w_VD, KEY, many_ND, y)
    ids_RNM = draw.ids.reshape(-1, N, m)
    expected_NV = np.float64(enumerated(sampler, state, w_VD, h_ND, y))
    np.testing.assert_allclose(expected_NV.sum(1), m, rtol=1e-5)
    assert np.isfinite(draw.log_expected).all()
    for n in range(N):
      assert chi_square(ids_RNM[:, n], expected_NV[n] / m) > 1e-4
      other_V = np.roll(expected_NV[n], 1) / m + 1e-9
      assert chi_square(ids_RNM[:, n], other_V / other_V.sum()) < 1e-4
  weight_V = counts.unigram_V + 1
  want_V = m * weight_V / weight_V.sum()
  np.testing.assert_allclose(expected_NV, np.broadcast_to(want_V, (N, V)), rtol=1e-5)


@pytest.mark.parametrize(
  ("family", "num_classes"), others_long([("simhash", 2), ("mips", 1)], [("mips", 1)])
)
def test_one_table_and_zero_activations_are_accepted(family, num_classes):
  counts, w_VD, h_ND, y = problem(num_classes)
  sampler = LSHEmbedding(family=family, codes=3, tables=1, slots=1, rebuild_tables=1)
  stats = sampler.init(counts, w_VD, 8)
  for w, h in ((w_VD, 0 * h_ND), (0 * w_VD, h_ND)):
    stats = update(sampler, stats, w, jnp.arange(1), w[:1], w[:1])
    expected_NV = enumerated(sampler, stats, w, h, y)
    np.testing.assert_allclose(expected_NV.sum(1), 8, rtol=1e-5)


def test_many_rows_are_rehashed_in_chunks():
  """More rows than one chunk, and not a multiple of it: each is in its bucket."""
  num, rows = 9001, 4100
  sampler = LSHEmbedding(codes=2, tables=2, slots=64)
  rng = np.random.default_rng(0)
  w_VD = rng.normal(size=(num, 24)).astype("f")
  stats = sampler.init(Counts(np.ones(num, int)), jnp.asarray(w_VD), 8)
  ids_R = rng.permutation(num + 50)[:rows].astype(np.int32)
  is_class_R = ids_R < num
  old_RD = w_VD[np.minimum(ids_R, num - 1)]
  new_RD = rng.normal(size=(rows, 24)).astype("f")
  w_VD[ids_R[is_class_R]] = new_RD[is_class_R]
  stats = update(sampler, stats, jnp.asarray(w_VD), ids_R, old_RD, new_RD)
  ids_LKE = np.asarray(stats.tables.ids_LKE)
  bucket_LV = np.asarray(
    hashing.row_buckets(stats.functions, jnp.asarray(w_VD), 2, ids_LKE.shape[1])
  )
  slot_LV = slot_tables.slots_of(stats.tables.factor_L, jnp.arange(num), 64)
  for ids_KE, bucket_V, slot_V in zip(
    ids_LKE, bucket_LV, np.asarray(slot_LV), strict=True
  ):
    is_there_V = ids_KE[bucket_V, slot_V] == np.arange(num)
    assert is_there_V.sum() == (ids_KE < num).sum()  # and none is anywhere else
    touched = ids_R[is_class_R]
    assert (ids_KE[bucket_V, slot_V][touched] < num).all()
    assert is_there_V[touched].mean() > 0.3


@pytest.mark.parametrize("draw", others_long(["independent", "fill"], ["independent"]))
def test_step_holds_no_array_over_all_classes_and_writes_in_place(draw):
  num_classes = 50_000
  sampler = LSHEmbedding(
    draw=draw, family="simhash", codes=14, tables=4, unigram_share=0.0
  )
  head = Sampled(
    loss=SampledSoftmax(corrected=draw != "fill"), sampler=sampler, num_samples=16
  )
  counts = Counts(np.ones(num_classes, int))
  shapes = jax.eval_shape(lambda: head.init(KEY, counts, 16))
  y = single_targets(np.zeros(64, int))

  def step(state, h_ND, key):
    grads = head.backward(state, h_ND, y, key).grads
    return head.update(state, grads, lr=0.1, scale=1.0)

  h_ND = jnp.zeros((64, 16))
  lowered = jax.jit(step, donate_argnums=0).lower(shapes, h_ND, KEY)
  memory = lowered.compile().memory_analysis()
  sizes = [4 * x.size for x in (shapes.table.w_VD, shapes.stats.tables.ids_LKE)]
  assert memory.alias_size_in_bytes >= sum(sizes)
  assert memory.temp_size_in_bytes < min(sizes) / 2


@pytest.mark.parametrize(
  ("field", "value"),
  [
    *(("codes", 0), ("tables", 0), ("slots", 0), ("exact", -1)),
    *(("slots", 65537), ("exact", 801)),
    *(("rebuild_tables", -1), ("rebuild_tables", 51), ("unigram_share", 1.5)),
    ("family", "minhash"),
  ],
)
def test_invalid_values_are_refused(field, value):
  with pytest.raises(UserError, match=rf"\.{field} is .*(; it must|: use)"):
    LSHEmbedding(**{field: value})


def test_more_slots_than_32_bits_can_count_are_refused():
  sampler = LSHEmbedding(codes=10, tables=1)
  tables = partial(sampler._new_tables, key=KEY, tables=1)
  shape = lambda V: jax.ShapeDtypeStruct((V, 8), jnp.float32)
  jax.eval_shape(tables, shape(2 * 10**8))
  with pytest.raises(UserError, match=r"for 300,000,000 classes, are more than 32-bit"):
    jax.eval_shape(tables, shape(3 * 10**8))


@pytest.mark.parametrize("weight", others_long([-1.0, 2.0], [-1.0]))
def test_labels_of_any_nonzero_weight_query_the_tables(weight):
  sampler = sampler_of("simhash", LSHLabel, **FILL)
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, 5)
  ask = lambda w_NP: sampler.query_buckets(stats, w_VD, h_ND, y._replace(w_NP=w_NP))
  np.testing.assert_array_equal(ask(y.w_NP), ask(weight * y.w_NP))
  nothing = stats.tables.ids_LKE.shape[1]
  assert (np.asarray(ask(0 * y.w_NP)) == nothing).all()
