"""Compares factored steps with steps of the table itself, one by one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.losses.spherical import SphericalSoftmax, Squared, TaylorSoftmax, ZLoss
from largevocab.ops.factored import steps
from largevocab.ops.factored.stabilizers import (
  STABILIZERS,
  fix_singular_value,
  guard,
  reinvert,
  spread,
)
from largevocab.ops.factored.table import factor, implied
from tests.long import others_long

V, D = 60, 12
# Loss and rate.
LOSSES = {
  "squared": (Squared(), 0.01),
  "spherical": (SphericalSoftmax(eps=0.5), 0.1),
  "taylor": (TaylorSoftmax(), 0.2),
  "z": (ZLoss(), 0.1),
}
WHAT = ("loss", "dh", "sq_norm", "w", "gram", "sum")


def batch(key, N, D, dtype):
  """Skewed classes, so that some repeat in the batch; up to three an example."""
  h_key, ids_key, t_key = jax.random.split(key, 3)
  h_ND = jax.random.normal(h_key, (N, D), dtype)
  ids_NP = (V * jax.random.uniform(ids_key, (N, 3)) ** 3).astype(jnp.int32)
  ids_NP = ids_NP.at[: N // 2, 2].set(V + 3)  # padding
  t_NP = jnp.where(ids_NP < V, jax.random.uniform(t_key, (N, 3), dtype), 0)
  weight_N = jnp.ones(N, dtype).at[-1].set(0.5) / N
  return h_ND, *steps.distinct(ids_NP, t_NP, V), weight_N


def naive_step(w_VD, loss, args, rate):
  """L, dL/dh and W - rate dL/dW."""
  grads = jax.value_and_grad(steps.loss_naive, (0, 2))
  value, (dw_VD, dh_ND) = grads(w_VD, loss, *args)
  return value, dh_ND, w_VD - rate * dw_VD


def relative(got, want):
  return jnp.linalg.norm(jnp.ravel(got - want)) / jnp.linalg.norm(jnp.ravel(want))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5, 6))
def errors(loss, rate, N, num_steps, upkeep=None, dtype=jnp.float32, D=D):
  """Relative errors, one row of WHAT for each step, and the last spread.

  `upkeep` is that of the head by default, with this stabiliser.
  """
  loss = functools.partial(loss, num_classes=V)

  def step(carry, number):
    f, w_VD = carry
    key = jax.random.fold_in(jax.random.key(1), number)
    args = batch(key, N, D, dtype)
    want_loss, want_dh_ND, new_VD = naive_step(w_VD, loss, args, rate)
    got_loss, dh_ND, grads = steps.value_and_grads(f, loss, *args)
    norm = jnp.sqrt(steps.sq_norm(f, grads))
    want_norm = jnp.linalg.norm((w_VD - new_VD) / rate)
    f = steps.step(f, grads, rate)
    if upkeep is not None:
      fix = lambda f: STABILIZERS[upkeep](f, key, 2.0)
      f = jax.lax.cond(number % 100 == 99, fix, lambda f: f, guard(f, 4.0))
    pairs = [
      *((got_loss, want_loss), (dh_ND, want_dh_ND), (norm, want_norm)),
      *((implied(f), new_VD), (f.gram_DD, new_VD.T @ new_VD)),
      (f.sum_D, new_VD.sum(axis=0)),
    ]
    return (f, new_VD), jnp.stack([relative(*pair) for pair in pairs])

  w_VD = 0.3 * jax.random.normal(jax.random.key(0), (V, D), dtype)
  (f, _), error_TK = jax.lax.scan(step, (factor(w_VD), w_VD), jnp.arange(num_steps))
  return error_TK, spread(f)


# N = 1: Sherman and Morrison's identity; N < D: Woodbury's; N >= D: a solution.
@pytest.mark.parametrize(
  ("name", "N"),
  others_long(
    [("squared", 1), ("spherical", 8), ("z", 8), ("taylor", 16)],
    [("squared", 1), ("taylor", 16)],
  ),
)
def test_1000_steps_equal_those_of_the_table_in_float64(name, N):
  with jax.enable_x64(True):
    error_TK = np.asarray(errors(*LOSSES[name], N, 1000, None, jnp.float64)[0])
  worst = dict(zip(WHAT, error_TK.max(axis=0), strict=True))
  assert max(worst.values()) < 1e-8, worst


@pytest.mark.parametrize(
  ("name", "upkeep", "N", "D"),
  others_long(
    [
      ("squared", "absorb", 8, 12),
      ("taylor", "singular_values", 8, 12),
      ("z", "absorb", 8, 12),
      ("taylor", "absorb", 1, 12),
      ("spherical", "absorb", 16, 12),
      ("squared", "absorb", 16, 100),
    ],
    [("taylor", "singular_values", 8, 12), ("spherical", "absorb", 16, 12)],
  ),
)
def test_1000_steps_with_upkeep_stay_accurate_in_float32(name, upkeep, N, D):
  loss, rate = LOSSES[name]
  rate = rate * 12 / D * min(N, 8) / 8
  num_steps = 1000 if D == 12 else 200
  error_TK, far = errors(loss, rate, N, num_steps, upkeep, jnp.float32, D)
  worst = dict(zip(WHAT, np.max(error_TK, axis=0), strict=True))
  assert max(worst.values()) < 1e-3, worst
  assert far <= 4


def test_error_grows_without_upkeep_and_spread_shows_it():
  loss, rate = LOSSES["squared"]
  error_TK, far = errors(loss, 3 * rate, 8, 1000)
  w_T = np.asarray(error_TK[:, WHAT.index("w")])
  assert not w_T[-1] < 1e-3
  assert not w_T[-1] < 100 * w_T[50]
  assert not far < 100  # what upkeep goes by
  stable_TK, _ = errors(loss, 3 * rate, 8, 1000, "absorb")
  assert np.max(stable_TK) < 1e-3


@functools.partial(jax.jit, static_argnums=(0, 1))
def errors_of_inverse(name, anew_every):
  """|U U^-1 - 1| after each of 3000 steps that keep U's singular values in [1/2, 2].

  The inverse is updated by all steps, and computed anew after so many (0: never).
  """
  loss, rate = LOSSES[name]
  loss = functools.partial(loss, num_classes=V)

  def in_range(f):
    left_DD, value_D, _ = jnp.linalg.svd(f.u_DD)
    value_D = jnp.where((value_D > 2) | (value_D < 0.5), value_D, 1)
    turn = lambda d, f: fix_singular_value(f, left_DD[:, d], value_D[d])
    return jax.lax.fori_loop(0, D, turn, f)

  def step(f, number):
    args = batch(jax.random.fold_in(jax.random.key(1), number), 8, D, jnp.float32)
    _, _, grads = steps.value_and_grads(f, loss, *args)
    f = in_range(steps.step(f, grads, 3 * rate))
    if anew_every:
      is_due = number % anew_every == anew_every - 1
      f = jax.lax.cond(is_due, reinvert, lambda f: f, f)
    return f, jnp.abs(f.u_DD @ f.u_inv_DD - jnp.eye(D)).max()

  f = factor(0.3 * jax.random.normal(jax.random.key(0), (V, D)))
  return jax.lax.scan(step, f, jnp.arange(3000))[1]


@pytest.mark.parametrize("name", others_long(["squared", "spherical"], ["squared"]))
def test_inverse_must_be_recomputed_even_if_values_are_in_range(name):
  drifting_T, anew_T = (np.asarray(errors_of_inverse(name, n)) for n in (0, 100))
  assert not drifting_T[-1] < 0.1
  assert np.max(anew_T) < 1e-5


def test_any_spherical_loss_can_be_used():
  cubic = lambda o_P, t_P, q, s: jnp.sin(q) * s + jnp.sum(t_P * o_P**3)
  with jax.enable_x64(True):
    args = batch(jax.random.key(2), 8, D, jnp.float64)
    w_VD = 0.1 * jax.random.normal(jax.random.key(3), (V, D), jnp.float64)
    f = factor(w_VD)
    by_parts = jax.jit(lambda f, *args: steps.value_and_grads(f, cubic, *args))
    naive = jax.jit(lambda w_VD, *args: naive_step(w_VD, cubic, args, 0.01))
    value, dh_ND, grads = by_parts(f, *args)
    want, want_dh_ND, want_VD = naive(w_VD, *args)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    np.testing.assert_allclose(dh_ND, want_dh_ND, rtol=1e-10, atol=1e-12)
    got_VD = implied(steps.step(f, grads, 0.01))
    np.testing.assert_allclose(got_VD, want_VD, atol=1e-12)


def test_repeated_targets_are_merged():
  ids_NP, t_NP = np.array([[4, 7, 4, 9], [9, 8, 2, 2]]), np.full((2, 4), 0.25, "f")
  ids_NP, t_NP = steps.distinct(jnp.asarray(ids_NP, jnp.int32), t_NP, 9)
  assert ids_NP.tolist() == [[4, 7, 9, 9], [9, 8, 2, 9]]
  assert t_NP.tolist() == [[0.5, 0.25, 0, 0], [0, 0.25, 0.5, 0]]


def test_mismatched_shapes_are_named():
  f = factor(jnp.ones((V, D)))
  args = jnp.ones((3, D + 1)), jnp.zeros((3, 1), jnp.int32), jnp.ones((3, 1))
  with pytest.raises(ValueError, match=r"h_ND has shape \(3, 13\), but D = 12 in"):
    steps.value_and_grads(f, lambda *_: 0.0, *args, jnp.ones(3))
