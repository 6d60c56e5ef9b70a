import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.factored import stabilizers
from largevocab.ops.factored.table import factor, implied
from tests.long import others_long

V, D = 50, 10
KEY = jax.random.key(0)


def factored(values_D, dtype=np.float32):
  """A table whose U has these singular values."""
  rng = np.random.default_rng(0)
  p_DD, q_DD = (np.linalg.qr(rng.standard_normal((D, D)))[0] for _ in range(2))
  u_DD = (p_DD * values_D) @ q_DD
  v_VD = rng.standard_normal((V, D)) / np.sqrt(np.mean(np.square(values_D)))
  f = factor(jnp.asarray(v_VD, dtype))
  f = f._replace(u_DD=jnp.asarray(u_DD, dtype), omega_D=f.omega_D + 0.5)
  f = stabilizers.reinvert(f)
  w_VD = implied(f)
  return f._replace(gram_DD=w_VD.T @ w_VD, sum_D=w_VD.sum(axis=0))


SPREADS = {
  "one tiny": np.r_[np.ones(D - 1), 1e-3],
  "one large": np.r_[np.ones(D - 1), 300.0],
  "two of each, two equal": np.r_[40.0, 40.0, np.ones(D - 4), 0.02, 0.03],
  "all small": np.full(D, 1e-3),
  "just outside": np.linspace(0.45, 2.2, D),
  "inside": np.linspace(0.6, 1.8, D),
}


# Where values are far off, float32 has lost digits of V U before any is set.
CASES = [(values, np.float64) for values in SPREADS] + [("just outside", np.float32)]


@pytest.mark.parametrize(
  ("name", "values", "dtype"),
  others_long(
    [(name, *case) for name in stabilizers.STABILIZERS for case in CASES],
    [(name, *case) for name in stabilizers.STABILIZERS for case in CASES[::3]],
  ),
)
def test_table_is_kept_and_singular_values_come_into_range(values, dtype, name):
  with jax.enable_x64(dtype == np.float64):
    f = factored(SPREADS[values], dtype)
    fixed = jax.jit(stabilizers.STABILIZERS[name], static_argnums=2)(f, KEY, 2.0)
    w_VD = implied(f)
    atol = 1e-6 * jnp.abs(w_VD).max()
    np.testing.assert_allclose(implied(fixed), w_VD, atol=atol)
    np.testing.assert_allclose(fixed.gram_DD, f.gram_DD, rtol=1e-4, atol=1e-4)
    inside_D = np.linalg.svd(fixed.u_DD, compute_uv=False)
    if name == "singular_values":
      assert inside_D.max() <= 2.001
      assert inside_D.min() >= 0.499
    np.testing.assert_allclose(fixed.u_DD @ fixed.u_inv_DD, np.eye(D), atol=1e-5)
    assert stabilizers.spread(fixed) <= 2


def test_well_conditioned_factors_are_left_alone():
  f = factored(SPREADS["inside"])
  for fix in stabilizers.STABILIZERS.values():
    fixed = jax.jit(fix, static_argnums=2)(f, KEY, 2.0)
    np.testing.assert_array_equal(fixed.v_VD, f.v_VD)
    np.testing.assert_array_equal(fixed.u_DD, f.u_DD)


def test_one_value_is_fixed_and_the_others_stay():
  with jax.enable_x64(True):
    values_D = np.r_[np.linspace(0.5, 2, D - 1), 1e-4]
    f = factored(values_D, np.float64)
    p_DD, got_D, _ = jnp.linalg.svd(f.u_DD)
    fixed = stabilizers.fix_singular_value(f, p_DD[:, -1], got_D[-1])
    got_D = np.linalg.svd(fixed.u_DD, compute_uv=False)
    want_D = np.r_[values_D[:-1], 1.0]
    np.testing.assert_allclose(np.sort(got_D), np.sort(want_D), rtol=1e-9)
    np.testing.assert_allclose(implied(fixed), implied(f), atol=1e-9)


def test_fixing_any_direction_does_not_change_the_table():
  with jax.enable_x64(True):
    f = factored(SPREADS["inside"], np.float64)
    p_D = jax.random.normal(KEY, (D,), jnp.float64)
    fixed = stabilizers.fix_singular_value(f, p_D / jnp.linalg.norm(p_D), 0.1)
    assert jnp.abs(fixed.v_VD - f.v_VD).max() > 0.1
    np.testing.assert_allclose(implied(fixed), implied(f), atol=1e-12)


def test_spread_bounds_the_singular_values():
  for values_D in SPREADS.values():
    far = stabilizers.spread(factored(values_D))
    assert far <= max(values_D.max(), 1 / values_D.min()) * 1.01
    assert values_D.max() <= far * np.sqrt(D) * 1.01
    assert values_D.min() >= 0.99 / (far * np.sqrt(D))


@pytest.mark.parametrize("name", stabilizers.STABILIZERS)
def test_stabilizers_end_on_a_table_that_is_not_finite(name):
  f = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), factor(jnp.ones((4, 3))))
  fixed = jax.jit(stabilizers.STABILIZERS[name], static_argnums=2)(f, KEY, 2.0)
  assert jnp.isnan(fixed.v_VD).all()


@pytest.mark.parametrize("name", stabilizers.STABILIZERS)
def test_no_second_table_is_held_unless_needed(name):
  """A donated V is changed in place; only `absorb` needs room for its product."""
  big = 100_000
  f = jax.eval_shape(lambda: factor(jnp.zeros((big, D))))
  fix = jax.jit(stabilizers.STABILIZERS[name], static_argnums=2, donate_argnums=0)
  analysis = fix.lower(f, KEY, 2.0).compile().memory_analysis()
  table = 4 * big * D
  assert analysis.alias_size_in_bytes >= table
  assert analysis.temp_size_in_bytes < 1.1 * table
