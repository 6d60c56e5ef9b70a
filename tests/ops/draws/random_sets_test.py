"""Random sets: the law that they realise, from their integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from largevocab.ops.draws import random_sets, strata
from largevocab.ops.draws.random_sets import Compared, Poissonised, Systematic
from tests.long import others_long

UNITS = strata.IID_STRATA * strata.UNIT


def zipf(num_classes, total):
  """Inclusion probabilities of the given sum, the largest 0.9 at most."""
  rank_V = np.arange(1, num_classes + 1)
  return np.minimum(total / rank_V / np.log(num_classes), 0.9)


@pytest.mark.parametrize("mean", [1e-6, 0.1, 1.0, 7.0, 100.0, 1e3, 1e4, 1e6])
def test_capacity_is_hardly_ever_too_small(mean):
  most = random_sets.capacity(mean)
  assert scipy.stats.poisson.sf(most, mean) < 1e-11
  assert scipy.stats.poisson.sf(most - 6 * np.sqrt(mean) - 10, mean) > 1e-4 or mean < 1


@pytest.mark.parametrize(
  ("num_classes", "total"), [(1_000, 0.5), (1_000, 20), (100_000, 1_000)]
)
def test_truncated_and_rounded_poisson_law_realises_the_probabilities(
  num_classes, total
):
  """P(c) = 1 - sum over n of P(N = n) (1 - q_c)^n, in the integers of the strata."""
  b_V = zipf(num_classes, total)
  sets, realised_V = random_sets.build_independent(b_V)
  assert isinstance(sets, Poissonised)
  mean = -np.log1p(-b_V).sum()
  p_N = np.exp(np.float64(sets.sizes.log_expected_V)) / strata.IID_STRATA
  size_N = np.arange(len(p_N))
  assert size_N[-1] == random_sets.capacity(mean)
  assert p_N.sum() == pytest.approx(1, abs=1e-6)  # read back from float32
  np.testing.assert_allclose(p_N, scipy.stats.poisson.pmf(size_N, mean), atol=1e-7)

  length_V = strata.apportion(-np.log1p(-b_V), UNITS)
  exact_N = random_sets.poisson_lengths(mean) / UNITS
  assert exact_N.sum() == 1
  some_P = np.unique(np.geomspace(1, num_classes, 40).astype(int)) - 1
  log_miss_P = np.log1p(-length_V[some_P] / UNITS)
  hit_P = -(exact_N @ np.expm1(size_N[:, None] * log_miss_P[None, :]))
  np.testing.assert_allclose(hit_P, realised_V[some_P], rtol=1e-9)
  np.testing.assert_allclose(realised_V[some_P], b_V[some_P], rtol=1e-6)


@pytest.mark.parametrize(
  ("b_V", "way"),
  [
    (np.full(30, 0.5), Compared),
    (np.array([0.0, 0.3, 0.0]), Compared),
    (np.array([1e-300, 0.5, 0.0]), Compared),
    (np.array([np.nextafter(1, 0), 1e-30]), Compared),
    (np.append(np.zeros(500), np.full(500, 0.002)), Poissonised),
    (np.append(np.full(500, 1e-300), 0.5), Poissonised),
  ],
)
def test_no_possible_class_is_lost_and_no_impossible_one_drawn(b_V, way):
  for sets, realised_V in (
    random_sets.build_independent(b_V),
    random_sets.build_systematic(b_V),
  ):
    assert isinstance(sets, (way, Systematic))
    np.testing.assert_array_equal(realised_V > 0, b_V > 0)
    assert (realised_V <= 1).all()
    np.testing.assert_allclose(realised_V, b_V, atol=1e-6)
    keys = jax.random.split(jax.random.key(0), 300)
    ids, mask = jax.jit(jax.vmap(lambda key, sets=sets: sets.draw(key, (2,))))(keys)
    assert ids.shape == mask.shape == (300, 2, ids.shape[-1])
    assert ids.dtype == jnp.int32
    assert ((ids >= 0) & (ids < len(b_V))).all()
    assert (b_V[np.asarray(ids)[np.asarray(mask)]] > 0).all()


def test_sets_are_ascending_and_distinct_where_draws_repeat():
  b_V = np.append(np.full(3, 0.99), np.full(200, 0.01))
  sets, _ = random_sets.build_independent(b_V)
  assert isinstance(sets, Poissonised)
  draw = jax.jit(lambda key: sets.draw(key, (1000,)))
  ids, mask = map(np.asarray, draw(jax.random.key(0)))
  repeated = 0
  for ids_C, mask_C in zip(ids, mask, strict=True):
    assert (np.diff(ids_C[mask_C]) > 0).all()
    repeated += (ids_C[~mask_C] < 3).sum()
  assert repeated > 1000  # the merge had something to do


FRACTIONS = [[0.5, 0.25, 0.5], [0.5, 0.5], [0.1, 0.2], [0.9999999, 0.5, 0.7, 0.3]]


@pytest.mark.parametrize("b_V", others_long(FRACTIONS, FRACTIONS[::3]))
def test_systematic_probabilities_are_the_lengths_over_all_fractions(b_V):
  sets, realised_V = random_sets.build_systematic(np.array(b_V))
  np.testing.assert_allclose(realised_V, b_V, atol=1e-8)
  u_S = np.unique(np.append(sets.strata.start_V, [0, (int(sets.last) + 1) % 2**32]))
  share_S = np.diff(u_S.astype(np.int64), append=strata.UNIT) / strata.UNIT
  ids_SK, mask_SK = sets.at(jnp.asarray(u_S, jnp.uint32)[:, None])
  chance_V = np.zeros(len(b_V))
  for share, ids_K, mask_K in zip(share_S, ids_SK, mask_SK, strict=True):
    assert len(set(ids_K[mask_K].tolist())) == mask_K.sum()
    chance_V[ids_K[mask_K]] += share
  np.testing.assert_allclose(chance_V, realised_V, rtol=1e-12)


@pytest.mark.parametrize(
  ("b_V", "larger_V", "way"),
  [
    (zipf(1000, 5), zipf(1000, 60), Poissonised),
    pytest.param(np.zeros(1000), zipf(1000, 60), Poissonised, marks=pytest.mark.long),
    (np.append(np.zeros(36), zipf(4, 2)), zipf(40, 9), Compared),
    (np.zeros(40), zipf(40, 9), Compared),
  ],
)
def test_sets_of_one_extent_have_equal_shapes_and_their_own_laws(b_V, larger_V, way):
  times = 20_000
  for build, kind in (
    (random_sets.build_independent, way),
    (random_sets.build_systematic, Systematic),
  ):
    room = random_sets.largest(map(random_sets.extent, (b_V, larger_V)))
    sets, realised_V = build(b_V, room)
    larger, _ = build(larger_V, room)
    assert isinstance(sets, kind)
    assert jax.tree.map(jnp.shape, sets) == jax.tree.map(jnp.shape, larger)
    np.testing.assert_allclose(realised_V, b_V, atol=1e-6)
    if b_V.any():
      alone, of_alone_V = build(b_V)
      np.testing.assert_allclose(realised_V, of_alone_V, rtol=1e-6)
      assert jax.tree.map(jnp.shape, sets) != jax.tree.map(jnp.shape, alone)
    ids, mask = jax.jit(lambda key, sets=sets: sets.draw(key, (times,)))(
      jax.random.key(0)
    )
    often_V = np.bincount(np.asarray(ids)[np.asarray(mask)], minlength=len(b_V)) / times
    error_V = np.sqrt(np.maximum(b_V, 1e-4) / times)
    assert (np.abs(often_V - b_V) < 6 * error_V).all()
    assert not (np.abs(often_V - larger_V) < 6 * error_V).all()
    assert not often_V[b_V == 0].any()


@pytest.mark.parametrize("b_V", [[0.5, 1.0], [-0.1, 0.5], [0.0, 0.0], [np.nan, 0.1]])
def test_invalid_probabilities_are_refused(b_V):
  for build in (random_sets.build_independent, random_sets.build_systematic):
    with pytest.raises(ValueError, match="inclusion probabilities must be in"):
      build(np.array(b_V))


def test_systematic_sets_of_too_many_classes_are_refused():
  with pytest.raises(ValueError, match="sum to 1048577, more than 1048576"):
    random_sets.build_systematic(np.full(2**21 + 1, 0.5))
