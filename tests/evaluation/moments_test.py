"""Moments from batches, compared with those of all values at once."""

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.evaluation.moments import Moments, sums


def of_batches(v_N, w_N, sizes) -> Moments:
  moments, at = Moments(), 0
  for size in sizes:
    part = slice(at, at + size)
    moments.add(
      sums({"nll": jnp.asarray(v_N[part])}, jnp.asarray(w_N[part])), w_N[part]
    )
    at += size
  assert at == len(v_N)
  return moments


@pytest.mark.parametrize("sizes", [[60], [1, 9, 50], [30, 30]])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_moments_of_batches_equal_those_of_all_values(sizes, offset):
  rng = np.random.default_rng(0)
  v_N = (offset + rng.gamma(2.0, size=60)).astype(np.float32)
  w_N = rng.choice([0.0, 0.5, 1.0], 60).astype(np.float32)
  moments = of_batches(v_N, w_N, sizes)
  v_N, w_N = v_N.astype(np.float64), w_N.astype(np.float64)
  mean = np.average(v_N, weights=w_N)
  sd = np.sqrt(np.average((v_N - mean) ** 2, weights=w_N))
  assert moments.mean("nll") == pytest.approx(mean, rel=1e-6)
  assert moments.sd("nll") == pytest.approx(sd, rel=1e-4)
  se = sd * np.sqrt(np.sum(w_N**2)) / np.sum(w_N)
  assert moments.standard_error("nll") == pytest.approx(se, rel=1e-4)


def test_values_can_be_of_any_size():
  """The loss of a class that is never drawn can be very large."""
  v_N = np.array([1.0, 2.0, 1e30, 3.0], np.float32)
  moments = of_batches(v_N, np.ones(4, np.float32), [2, 2])
  assert moments.mean("nll") == pytest.approx(0.25e30, rel=1e-6)
  assert moments.standard_error("nll") == pytest.approx(
    v_N.astype(float).std() / 2, rel=1e-6
  )


def test_standard_error_is_the_spread_of_means_of_fresh_samples():
  rng = np.random.default_rng(0)
  samples = rng.gamma(2.0, size=(4000, 50)).astype(np.float32)
  w_N = np.ones(50, np.float32)
  errors = [
    of_batches(v_N, w_N, [20, 30]).standard_error("nll") for v_N in samples[:300]
  ]
  assert np.mean(errors) == pytest.approx(samples.mean(axis=1).std(), rel=0.05)


def test_omitted_zeros_count_by_their_share():
  rng = np.random.default_rng(0)
  v_N, w_N = rng.integers(0, 2, 30).astype(np.float32), np.ones(30, np.float32)
  part = of_batches(v_N, w_N, [10, 20])
  whole = of_batches(np.append(v_N, np.zeros(10, np.float32)), np.ones(40), [40])
  share = 30 / 40
  assert part.sd("nll", share) == pytest.approx(whole.sd("nll"), rel=1e-6)
  se = part.standard_error("nll", share)
  assert se == pytest.approx(whole.standard_error("nll"), rel=1e-6)
