"""Random sets of classes: their law, and the estimates made from them, enumerated."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from largevocab.errors import UserError
from largevocab.heads import Full, Sampled
from largevocab.labels import Counts, single_targets
from largevocab.losses.sampled_softmax import sampled_softmax_loss
from largevocab.ops.block_counts import block_counts
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.draws.random_sets import Compared, Poissonised, Systematic
from largevocab.samplers import Bernoulli, Uniform, Unigram
from largevocab.samplers.inclusion import (
  capped_probabilities,
  power_probabilities,
  solve_power,
)
from tests.long import others_long

KEY = jax.random.key(0)
RUNS = 20_000
INCLUSIONS = ["capped", "power"]


def zipf_counts(num_classes, seed=0):
  """Zipf counts, not sorted, some of them zero."""
  count_V = 1000 // np.arange(1, num_classes + 1)
  count_V[-num_classes // 5 :] = 0
  return Counts(np.random.default_rng(seed).permutation(count_V))


def started(sampler, counts, m):
  """The sampler's statistics, a table of zeros, activations, targets."""
  w_VD, h_ND = jnp.zeros((counts.num_classes, 2)), jnp.zeros((3, 2))
  y = single_targets(jnp.zeros(3, int))
  return sampler.init(counts, w_VD, m), w_VD, h_ND, y


def law_of(sampler, stats, w_VD, h_ND, y):
  """Inclusion probabilities as reported, f64[V]."""
  log_b = sampler.log_expected(stats, w_VD, h_ND, y, jnp.arange(len(w_VD)))
  rows = np.atleast_2d(np.exp(np.float64(log_b)))
  assert (rows == rows[0]).all()
  return rows[0]


@functools.partial(jax.jit, static_argnames="sampler")
def sample(sampler, stats, w_VD, key, h_ND, y):
  return sampler.sample(stats, w_VD, key, h_ND, y)


# Inclusion probabilities.


@settings(max_examples=200, deadline=None)
@given(
  st.lists(st.integers(1, 10**9), min_size=2, max_size=40),
  st.floats(0, 1),
  st.booleans(),
)
def test_probabilities_sum_to_the_expected_size_without_the_label(counts, at, capped):
  f_V = np.array(counts) / np.sum(counts)
  size = 1 + at * (len(f_V) - 2)
  b_V = (
    capped_probabilities(f_V, size, f_V) if capped else power_probabilities(f_V, size)
  )
  assert ((b_V > 0) & (b_V <= 1)).all()
  assert (1 - f_V) @ b_V == pytest.approx(size, rel=1e-9)
  assert (np.diff(b_V[np.argsort(f_V)]) >= 0).all()
  if capped and (b_V < 1).any():
    lam = (b_V / f_V)[b_V < 1]
    np.testing.assert_allclose(lam, lam[0], rtol=1e-9)
    assert (f_V[b_V == 1] * lam[0] >= 1 - 1e-9).all()
  if not capped:
    np.testing.assert_allclose(b_V, f_V ** solve_power(f_V, size))


@pytest.mark.parametrize("inclusion", INCLUSIONS)
@pytest.mark.parametrize("m", [49, 50, 1000])
def test_every_class_is_certain_if_all_other_classes_are_asked_for(inclusion, m):
  counts = zipf_counts(50)
  f_V = (counts.unigram_V + 1) / (counts.unigram_V + 1).sum()
  assert solve_power(f_V, m) == 0
  sampler = Bernoulli(inclusion=inclusion)
  stats, *args = started(sampler, counts, m)
  draw = sample(sampler, stats, args[0], KEY, *args[1:])
  assert draw.ids.tolist() == list(range(50))
  assert draw.mask.all()
  assert not draw.log_expected.any()
  b_V = Bernoulli(inclusion=inclusion).probabilities(counts, args[0], 48)
  assert b_V.min() < 0.999  # one less, and they are not


@pytest.mark.parametrize("inclusion", INCLUSIONS)
@pytest.mark.parametrize("per_example", [False, True])
def test_loss_is_exact_if_every_class_is_certain(inclusion, per_example):
  V, N, D = 30, 7, 5
  counts = zipf_counts(V)
  sampler = Bernoulli(inclusion=inclusion, per_example=per_example)
  head, full = Sampled(sampler=sampler, num_samples=V - 1), Full(method="reference")
  state, full_state = (x.init(KEY, counts, D) for x in (head, full))
  w_VD = state.table.w_VD
  rng = np.random.default_rng(0)
  h_ND = jnp.asarray(rng.normal(size=(N, D)), jnp.float32)
  y = single_targets(rng.integers(0, V, N))
  out = jax.jit(head.backward)(state, h_ND, y, KEY)
  want = jax.jit(full.backward)(full_state, h_ND, y, KEY)
  np.testing.assert_allclose(out.loss, want.loss, rtol=1e-6)
  np.testing.assert_allclose(out.dh_ND, want.dh_ND, atol=1e-6)
  rows = out.grads.rows
  dw_VD = jnp.zeros_like(w_VD).at[rows.ids_R].add(rows.rows_RD, mode="drop")
  np.testing.assert_allclose(dw_VD, want.grads, atol=1e-6)


# Estimates, enumerated in float64 through the loss itself.


@functools.partial(jax.jit, static_argnames="true")
def estimates_x64(o_C, ids_SM, log_expected_SM, mask_SM, true):
  one = jnp.ones((1, 1))
  o_true = jnp.zeros((1, 1)) if true is None else o_C[true].reshape(1, 1)

  def estimate(ids_M, log_expected_M, mask_M):
    is_true = jnp.full((1, 1), true is not None)
    drawn = o_C[ids_M][None], log_expected_M[None], mask_M[None]
    return jnp.exp(sampled_softmax_loss(o_true, one, is_true, *drawn) + o_true[0, 0])

  return jax.vmap(estimate)(ids_SM, log_expected_SM, mask_SM)


def estimates(z_C, ids_SM, log_expected_SM, mask_SM, true=None):
  """Z~, f64[S], by `sampled_softmax_loss` for each of S draws of classes of value z."""
  if true is not None:
    mask_SM = mask_SM & (ids_SM != true)
  with jax.enable_x64(True):
    args = np.log(z_C), ids_SM, np.float64(log_expected_SM), mask_SM
    return np.asarray(estimates_x64(*map(jnp.asarray, args), true))


def all_sets(num):
  """Every set of `num` classes: bool[2^num, num]."""
  return np.array(list(itertools.product([False, True], repeat=num)))


def moments(value_S, chance_S):
  mean = chance_S @ value_S
  return mean, chance_S @ (value_S - mean) ** 2


def bernoulli_moments(z_C, b_C, true=None, reported_C=None):
  """Exact mean and variance of Z~ over all sets of the classes besides the true one."""
  reported_C = b_C if reported_C is None else reported_C
  others = [c for c in range(len(z_C)) if c != true]
  in_SM = all_sets(len(others))
  ids_SM = np.broadcast_to(others, in_SM.shape)
  chance_S = np.where(in_SM, b_C[others], 1 - b_C[others]).prod(axis=1)
  log_b_SM = np.broadcast_to(np.log(reported_C[others]), in_SM.shape)
  return moments(estimates(z_C, ids_SM, log_b_SM, in_SM, true), chance_S)


def importance_moments(z_C, q_C, draws, true=None):
  """The same over all independent draws from q."""
  ids_SM = np.array(list(itertools.product(range(len(z_C)), repeat=draws)))
  chance_S = q_C[ids_SM].prod(axis=1)
  log_expected_SM = np.log(draws * q_C[ids_SM])
  mask_SM = np.ones(ids_SM.shape, bool)
  return moments(estimates(z_C, ids_SM, log_expected_SM, mask_SM, true), chance_S)


SIX = Counts(np.array([5, 60, 20, 0, 2, 10]))
Z_SIX = np.exp(2 * np.random.default_rng(1).normal(size=6))


@pytest.mark.parametrize("true", [0, 1, 3])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("inclusion", INCLUSIONS)
def test_moments_over_all_sets_equal_equation_21(inclusion, m, true):
  sampler = Bernoulli(inclusion=inclusion)
  stats, *args = started(sampler, SIX, m)
  b_V = sampler.probabilities(SIX, args[0], m)
  np.testing.assert_allclose(law_of(sampler, stats, *args), b_V, rtol=1e-6)
  mean, variance = bernoulli_moments(Z_SIX, b_V, true)
  rest = np.arange(6) != true
  equation_21 = ((1 / b_V - 1) * Z_SIX**2)[rest].sum()
  assert mean == pytest.approx(Z_SIX.sum(), rel=1e-12)
  assert variance == pytest.approx(equation_21, rel=1e-12)
  # The enumeration would notice a report that is not the law of the sets.
  wrong, _ = bernoulli_moments(Z_SIX, b_V, true, reported_C=b_V**0.9)
  assert abs(wrong / mean - 1) > 1e-3


@pytest.mark.parametrize("true", [0, 1])
@pytest.mark.parametrize("draws", [2, 3])
def test_moments_over_all_independent_draws_equal_equation_18(draws, true):
  weight_V = Unigram().weights(SIX, np.zeros((6, 2)))
  q_V = weight_V / weight_V.sum()
  mean, variance = importance_moments(Z_SIX, q_V, draws, true)
  rest = np.arange(6) != true
  equation_18 = ((Z_SIX**2 / q_V)[rest].sum() - Z_SIX[rest].sum() ** 2) / draws
  assert mean == pytest.approx(Z_SIX.sum(), rel=1e-12)
  assert variance == pytest.approx(equation_18, rel=1e-12)


@pytest.mark.parametrize(("mu", "sigma"), [(3.0, 2.0), (3.0, 0.0), (3.0, 2.9)])
def test_footnote_2_of_the_paper_needs_a_correction(mu, sigma):
  """Values of mean mu and variance sigma^2 that the law does not depend on. By the
  footnote, importance sampling then has variance ((sigma^2 + mu^2) C^2 - mu^2) / S; but
  under a uniform law the mean contributes nothing to it."""
  C, draws = 5, 2
  counts = Counts(np.full(C, 7))
  uniform_C = Uniform().weights(counts, np.zeros((C, 2)))
  b_C = Bernoulli().probabilities(counts, np.zeros((C, 2)), draws)
  sampled, drawn = [], []
  for up_C in all_sets(C):  # all as likely
    z_C = np.where(up_C, mu + sigma, mu - sigma)
    drawn.append(importance_moments(z_C, uniform_C / C, draws)[1])
    sampled.append(bernoulli_moments(z_C, b_C)[1])
  exact = sigma**2 * C * (C - 1) / draws
  assert np.mean(drawn) == pytest.approx(exact, rel=1e-10, abs=1e-24)
  footnote = ((sigma**2 + mu**2) * C**2 - mu**2) / draws
  assert np.mean(drawn) < footnote / 2
  exact = (sigma**2 + mu**2) * C * (1 / b_C[0] - 1)
  assert np.mean(sampled) == pytest.approx(exact, rel=1e-10)
  if sigma == 0:  # Of equal logits, it is the size of a set that varies.
    size = C * b_C[0]
    relative = np.mean(sampled) / (C * mu) ** 2
    assert relative == pytest.approx((1 - size / C) / size, rel=1e-10)


@pytest.mark.parametrize("m", [2, 3])
def test_systematic_sets_hardly_vary_if_logits_are_equal(m):
  """All sets: between two neighbouring fractions the set is constant."""
  sampler, counts = Bernoulli(systematic=True), Counts(np.full(5, 7))
  stats, *_ = started(sampler, counts, m)
  starts = np.append(stats.others.strata.start_V, int(stats.others.last) + 1)
  u_S = np.unique(np.append(starts % 2**32, 0))
  chance_S = np.diff(u_S, append=2**32) / 2**32
  ids_SM, mask_SM = stats.others.at(jnp.asarray(u_S, jnp.uint32)[:, None])
  log_b_SM = np.asarray(stats.log_expected_V)[ids_SM]
  z_C = np.full(5, 3.0)
  estimate_S = estimates(z_C, np.asarray(ids_SM), log_b_SM, np.asarray(mask_SM))
  mean, variance = moments(estimate_S, chance_S)
  assert mean == pytest.approx(15, rel=1e-6)
  size = m / (1 - 1 / 5)
  part = size % 1
  assert variance / mean**2 == pytest.approx(part * (1 - part) / size**2, rel=1e-5)
  _, independent = bernoulli_moments(z_C, np.full(5, size / 5))
  assert variance < independent / 2


# Draws.


def sets_of(sampler, stats, w_VD, h_ND, y):
  """How often each class stands in each of many draws, i8[RUNS, V]."""

  def one(key):
    draw = sampler.sample(stats, w_VD, key, h_ND, y)
    ids, mask = (x[1] if sampler.per_example else x for x in (draw.ids, draw.mask))
    return jnp.zeros(len(w_VD), jnp.int8).at[ids].add(mask.astype(jnp.int8))

  keys = jax.random.split(jax.random.key(3), RUNS)
  return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=1000))(keys))


def largest_z(count, chance):
  """Of binomial counts in RUNS draws, over what it may be with probability 1e-4."""
  z = (count - RUNS * chance) / np.sqrt(RUNS * chance * (1 - chance))
  return np.abs(z).max() / scipy.stats.norm.isf(1e-4 / 2 / z.size)


DRAWS = [
  (Bernoulli(), 300, 15, Poissonised),
  (Bernoulli(inclusion="power"), 300, 15, Poissonised),
  (Bernoulli(per_example=True), 300, 15, Poissonised),
  (Bernoulli(), 50, 15, Compared),
  (Bernoulli(inclusion="power", per_example=True), 50, 30, Compared),
  (Bernoulli(systematic=True), 50, 15, Systematic),
  (Bernoulli(inclusion="power", systematic=True), 300, 15, Systematic),
  (Bernoulli(systematic=True, per_example=True), 50, 15, Systematic),
]


@pytest.mark.parametrize(
  ("sampler", "num_classes", "m", "way"), others_long(DRAWS, DRAWS[1::3])
)
def test_sets_follow_the_law_and_the_test_would_notice(sampler, num_classes, m, way):
  counts = zipf_counts(num_classes)
  stats, *args = started(sampler, counts, m)
  assert isinstance(stats.others, way)
  b_V = law_of(sampler, stats, *args)
  probabilities_V = sampler.probabilities(counts, args[0], m)
  np.testing.assert_allclose(b_V, probabilities_V, rtol=2e-6)
  in_RV = sets_of(sampler, stats, *args)
  assert in_RV.max() == 1  # no class twice
  certain_V = b_V == 1
  assert certain_V.any() == (sampler.inclusion == "capped")
  assert in_RV[:, certain_V].all()

  b_U, in_RU = b_V[~certain_V], in_RV[:, ~certain_V].astype(np.float64)
  assert largest_z(in_RU.sum(0), b_U) < 1
  assert largest_z(in_RU.sum(0), b_U * np.where(np.arange(len(b_U)) % 2, 1.1, 0.9)) > 1

  # Pairs, where enough of them are expected.
  joint_UU, product_UU = in_RU.T @ in_RU, np.outer(b_U, b_U)
  pairs = np.triu(RUNS * product_UU > 50, 1)
  assert pairs.sum() > 100
  z = largest_z(joint_UU[pairs], product_UU[pairs])
  size_R, size = in_RV.sum(1), b_V.sum()
  if way is Systematic:
    assert z > 1  # not independent
    assert set(size_R.tolist()) == {int(size), int(size) + 1}
    assert size_R.mean() == pytest.approx(size, abs=4 * 0.5 / np.sqrt(RUNS))
  else:
    assert z < 1
    variance = (b_V * (1 - b_V)).sum()
    assert size_R.mean() == pytest.approx(size, abs=4 * np.sqrt(variance / RUNS))
    assert size_R.var() == pytest.approx(variance, rel=0.05)


def test_examples_have_their_own_sets():
  sampler = Bernoulli(per_example=True)
  stats, *args = started(sampler, zipf_counts(300), 15)
  draw = sample(sampler, stats, args[0], KEY, *args[1:])
  drawn = [
    set(ids[mask].tolist()) for ids, mask in zip(draw.ids, draw.mask, strict=True)
  ]
  assert drawn[0] != drawn[1] != drawn[2]


def test_draw_makes_no_array_of_the_tables_size():
  num_classes, m = 100_000, 64
  sampler = Bernoulli()
  stats, *args = started(sampler, zipf_counts(num_classes), m)
  sample = lambda stats, key: sampler.sample(stats, args[0], key, *args[1:])
  memory = jax.jit(sample).lower(stats, KEY).compile().memory_analysis()
  assert memory.temp_size_in_bytes < num_classes


def test_classes_without_counts_and_smoothing_are_never_drawn():
  sampler = Bernoulli(smoothing=0.0)
  counts = Counts(np.array([5, 0, 3, 0, 1]))
  stats, *args = started(sampler, counts, 1)
  assert law_of(sampler, stats, *args)[[1, 3]].tolist() == [0, 0]
  in_RV = sets_of(sampler, stats, *args)
  assert in_RV.any(0).tolist() == [True, False, True, False, True]


@pytest.mark.parametrize("systematic", [False, True])
def test_blocks_read_each_other_once_and_have_equal_shapes(systematic, monkeypatch):
  """Otherwise `init` would take time quadratic in the number of blocks."""
  num, seen = 16, []
  probabilities = Bernoulli.probabilities

  def counted(self, *args):
    seen.append(1)
    return probabilities(self, *args)

  monkeypatch.setattr(Bernoulli, "probabilities", counted)
  of_block = block_counts(zipf_counts(1600), Blocks(1600, num))
  sampler, w_SD = Bernoulli(systematic=systematic), jnp.zeros((100, 2))
  each = [sampler.init(of_block(number), w_SD, 9) for number in range(num)]
  assert len(seen) == 2 * num
  assert len({str(jax.tree.map(jnp.shape, stats)) for stats in each}) == 1
  sums = [float(jnp.exp(stats.log_expected_V).sum()) for stats in each]
  assert min(sums) > 8
  assert len(set(sums)) > 1


def test_invalid_values_are_refused():
  with pytest.raises(
    UserError, match=r"^Bernoulli\.inclusion is 'root'; it must be one of capped, po"
  ):
    Bernoulli(inclusion="root")
  with pytest.raises(UserError, match=r"^Bernoulli\.smoothing is -1; it must be at"):
    Bernoulli(smoothing=-1)
