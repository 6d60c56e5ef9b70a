import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.draws import symmetric_power as power
from tests.long import others_long

DIMS, DEGREES = [1, 2, 3, 6], [2, 4]
every_space = pytest.mark.parametrize(
  ("dim", "degree"), list(itertools.product(DIMS, DEGREES))
)

moments = jax.jit(power.moments, static_argnums=2)


def vectors(*shape, seed=0):
  return np.random.default_rng(seed).standard_normal(shape)


@every_space
def test_every_product_occurs_once(dim, degree):
  got = [tuple(f) for f in power.factors(dim, degree).tolist()]
  assert len(got) == power.num_features(dim, degree)
  orders = {}
  for ordered in itertools.product(range(dim), repeat=degree):
    product = tuple(sorted(ordered))
    orders[product] = orders.get(product, 0) + 1
  assert sorted(got) == sorted(orders)
  assert power.multiplicity(dim, degree).tolist() == [orders[f] for f in got]


@pytest.mark.parametrize(
  ("dim", "degree"),
  others_long(itertools.product(DIMS, [1, 2, 3, 4]), [(1, 3), (3, 2), (6, 4)]),
)
def test_inner_products_are_powers_in_float64(dim, degree):
  with jax.enable_x64(True):
    u_ND, v_ND = vectors(5, dim), vectors(5, dim, seed=1)
    phi_NF = power.query(jnp.asarray(u_ND), degree)
    psi_NF = power.features(jnp.asarray(v_ND), degree)
    assert phi_NF.shape == psi_NF.shape == (5, power.num_features(dim, degree))
    assert phi_NF.dtype == psi_NF.dtype == jnp.float64
    want_NN = (u_ND @ v_ND.T) ** degree
    np.testing.assert_allclose(phi_NF @ psi_NF.T, want_NN, rtol=1e-11, atol=1e-12)


@every_space
def test_float32_stays_float32(dim, degree):
  u_ND, v_ND = (jnp.asarray(vectors(5, dim, seed=s), jnp.float32) for s in (0, 1))
  phi_NF, psi_NF = power.query(u_ND, degree), power.features(v_ND, degree)
  assert phi_NF.dtype == psi_NF.dtype == jnp.float32
  want_NN = (np.float64(u_ND) @ np.float64(v_ND).T) ** degree
  got_NN = np.float64(phi_NF) @ np.float64(psi_NF).T
  np.testing.assert_allclose(got_NN, want_NN, atol=1e-6 * np.abs(want_NN).max() * dim)


@every_space
@pytest.mark.parametrize("size", [1, 7])
def test_moments_are_weighted_sums_of_features(dim, degree, size):
  with jax.enable_x64(True):
    v_ED, weight_E = vectors(size, dim), vectors(size, seed=1)
    got_F = moments(jnp.asarray(v_ED), jnp.asarray(weight_E), degree)
    want_F = np.zeros(math.comb(dim + degree - 1, degree))
    for e in range(size):
      for f, factors in enumerate(power.factors(dim, degree)):
        want_F[f] += weight_E[e] * np.prod(v_ED[e, factors])
    assert got_F.dtype == jnp.float64
    np.testing.assert_allclose(got_F, want_F, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
  ("dim", "degree"),
  others_long(itertools.product(DIMS, DEGREES), [(1, 2), (3, 4), (6, 2)]),
)
def test_a_query_of_moments_is_a_weighted_sum_of_powers(dim, degree):
  with jax.enable_x64(True):
    v_ED, weight_E = vectors(9, dim), np.abs(vectors(9, seed=1))
    u_ND = vectors(4, dim, seed=2)
    sums_F = power.moments(jnp.asarray(v_ED), jnp.asarray(weight_E), degree)
    got_N = power.query(jnp.asarray(u_ND), degree) @ sums_F
    want_N = (u_ND @ v_ED.T) ** degree @ weight_E
    np.testing.assert_allclose(got_N, want_N, rtol=1e-11)


def test_empty_sums_are_zero():
  assert power.features(jnp.zeros((0, 3)), 2).shape == (0, 6)
  moments_F = power.moments(jnp.zeros((0, 3)), jnp.zeros(0), 4)
  np.testing.assert_array_equal(moments_F, np.zeros(15))


def test_mismatched_shapes_are_named():
  with pytest.raises(ValueError, match=r"weight_E has shape \(4,\), but E = 5"):
    power.moments(jnp.zeros((5, 3)), jnp.zeros(4), 2)
