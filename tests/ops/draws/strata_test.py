import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from largevocab.ops.draws import strata
from largevocab.ops.draws.strata import UNIT

lookup = jax.jit(strata.lookup)


def lengths(s: strata.Strata) -> np.ndarray:
  """The integer lengths of the classes, read back from the arrays of the strata."""
  first_K = np.asarray(s.first_K)
  stratum_V = np.repeat(np.arange(len(first_K) - 1), np.diff(first_K))
  start = stratum_V * UNIT + np.asarray(s.start_V[: len(stratum_V)], np.int64)
  length_V = np.diff(start, append=(len(first_K) - 1) * UNIT)
  return np.pad(length_V, (0, len(s.start_V) - len(length_V)))


weights = arrays(
  np.float64,
  st.sampled_from([1, 2, 30]),
  elements=st.one_of(st.just(0.0), st.floats(1e-300, 1e300)),
).filter(lambda w: w.any())


@settings(max_examples=200, deadline=None)
@given(weights, st.integers(40, 1 << 52))
def test_apportion_is_exact_and_fair(weight_V, total):
  length_V = strata.apportion(weight_V, total)
  assert length_V.sum() == total
  np.testing.assert_array_equal(length_V > 0, weight_V > 0)
  scaled_V = weight_V / weight_V.max()
  fair_V = scaled_V / scaled_V.sum() * total
  bound = 2 + len(weight_V) + 1e-14 * total
  assert np.abs(length_V - fair_V).max() <= bound


@pytest.mark.parametrize(
  ("weight_V", "total", "message"),
  [
    ([1.0, 1.0], 1, "2 positive weights cannot share 1 units"),
    ([0.0], 4, "0 positive weights cannot share 4 units"),
    ([-1.0, 2.0], 4, "weights must be finite and non-negative"),
    ([np.nan], 4, "weights must be finite and non-negative"),
    ([np.inf], 4, "weights must be finite and non-negative"),
  ],
)
def test_apportion_refuses_invalid_weights(weight_V, total, message):
  with pytest.raises(ValueError, match=message):
    strata.apportion(np.array(weight_V), total)


def test_lengths_with_the_wrong_sum_are_refused():
  with pytest.raises(ValueError, match=r"lengths sum to 5, not to 1 \* 2\^32"):
    strata.from_lengths(np.array([2, 3]), 1)


def naive_lookup(
  length_V: np.ndarray, stratum_M: np.ndarray, u_M: np.ndarray
) -> np.ndarray:
  """Reference for `lookup` on the host, from the lengths given to `from_lengths`."""
  position_M = np.asarray(stratum_M, np.int64) * UNIT + np.asarray(u_M, np.int64)
  return np.searchsorted(np.cumsum(length_V), position_M, side="right")


@settings(max_examples=50, deadline=None)
@given(weights)
def test_law_round_trips_and_lookup_agrees_with_the_reference(weight_V):
  length_V = strata.apportion(weight_V, 8 * UNIT)
  s = strata.from_lengths(length_V, 8)
  np.testing.assert_array_equal(lengths(s), length_V)
  with np.errstate(divide="ignore"):
    np.testing.assert_allclose(s.log_expected_V, np.log(length_V / UNIT), rtol=1e-6)
  ends = np.cumsum(length_V)
  position = np.concatenate([ends - length_V, ends, ends - 1, [0, 8 * UNIT - 1]])
  position = np.clip(position, 0, 8 * UNIT - 1)
  stratum, u = np.divmod(position, UNIT)
  found = lookup(s, stratum.astype(np.int32), jnp.asarray(u.astype(np.uint32)))
  np.testing.assert_array_equal(found, naive_lookup(length_V, stratum, u))


def test_classes_of_length_zero_are_never_found():
  pi_V = np.array([0, 0.5, 0, 0, 1.5, 0, 1, 0, 0])
  s = strata.build(pi_V, 3)
  u = jnp.asarray([0, 1, UNIT // 2 - 1, UNIT // 2, UNIT - 1], jnp.uint32)
  stratum = jnp.arange(3, dtype=jnp.int32)
  found = strata.lookup(
    s, jnp.repeat(stratum[:, None], 5, axis=1), jnp.repeat(u[None, :], 3, axis=0)
  )
  assert set(np.asarray(found).ravel().tolist()) == {1, 4, 6}


def test_expected_counts_of_one_stay_exactly_one():
  rng = np.random.default_rng(0)
  rest_V = rng.dirichlet(np.ones(50)) * 3
  assert rest_V.max() < 1
  s = strata.build(np.concatenate([[1.0], rest_V[:20], [1.0, 1.0], rest_V[20:]]), 6)
  assert (np.asarray(s.log_expected_V) == 0).sum() == 3
  assert (lengths(s) <= UNIT).all()
  assert lengths(s).sum() == 6 * UNIT


@pytest.mark.parametrize(
  ("pi_V", "k", "message"),
  [
    ([1.0, 0.5], 1, "expected counts sum to 1.5, not to 1"),
    ([1.0, 0.5], 2, "expected counts sum to 1.5, not to 2"),
    ([np.nan], 1, "expected counts sum to nan, not to 1"),
    ([], 0, "the number of strata must be in 1..1048576: 0"),
  ],
)
def test_build_refuses_counts_with_the_wrong_sum(pi_V, k, message):
  with pytest.raises(ValueError, match=message):
    strata.build(np.array(pi_V), k)


def test_independent_draws_refuse_the_strata_of_systematic_ones():
  with pytest.raises(ValueError, match="build_iid"):
    strata.draw_iid(strata.build(np.ones(3), 3), jax.random.key(0), (2,))


def test_systematic_draws_take_every_certain_class_and_no_class_twice():
  pi_V = np.array([1.0, 0.25, 0.25, 0.5, 1.0, 0.9, 0.1])
  s = strata.build(pi_V, 4)
  ids = jax.vmap(lambda key: strata.draw_systematic(s, key))(
    jax.random.split(jax.random.key(0), 200)
  )
  for drawn in np.asarray(ids):
    assert len(set(drawn)) == 4
    assert {0, 4} <= set(drawn)


def test_ten_million_classes_stay_reachable_where_a_float32_cdf_loses_most():
  num_classes, k = 10_000_000, 1024
  weight_V = 1.0 / np.arange(1, num_classes + 1)
  s = strata.from_lengths(strata.apportion(weight_V, k * UNIT), k)
  length_V = lengths(s)
  assert length_V.min() >= 1
  assert length_V.sum() == k * UNIT
  np.testing.assert_allclose(
    length_V[[0, 10, -1]] / (k * UNIT), (weight_V / weight_V.sum())[[0, 10, -1]], 1e-4
  )

  # The first and the last position of a class lead to it.
  some = np.random.default_rng(0).integers(0, num_classes, 20_000)
  end_V = np.cumsum(length_V)
  for position in (end_V[some] - length_V[some], end_V[some] - 1):
    stratum, u = np.divmod(position, UNIT)
    found = lookup(s, stratum.astype(np.int32), jnp.asarray(u.astype(np.uint32)))
    np.testing.assert_array_equal(found, some)

  # The negative example: no float32 lies between neighbours of a rounded CDF.
  cdf_V = (np.cumsum(weight_V) / weight_V.sum()).astype(np.float32)
  assert (np.diff(cdf_V) == 0).mean() > 0.6
