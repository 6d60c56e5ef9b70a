"""The tree of kernel sums: exact laws through many updates, and with stale sums."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, single_targets
from largevocab.ops.draws import feature_tree, sumtree
from largevocab.samplers import Block, Quadratic, QuadraticPrior, Quartic
from tests.long import others_long
from tests.samplers.changes import change_rows
from tests.samplers.compiled import init, sample

N, D, M = 4, 8, 10_000
KEY = jax.random.key(0)


def problem(num_classes, seed=0, dim=D):
  rng = np.random.default_rng(seed)
  w_VD = 0.5 * rng.normal(size=(num_classes, dim)).astype("f")
  h_ND = rng.normal(size=(N, dim)).astype("f")
  counts = Counts(rng.integers(0, 1000, num_classes))
  y = single_targets(np.zeros(N, int))
  return counts, jnp.asarray(w_VD), jnp.asarray(h_ND), y


def kernel_law(sampler, counts, w_VD, h_ND, centre_D):
  """K / sum K in float64."""
  o_NV = np.float64(h_ND) @ (np.float64(w_VD) - np.float64(centre_D)).T + sampler.shift
  k_NV = o_NV**4 + 1 if isinstance(sampler, Quartic) else sampler.alpha * o_NV**2 + 1
  weight_V = np.ones(len(w_VD))
  if sampler.power:
    weight_V = (counts.unigram_V + sampler.smoothing) ** sampler.power
  return weight_V * k_NV / (weight_V * k_NV).sum(-1, keepdims=True)


@partial(jax.jit, static_argnames="sampler")
def log_law(sampler, stats, w_VD, h_ND, y):
  return sampler.log_expected(stats, w_VD, h_ND, y, jnp.arange(len(w_VD)))


def enumerated(sampler, stats, w_VD, h_ND, y):
  return np.exp(np.float64(log_law(sampler, stats, w_VD, h_ND, y))) / stats.size.m


LAYOUTS = {
  "one block": {},
  "tree": {"leaf_size": 20, "dense_levels": 0},
  "cut": {"leaf_size": 7, "dense_levels": 4},
  "flat": {"leaf_size": 9, "dense_levels": 99},
}


# A tree knows only the features of a kernel; contract_test.py has more of each kernel.
SIZES = [(1, "one block"), (64, "tree"), (37, "cut"), *((1000, x) for x in LAYOUTS)]
KERNELS = [
  *((Quadratic, *size) for size in SIZES),
  *((QuadraticPrior, 37, "cut"), (QuadraticPrior, 1000, "tree")),
  *((Quartic, 64, "tree"), (Quartic, 1000, "cut")),
]


@pytest.mark.parametrize(
  ("make", "num_classes", "layout"),
  others_long(KERNELS, [KERNELS[-3]]),
)
def test_law_equals_that_of_the_kernel_before_and_after_1000_updates(
  make, num_classes, layout, chi_square
):
  sampler = make(**LAYOUTS[layout])
  counts, w_VD, h_ND, y = problem(num_classes)
  stats = init(sampler, counts, w_VD, M)
  blocks, depth = sumtree.num_blocks(stats.tree), sumtree.depth(stats.tree)
  assert blocks == 1 or num_classes % blocks or num_classes == 64
  before = enumerated(sampler, stats, w_VD, h_ND, y)
  law_NV = kernel_law(sampler, counts, w_VD, h_ND, stats.centre_D)
  np.testing.assert_allclose(before, law_NV, rtol=1e-5)
  np.testing.assert_allclose(before.sum(-1), 1, rtol=2e-6)

  stats, w_VD, _ = change_rows(sampler, stats, w_VD, steps=1000, rows=3, size=0.5)
  assert (blocks, depth) == (
    sumtree.num_blocks(stats.tree),
    sumtree.depth(stats.tree),
  )
  after = enumerated(sampler, stats, w_VD, h_ND, y)
  law_NV = kernel_law(sampler, counts, w_VD, h_ND, stats.centre_D)
  np.testing.assert_allclose(after, law_NV, rtol=1e-5)

  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  for ids_M, law_V in zip(draw.ids, law_NV, strict=True):
    if num_classes == 1:
      assert (ids_M == 0).all()
      continue
    assert chi_square(ids_M, law_V) > 1e-5
    # And the test would notice another law.
    tilted_V = law_V * np.where(np.argsort(np.argsort(law_V)) % 2, 1.2, 0.8)
    assert chi_square(ids_M, tilted_V / tilted_V.sum()) < 1e-5


def test_few_rows_are_added_and_many_rows_rebuild_the_sums():
  """With 50 rows of 1000 the sums are added to; with 900 they are built anew."""
  sampler = Quadratic(leaf_size=20, dense_levels=0)
  counts, w_VD, _, _ = problem(1000)
  stats = sampler.init(counts, w_VD, M)
  wrong = stats._replace(tree=jax.tree.map(jnp.ones_like, stats.tree))
  few, many = jnp.arange(50), jnp.arange(900)
  added = sampler.update(wrong, w_VD, few, w_VD[few], w_VD[few])
  rebuilt = sampler.update(wrong, w_VD, many, w_VD[many], w_VD[many])
  np.testing.assert_allclose(added.tree.top_CF, 1, rtol=1e-6)
  np.testing.assert_array_equal(rebuilt.tree.top_CF, stats.tree.top_CF)


STALE = {
  **LAYOUTS,
  "sketch": {"leaf_size": 7, "dense_levels": 2, "rank": 2},
  "softmax in a block": {"leaf_size": 7, "dense_levels": 2, "leaf": "softmax"},
}


@pytest.mark.parametrize(
  ("make", "name"),
  others_long(
    [
      *((Quadratic, name) for name in STALE),
      *((QuadraticPrior, "tree"), (QuadraticPrior, "sketch")),
      *((Quartic, "cut"), (Quartic, "softmax in a block")),
    ],
    [(QuadraticPrior, "sketch"), (Quartic, "softmax in a block")],
  ),
)
def test_law_is_known_if_sums_are_50_steps_old(make, name, chi_square):
  sampler = make(**STALE[name])
  counts, w_VD, h_ND, y = problem(100)
  stats = init(sampler, counts, w_VD, M)
  _, new_VD, _ = change_rows(sampler, stats, w_VD, steps=50, rows=20, size=0.5)
  law_NV = enumerated(sampler, stats, new_VD, h_ND, y)
  np.testing.assert_allclose(law_NV.sum(-1), 1, rtol=2e-6)
  draw = sample(sampler, stats, new_VD, KEY, h_ND, y)
  at_ids = np.take_along_axis(law_NV, np.asarray(draw.ids), -1)
  np.testing.assert_allclose(draw.log_expected, np.log(M * at_ids), atol=1e-5)
  for ids_M, law_V in zip(draw.ids, law_NV, strict=True):
    assert chi_square(ids_M, law_V) > 1e-4
  fresh_NV = kernel_law(sampler, counts, new_VD, h_ND, stats.centre_D)
  if sumtree.num_blocks(stats.tree) > 1:  # it is another law than the kernel's
    assert max(np.abs(law_NV - fresh_NV).sum(-1)) > 0.01
    assert min(map(chi_square, draw.ids, fresh_NV)) < 1e-4


def test_sums_may_be_left_to_refresh():
  sampler = Quadratic(leaf_size=20, dense_levels=0, incremental=False)
  counts, w_VD, _, _ = problem(1000)
  stats = init(sampler, counts, w_VD, M)
  for rows in (3, 50):
    changed, new_VD, _ = change_rows(sampler, stats, w_VD, 2, rows, size=0.5)
    jax.tree.map(np.testing.assert_array_equal, changed, stats)
    refreshed = sampler.refresh(changed, new_VD, KEY)
    assert (refreshed.tree.top_CF != stats.tree.top_CF).any()


def test_refresh_bounds_the_drift():
  sampler = QuadraticPrior(leaf_size=7, dense_levels=2)
  counts, w_VD, _, _ = problem(500)
  first = sampler.init(counts, w_VD, M)
  stats, w_VD, _ = change_rows(sampler, first, w_VD, 300, 2, size=0.5)
  refreshed = sampler.refresh(stats, w_VD, KEY)
  assert refreshed.tree.below_SF is not None
  scale = jnp.abs(refreshed.tree.below_SF).max()
  anew = sampler.init(counts, w_VD, M)
  for a, b in zip(refreshed, anew, strict=True):
    jax.tree.map(np.testing.assert_array_equal, a, b)
  features = sampler.features(stats)  # with the centre that was added to
  exact = feature_tree.rebuilt(stats.tree, features, w_VD)
  error = jnp.abs(stats.tree.below_SF - exact.below_SF).max() / scale
  assert 0 < error < 1e-5


def test_whole_leaves_hold_every_class_of_a_block_equally_often():
  sampler = Quadratic(leaf_size=10, dense_levels=1, whole_leaves=True)
  counts, w_VD, h_ND, y = problem(97)
  m = 25
  stats = init(sampler, counts, w_VD, m)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  size = -(-97 // sumtree.num_blocks(stats.tree))
  ids_NKE = np.asarray(draw.ids)[:, : 3 * size].reshape(N, 3, size)
  assert (ids_NKE // size == ids_NKE[:, :, :1] // size).all()
  assert not np.asarray(draw.mask)[:, 3 * size :].any()
  expected = m * enumerated(sampler, stats, w_VD, h_ND, y)
  at_ids = np.take_along_axis(expected, np.asarray(draw.ids), -1)
  np.testing.assert_allclose(np.exp(draw.log_expected), at_ids, rtol=1e-5)
  num = 2000
  draws = jax.jit(jax.vmap(lambda key: sampler.sample(stats, w_VD, key, h_ND, y)))
  ids_SNM, _, mask_SNM, *_ = draws(jax.random.split(KEY, num))
  counted = np.array(
    [
      np.bincount(np.asarray(ids_SNM[:, n])[np.asarray(mask_SNM[:, n])], minlength=97)
      for n in range(N)
    ]
  )
  errors = lambda law_NV: (counted / num - law_NV) / np.sqrt(law_NV / num)
  assert np.abs(errors(expected)).max() < 5
  of_another_block_NV = np.roll(expected, size, axis=1)
  assert (np.abs(errors(of_another_block_NV)).max(axis=1) > 5).all()


def test_padding_does_not_change_rows():
  """Ids beyond the table are gathered as its last row, which must not count."""
  sampler = Quadratic(leaf_size=7, dense_levels=2, rank=2)
  counts, w_VD, _, _ = problem(100)
  stats = init(sampler, counts, w_VD, M)
  ids_R = jnp.array([99, *range(100, 150)])
  new_VD = w_VD.at[99].add(1)
  rows = (w_VD.at[ids_R].get(mode="clip"), new_VD.at[ids_R].get(mode="clip"))
  changed = sampler.update(stats, new_VD, ids_R, *rows)
  np.testing.assert_allclose(changed.sketch.change_DD, 1, rtol=1e-5)
  exact = feature_tree.rebuilt(stats.tree, sampler.features(stats), new_VD)
  np.testing.assert_allclose(changed.tree.top_CF, exact.top_CF, atol=1e-4)


@pytest.mark.parametrize(
  "name", others_long(STALE, ["tree", "sketch", "softmax in a block"])
)
def test_law_that_is_not_finite_is_reported_as_such(name):
  """The trainer then stops, instead of continuing with meaningless weights."""
  sampler = QuadraticPrior(**STALE[name])
  counts, w_VD, h_ND, y = problem(100)
  stats = init(sampler, counts, w_VD, 50)
  h_ND = h_ND.at[1].set(jnp.nan).at[2].set(1e30)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  assert ((draw.ids >= 0) & (draw.ids < 100)).all()
  is_finite_N = jnp.isfinite(draw.log_expected).all(axis=1)
  np.testing.assert_array_equal(is_finite_N, [True, False, False, True])


@pytest.mark.parametrize(
  "sampler", others_long([Quadratic(), Block(leaf_size=256)], [Quadratic()])
)
def test_steps_hold_no_array_of_the_size_of_the_table(sampler):
  num_classes, dim, rows = 200_000, 32, 64
  head = Sampled(sampler=sampler, num_samples=8, absolute=sampler.absolute)
  state = jax.eval_shape(lambda: head.init(KEY, np.ones(num_classes, int), dim))
  h_ND, y = jnp.ones((rows, dim)), single_targets(jnp.zeros(rows, int))

  def step(state, h_ND, y):
    out = head.backward(state, h_ND, y, KEY)
    return head.update(state, out.grads, 0.1, 1.0)

  compiled = jax.jit(step, donate_argnums=0).lower(state, h_ND, y).compile()
  table = 4 * state.table.w_VD.size
  assert compiled.memory_analysis().temp_size_in_bytes < table / 2


def test_whole_leaves_need_a_sample_of_at_least_one_leaf():
  counts, w_VD, _, _ = problem(97)
  with pytest.raises(UserError, match=r"blocks of 10 classes: raise head.num_samples"):
    Quadratic(leaf_size=10, whole_leaves=True).init(counts, w_VD, 9)


def test_even_kernel_is_refused_for_an_ordinary_softmax():
  message = "a sampler that follows |o| misses likely classes or draws unlikely ones"
  with pytest.raises(UserError, match=re.escape(message)):
    Sampled(sampler=Quadratic())
  Sampled(sampler=Quadratic(), absolute=True)
  Sampled(sampler=Quadratic(absolute=False))  # asked for
  Sampled(sampler=QuadraticPrior())  # shifted


def test_plain_quadratic_draws_the_least_likely_under_an_ordinary_softmax():
  """This is why it is refused: logits of rare classes are large and negative."""
  counts, w_VD, h_ND, y = problem(200)
  w_VD, h_ND = w_VD.at[:, 0].add(-3), h_ND.at[:, 0].set(1)
  p_NV = jax.nn.softmax(h_ND @ w_VD.T)
  shares = {}
  for sampler in (Quadratic(absolute=False), QuadraticPrior(power=0.0)):
    q_NV = enumerated(sampler, init(sampler, counts, w_VD, M), w_VD, h_ND, y)
    shares[type(sampler)] = (np.square(p_NV) / q_NV).sum(-1).mean()
  assert shares[Quadratic] > 3 * shares[QuadraticPrior]


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"leaf": "max"}, "^Quadratic.leaf is 'max'"),
    ({"leaf_size": -1}, "^Quadratic.leaf_size is -1"),
    ({"dense_levels": -2}, "^Quadratic.dense_levels is -2"),
    ({"rank": -1}, "^Quadratic.rank is -1"),
    ({"rates": "tpu"}, "^Quadratic.rates is 'tpu'"),
    ({"alpha": -1.0}, "^Quadratic.alpha is -1.0"),
    ({"shift": float("inf")}, "^Quadratic.shift is inf"),
    ({"smoothing": -1.0}, "^Quadratic.smoothing is -1.0"),
  ],
)
def test_bad_fields_are_named(fields, message):
  with pytest.raises(UserError, match=message):
    Quadratic(**fields)
