import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from largevocab.errors import UserError
from largevocab.labels import Counts, single_targets
from largevocab.ops.block_counts import block_counts
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.draws import strata
from largevocab.samplers import PPS, Bernoulli, inclusion
from largevocab.samplers.inclusion import capped_probabilities

M, V = 12, 50
COUNTS = Counts(np.random.default_rng(0).permutation(1000 // np.arange(1, V + 1) ** 2))
W_VD, H_ND = jnp.zeros((V, 2)), jnp.zeros((1, 2))
Y = single_targets(np.array([0]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.data())
def test_inclusion_probabilities_equal_the_definition(counts, data):
  weight_V = np.array(counts, np.float64)
  positive = int((weight_V > 0).sum())
  if not positive:
    return
  m = data.draw(st.integers(1, positive))
  pi_V = capped_probabilities(weight_V, m)
  assert pi_V.sum() == pytest.approx(m, rel=1e-12)
  np.testing.assert_array_equal(pi_V > 0, weight_V > 0)
  assert (pi_V <= 1).all()
  open_V = (pi_V < 1) & (weight_V > 0)
  if open_V.any():  # One multiplier for all classes below 1; the others exceed it.
    lam_V = pi_V[open_V] / weight_V[open_V]
    np.testing.assert_allclose(lam_V, lam_V[0], rtol=1e-12)
    assert (weight_V[pi_V == 1] * lam_V[0] >= 1 - 1e-12).all()
  # As strata: still at most once per draw, and none is lost.
  expected_V = np.exp(np.float64(strata.build(pi_V, m).log_expected_V))
  assert (expected_V <= 1).all()
  np.testing.assert_array_equal(expected_V > 0, weight_V > 0)


@pytest.mark.parametrize(
  "weight_V", [[1e20, 1.0], [1, 1, 1e-20], [1, 1, 1e-100], [5, 5, 5, 5]]
)
@pytest.mark.parametrize("m", [1, 2])
def test_weights_beyond_the_precision_of_float64_are_accepted(weight_V, m):
  pi_V = capped_probabilities(np.array(weight_V, np.float64), m)
  expected_V = np.exp(np.float64(strata.build(pi_V, m).log_expected_V))
  assert (expected_V > 0).all()
  assert (expected_V <= 1).all()
  assert expected_V.sum() == pytest.approx(m, rel=1e-6)


def test_inclusion_frequencies_follow_the_law_and_the_test_would_notice():
  """Draws with different keys are independent: each class is a coin, with variance
  pi (1 - pi)."""
  sampler, runs = PPS(), 20_000
  stats = sampler.init(COUNTS, W_VD, M)
  ids_RM = jax.jit(jax.vmap(lambda key: sampler.sample(stats, W_VD, key, H_ND, Y).ids))(
    jax.random.split(jax.random.key(0), runs)
  )
  sorted_RM = np.sort(ids_RM, axis=1)
  assert (np.diff(sorted_RM, axis=1) > 0).all()  # no class twice

  count_V = np.bincount(np.asarray(ids_RM).ravel(), minlength=V)
  pi_V = np.exp(np.float64(sampler.log_expected(stats, W_VD, H_ND, Y, jnp.arange(V))))
  certain_V = pi_V == 1
  assert 0 < certain_V.sum() < M
  assert (count_V[certain_V] == runs).all()

  def largest_z(pi_V):
    sd_V = np.sqrt(runs * pi_V * (1 - pi_V))
    return np.abs((count_V - runs * pi_V) / sd_V).max()

  limit = scipy.stats.norm.isf(1e-4 / 2 / V)
  open_V = np.flatnonzero(~certain_V)
  count_V = count_V[open_V]
  assert largest_z(pi_V[open_V]) < limit
  wrong_V = pi_V[open_V] * np.where(np.arange(len(open_V)) % 2, 1.1, 0.9)
  assert largest_z(wrong_V) > limit


def test_estimate_of_a_sum_is_exactly_unbiased():
  """Enumerates every draw: between two neighbouring fractions the draw is constant."""
  sampler = PPS(smoothing=0.3)
  stats = sampler.init(COUNTS, W_VD, M)
  u_G = np.unique(np.append(stats.strata.start_V, 0)).astype(np.uint32)
  share_G = np.diff(u_G.astype(np.int64), append=strata.UNIT) / strata.UNIT
  ids_GM = jax.vmap(
    lambda u: strata.lookup(stats.strata, jnp.arange(M), jnp.full(M, u))
  )(jnp.asarray(u_G))
  rng = np.random.default_rng(1)
  exp_o_V = np.exp(3 * rng.normal(size=V))
  pi_V = np.exp(np.float64(stats.strata.log_expected_V))
  included_GV = (np.asarray(ids_GM)[:, :, None] == np.arange(V)).sum(1)
  assert included_GV.max() == 1
  np.testing.assert_allclose(share_G @ included_GV, pi_V, rtol=1e-6)
  # The complement sum: the true class is masked, all others are weighted by 1 / pi.
  for true in range(V):
    term_V = np.where(np.arange(V) == true, 0, exp_o_V / pi_V)
    estimate = exp_o_V[true] + share_G @ included_GV @ term_V
    assert estimate == pytest.approx(exp_o_V.sum(), rel=1e-6)


@pytest.mark.parametrize(("m", "drawn"), [(V, V), (V + 7, V), (1, 1)])
def test_capacity_beyond_the_classes_is_masked(m, drawn):
  sampler = PPS()
  stats = sampler.init(COUNTS, W_VD, m)
  draw = sampler.sample(stats, W_VD, jax.random.key(0), H_ND, Y)
  ids = np.asarray(draw.ids)[np.asarray(draw.mask)]
  assert len(set(ids.tolist())) == len(ids) == drawn
  if m >= V:
    np.testing.assert_array_equal(draw.log_expected, 0)


def test_more_draws_than_strata_are_refused(monkeypatch):
  monkeypatch.setattr(inclusion, "MAX_STRATA", 10)
  PPS().init(COUNTS, W_VD, 10)
  Bernoulli(systematic=True).init(COUNTS, W_VD, 9)
  for sampler in (PPS(), Bernoulli(systematic=True)):
    with pytest.raises(UserError, match=r"^head\.num_samples makes a draw of"):
      sampler.init(COUNTS, W_VD, 38)


def test_classes_without_counts_and_smoothing_are_masked_too():
  counts = Counts(np.array([5, 0, 3, 0]))
  sampler, w_VD = PPS(smoothing=0.0), jnp.zeros((4, 2))
  stats = sampler.init(counts, w_VD, 3)
  draw = sampler.sample(stats, w_VD, jax.random.key(0), H_ND, Y)
  assert draw.mask.tolist() == [True, True, False]
  assert set(draw.ids.tolist()) == {0, 2}


def test_blocks_with_different_numbers_of_draws_are_refused():
  counts = block_counts(Counts(np.array([5, 1, 3, 0, 2, 0, 1, 0])), Blocks(8, 2))
  w_VD, sampler = jnp.zeros((4, 2)), PPS(smoothing=0.0)
  for number in range(2):  # each of them, as each may be of another process
    message = "smoothing is 0, and one of 2 blocks .* only 1 .* head.num_samples to 2"
    with pytest.raises(UserError, match=message):
      sampler.init(counts(number), w_VD, 2)
    assert sampler.init(counts(number), w_VD, 1).mask_M.tolist() == [True]
    assert PPS().init(counts(number), w_VD, 2).mask_M.tolist() == [True, True]


@pytest.mark.parametrize("m", [0, -1, 2.5])
def test_invalid_number_of_draws_is_named(m):
  with pytest.raises(UserError, match=f"Size.m is {m}; it must be"):
    PPS().init(COUNTS, W_VD, m)
