import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.draws import inverse_cdf
from tests.long import others_long

draw = jax.jit(inverse_cdf.draw, static_argnames="m")
log_law = jax.jit(inverse_cdf.log_law)
KEY = jax.random.key(0)


def naive_draw(
  key: jax.Array, weight_NV: np.ndarray, m: int
) -> tuple[np.ndarray, np.ndarray]:
  """Reference for `draw` on the host, one draw and one group at a time."""
  u_LNM = np.asarray(inverse_cdf._random_units(key, weight_NV.shape, m))
  ids_NM, log_q_NM = np.zeros(u_LNM.shape[1:], int), np.zeros(u_LNM.shape[1:])
  levels = jax.vmap(inverse_cdf._levels)(jnp.asarray(weight_NV))
  for n, i in np.ndindex(ids_NM.shape):
    for (_, weight_NKG), u_NM in zip(levels, u_LNM, strict=True):
      weight_G = np.asarray(weight_NKG[n, ids_NM[n, i]])
      share_G = weight_G / weight_G.sum()
      length_G = np.maximum(
        np.rint(share_G * inverse_cdf.UNIT).astype(int), weight_G > 0
      )
      length_G[weight_G.argmax()] += inverse_cdf.UNIT - length_G.sum()
      pick = np.searchsorted(np.cumsum(length_G), u_NM[n, i], side="right")
      ids_NM[n, i] = ids_NM[n, i] * len(weight_G) + pick
      log_q_NM[n, i] += np.log(length_G[pick] / inverse_cdf.UNIT)
  return ids_NM, log_q_NM


def all_ids(weight_NV):
  return jnp.broadcast_to(jnp.arange(weight_NV.shape[1])[None, :], weight_NV.shape)


@pytest.mark.parametrize(
  ("num_classes", "m"),
  others_long(
    itertools.product([5, 129, 700, 128 * 128 + 1], [1, 20]),
    [(5, 20), (700, 1), (128 * 128 + 1, 20)],
  ),
)
def test_fast_draws_equal_naive_ones(num_classes, m, monkeypatch):
  # Small integers: the sums of groups are exact in any order.
  weight_NV = np.random.default_rng(0).integers(0, 9, (9, num_classes)).astype("f")
  weight_NV[:, 0] = 1
  # Few rows at a time, the last of them in part again.
  monkeypatch.setattr(inverse_cdf, "AT_A_TIME", 4 * num_classes)
  ids_NM, log_q_NM = inverse_cdf.draw(KEY, jnp.asarray(weight_NV), m)
  naive_ids_NM, naive_log_q_NM = naive_draw(KEY, weight_NV, m)
  np.testing.assert_array_equal(ids_NM, naive_ids_NM)
  np.testing.assert_allclose(log_q_NM, naive_log_q_NM, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("num_classes", [1, 64, 200, 20_000])
def test_law_equals_the_definition_and_what_draws_report(num_classes):
  rng = np.random.default_rng(1)
  weight_NV = np.exp(2 * rng.normal(size=(2, num_classes))).astype("f")
  log_q_NV = log_law(jnp.asarray(weight_NV), all_ids(weight_NV))
  q_NV = np.exp(np.asarray(log_q_NV, np.float64))
  np.testing.assert_allclose(q_NV.sum(-1), 1, atol=2e-6)
  p_NV = weight_NV.astype(np.float64) / weight_NV.astype(np.float64).sum(-1)[:, None]
  assert np.abs(q_NV - p_NV).sum(-1).max() < 1e-4
  ids_NM, log_q_NM = draw(KEY, jnp.asarray(weight_NV), m=500)
  np.testing.assert_allclose(
    log_q_NM, np.take_along_axis(np.asarray(log_q_NV), np.asarray(ids_NM), 1), atol=1e-5
  )


def test_every_unit_of_length_has_one_random_integer():
  """Enumerates the random integers around every boundary of a group."""
  weight_V = jnp.asarray([0.0, 1e-30, 2.0, 0.0, 5.0, 1.0, 0.0])
  ((total_K, weight_KG),) = inverse_cdf._levels(weight_V)
  length_KG = inverse_cdf._lengths(total_K, weight_KG)
  length_V = np.asarray(length_KG[0], np.int64)
  assert length_V.sum() == inverse_cdf.UNIT
  end_V = np.cumsum(length_V)
  u_M = (end_V[:, None] + np.arange(-2, 2)[None, :]).ravel()
  u_M = u_M[(u_M >= 0) & (u_M < inverse_cdf.UNIT)].astype(np.uint32)
  pick_M = inverse_cdf._pick(
    length_KG, jnp.zeros(len(u_M), jnp.int32), jnp.asarray(u_M)
  )
  np.testing.assert_array_equal(pick_M, np.searchsorted(end_V, u_M, side="right"))
  np.testing.assert_array_equal(length_KG[0] > 0, weight_KG[0] > 0)


@pytest.mark.parametrize("num_classes", [100, 700])
def test_weight_zero_is_never_drawn(num_classes):
  rng = np.random.default_rng(2)
  weight_NV = np.where(
    rng.random((4, num_classes)) < 0.9, 0, 10.0 ** rng.uniform(-30, 0, num_classes)
  ).astype("f")
  ids_NM, log_q_NM = draw(KEY, jnp.asarray(weight_NV), m=5000)
  assert (np.take_along_axis(weight_NV, np.asarray(ids_NM), 1) > 0).all()
  assert np.isfinite(log_q_NM).all()
  log_q_NV = log_law(jnp.asarray(weight_NV), all_ids(weight_NV))
  np.testing.assert_array_equal(np.isfinite(log_q_NV), weight_NV > 0)


def test_law_of_weights_over_the_whole_range_of_float32_sums_to_one():
  weight_NV = 10.0 ** np.linspace(-37, 30, 1000)[None, :].astype("f")
  log_q_NV = log_law(jnp.asarray(weight_NV), all_ids(weight_NV))
  np.testing.assert_allclose(np.exp(np.float64(log_q_NV)).sum(), 1, atol=1e-6)


def test_draws_follow_the_law(chi_square):
  rng = np.random.default_rng(3)
  weight_NV = jnp.asarray(rng.exponential(size=(1, 300)), jnp.float32)
  ids_NM, _ = draw(KEY, weight_NV, m=50_000)
  q_V = np.exp(np.float64(log_law(weight_NV, all_ids(weight_NV))))[0]
  assert chi_square(ids_NM, q_V) > 1e-4
  wrong_V = q_V * np.where(np.arange(300) % 2, 1.1, 0.9)
  assert chi_square(ids_NM, wrong_V) < 1e-4


def test_memory_does_not_grow_with_the_number_of_draws():
  n, num_classes = 40, 10_000
  weight_NV = jax.ShapeDtypeStruct((n, num_classes), jnp.float32)
  few, many = (
    draw.lower(KEY, weight_NV, m=m).compile().memory_analysis().temp_size_in_bytes
    for m in (64, 2048)
  )
  # A draw keeps its random integers, one a level, and what it returns.
  kept = 4 * n * 2048 * 8
  assert many - kept <= few + 4 * n * num_classes
  assert few < 8 * 4 * n * num_classes
