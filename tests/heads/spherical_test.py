"""Tests specific to the factored head; tests/heads/contract_test.py has the others."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Spherical
from largevocab.labels import Targets, multi_targets, single_targets
from largevocab.losses.spherical import (
  SPHERICAL_LOSSES,
  SphericalSoftmax,
  Squared,
  TaylorSoftmax,
  ZLoss,
)
from largevocab.ops.factored import steps
from largevocab.ops.factored.stabilizers import STABILIZERS
from largevocab.ops.factored.table import implied
from largevocab.rows import accumulate
from tests.heads.compiled import backward, monitor, update
from tests.long import others_long

V, D, N = 11, 4, 3
KEY = jax.random.key(0)

# Compiled once for each head and shape, whatever the test.


def outputs(seed=0):
  rng = np.random.default_rng(seed)
  o_V = jnp.asarray(rng.standard_normal(V), jnp.float32)
  return o_V, o_V @ o_V, o_V.sum()


def at(loss, c):
  """The loss of one true class."""
  o_V, q, s = outputs()
  return float(loss(o_V[c : c + 1], jnp.ones(1), q, s, V))


@pytest.mark.parametrize(
  "loss", [TaylorSoftmax(), SphericalSoftmax(eps=0.3), SphericalSoftmax()]
)
def test_normalised_losses_are_cross_entropies(loss):
  log_p_V = loss.score(*outputs(), V)
  np.testing.assert_allclose(jnp.exp(log_p_V).sum(), 1, rtol=1e-5)
  for c in (0, 4):
    np.testing.assert_allclose(at(loss, c), -log_p_V[c], rtol=1e-5)


def test_losses_equal_their_definitions():
  o_V, _, _ = outputs()
  target_V = jnp.zeros(V).at[2].set(1)
  np.testing.assert_allclose(
    at(Squared(), 2), jnp.sum((o_V - target_V) ** 2), rtol=1e-5
  )
  z = (o_V[2] - o_V.mean()) / o_V.std()
  want = jax.nn.softplus(0.5 * (3 - z)) / 0.5
  np.testing.assert_allclose(at(ZLoss(a=0.5, b=3.0), 2), want, rtol=1e-4)


def test_binary_targets_are_1_for_every_true_class():
  o_P, t_P = jnp.array([0.3, -0.2, 0.0]), jnp.array([0.5, 0.5, 0.0])
  got = Squared(binary=True)(o_P, t_P, jnp.float32(4), jnp.float32(1), V)
  np.testing.assert_allclose(got, 4 - 2 * 0.1 + 2, rtol=1e-6)


@pytest.mark.parametrize("name", SPHERICAL_LOSSES)
def test_padding_does_not_count(name):
  loss, (o_V, q, s) = SPHERICAL_LOSSES[name](), outputs()
  t_P = jnp.array([0.25, 0.75])
  padded = jnp.append(o_V[:2], 0), jnp.append(t_P, 0)
  a, b = loss(o_V[:2], t_P, q, s, V), loss(*padded, q, s, V)
  np.testing.assert_allclose(a, b, rtol=1e-6)


def test_invalid_settings_are_refused():
  with pytest.raises(
    UserError, match=r"^Spherical\.stabilizer is 'svd'; it must be one"
  ):
    Spherical(stabilizer="svd")
  with pytest.raises(UserError, match=r"^Spherical\.stabilize_every is -1; it must"):
    Spherical(stabilize_every=-1)
  with pytest.raises(UserError, match=r"^Spherical\.limit is 1.0; it must"):
    Spherical(limit=1.0)
  with pytest.raises(UserError, match=r"^SphericalSoftmax\.eps is 0.0; it must"):
    SphericalSoftmax(eps=0.0)
  with pytest.raises(UserError, match=r"^ZLoss\.a is -1.0; it must"):
    ZLoss(a=-1.0)


def test_multi_label_targets_of_squared_error_are_the_shares():
  head = Spherical(loss=Squared(), bias=False)
  state = head.init(KEY, np.ones(V), D)
  h_ND = jax.random.normal(jax.random.key(1), (N, D))
  ids_NP = jnp.array([[1, 5, 1], [3, V, V], [V, V, V]], jnp.int32)
  w_NP = jnp.array([[0.5, 1.0, 0.5], [1.0, 0, 0], [0, 0, 0]])
  y = Targets(ids_NP, w_NP, jnp.zeros(N, jnp.int32))
  out = backward(head, state, h_ND, y, KEY)
  target_NV = jnp.zeros((N, V)).at[0, 1].set(0.5).at[0, 5].set(0.5).at[1, 3].set(1)
  each_N = jnp.sum((h_ND @ implied(state).T - target_NV) ** 2, axis=1)
  np.testing.assert_allclose(out.loss, (2 * each_N[0] + each_N[1]) / 3, rtol=1e-5)


def test_gradients_of_unequal_batches_add_up():
  """Of 3 examples with up to 3 true classes, and of 2 with one each."""
  head = Spherical(loss=Squared(), bias=False)
  state = head.init(KEY, np.ones(V), D)
  h_ND = jax.random.normal(jax.random.key(1), (N + 2, D))
  many_NP = jnp.array([[1, 5, 1], [3, V, V], [7, 5, V]], jnp.int32)
  few_NP = jnp.array([[5], [3]], jnp.int32)
  wide_NP = jnp.pad(few_NP, ((0, 0), (0, 2)), constant_values=V)
  ids_NP = jnp.concatenate([many_NP, wide_NP])
  y_of = lambda ids_NP: Targets(
    ids_NP, (ids_NP < V).astype(jnp.float32), jnp.zeros(len(ids_NP), jnp.int32)
  )
  grads = lambda h_ND, ids_NP: backward(head, state, h_ND, y_of(ids_NP), KEY).grads
  parts = grads(h_ND[:N], many_NP), grads(h_ND[N:], few_NP)
  summed, whole = jax.jit(accumulate)(parts, [6 / 8, 2 / 8]), grads(h_ND, ids_NP)
  want, got = (update(head, state, g, 0.1, 1.0) for g in (whole, summed))
  np.testing.assert_allclose(implied(got), implied(want), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(got.gram_DD, want.gram_DD, rtol=1e-4, atol=1e-6)
  norms = (jax.jit(steps.sq_norm)(state, g) for g in (summed, whole))
  np.testing.assert_allclose(*norms, rtol=1e-5)


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def train(head, state, h_VD, rate, num_steps, is_kept):
  """Trains on activations of the classes, with or without upkeep of U."""

  def step(number, carry):
    state, _ = carry
    ids_N = jax.random.randint(jax.random.fold_in(KEY, number), (N,), 0, V)
    out = head.backward(state, h_VD[ids_N], single_targets(ids_N), KEY)
    if not is_kept:
      return steps.step(state, out.grads, rate), out.loss
    state = head.update(state, out.grads, rate, 1.0)
    refresh = lambda state: head.refresh(state, KEY)
    is_due = number % head.stabilize_every == 0
    return jax.lax.cond(is_due, refresh, lambda state: state, state), out.loss

  return jax.lax.fori_loop(1, num_steps, step, (state, jnp.float32(0)))


@pytest.mark.parametrize("stabilizer", STABILIZERS)
def test_refresh_changes_the_table_by_rounding_only(stabilizer):
  """In float64, from the factors before and after: W is V U + 1 omega^T."""
  head = Spherical(loss=Squared(), stabilizer=stabilizer, limit=2.0)
  state = head.init(KEY, np.ones(V), D)
  for seed in range(2):
    h_ND = jax.random.normal(jax.random.key(seed), (N, D))
    out = backward(head, state, h_ND, single_targets(np.arange(N)), KEY)
    state = update(head, state, out.grads, 0.5, 1.0)
  fresh = jax.jit(head.refresh)(state, KEY)
  assert not np.array_equal(state.u_DD, fresh.u_DD)
  in_64 = lambda f: [np.asarray(x, np.float64) for x in (f.v_VD, f.u_DD, f.omega_D)]
  (v_VD, u_DD, omega_D), (new_VD, new_DD, new_D) = in_64(state), in_64(fresh)
  w_VD, after_VD = v_VD @ u_DD + omega_D, new_VD @ new_DD + new_D
  eps, turns = np.finfo(np.float32).eps, len(u_DD)
  sizes_VD = np.abs(v_VD) @ np.abs(u_DD) + np.abs(omega_D)
  # A product of D terms; or, at most D times, U and V changed along a vector.
  assert np.all(np.abs(after_VD - w_VD) <= turns * eps * sizes_VD.max())
  if stabilizer == "absorb":
    sums_DD = np.abs(after_VD.T) @ np.abs(after_VD)
    assert np.all(np.abs(fresh.gram_DD - after_VD.T @ after_VD) <= V * eps * sums_DD)
    np.testing.assert_array_equal(fresh.u_inv_DD, np.eye(len(u_DD)))


# The second rate is at the edge of what gradient descent itself bears.
@pytest.mark.parametrize(
  ("stabilizer", "rate"),
  others_long(
    itertools.product(STABILIZERS, [0.01, 0.05]),
    [("absorb", 0.05)],
  ),
)
def test_20000_steps_stay_finite_and_accurate(stabilizer, rate):
  """Steps that shrink U all the time, in float32; without upkeep they end in NaN."""
  head = Spherical(loss=Squared(), stabilizer=stabilizer)
  start = head.init(KEY, np.ones(V), D)
  h_VD = jax.random.normal(jax.random.key(1), (V, D))
  state, loss = train(head, start, h_VD, rate, 20_000, True)
  assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state))
  assert loss < 1  # 11 classes in 5 dimensions
  seen = monitor(head, state, h_VD, single_targets(np.arange(V)), KEY)
  assert seen["drift"] < 1e-3
  assert np.linalg.cond(state.u_DD) < 100
  lost, _ = train(Spherical(loss=Squared()), start, h_VD, rate, 20_000, False)
  assert not bool(jnp.isfinite(lost.v_VD).all())


def test_norm_is_not_negative_if_all_is_learnt():
  head = Spherical(loss=Squared(), bias=False)
  state = head.init(KEY, np.ones(V), 16)
  h_VD = jax.random.normal(jax.random.key(1), (V, 16))
  y = single_targets(np.arange(V))

  def step(state, _):
    out = head.backward(state, h_VD, y, KEY)
    return head.update(state, out.grads, 0.1, 1.0), out.sq_norm

  _, sq_norm_T = jax.lax.scan(step, state, None, 300)
  assert sq_norm_T.min() >= 0
  assert sq_norm_T[-1] < 1e-4


def test_monitor_reports_drift():
  head = Spherical(bias=False)
  state = head.init(KEY, np.ones(V), D)
  h_ND, y = jax.random.normal(KEY, (N, D)), single_targets(np.zeros(N))
  assert monitor(head, state, h_ND, y, KEY)["drift"] < 1e-5
  off = state._replace(gram_DD=1.1 * state.gram_DD)
  np.testing.assert_allclose(monitor(head, off, h_ND, y, KEY)["drift"], 0.1, rtol=1e-3)


def test_bfloat16_applies_to_top_k_only():
  head, half = Spherical(), Spherical(dtype="bfloat16")
  state = head.init(KEY, np.ones(V), D)
  h_ND, y = jax.random.normal(KEY, (N, D)), single_targets(np.arange(N))
  state = update(head, state, backward(head, state, h_ND, y, KEY).grads, 0.5, 1.0)
  both = head, half
  steps_of = [
    (backward(x, state, h_ND, y, KEY), jax.jit(x.evaluate)(state, h_ND, y))
    for x in both
  ]
  for a, b in zip(*map(jax.tree.leaves, steps_of), strict=True):
    np.testing.assert_array_equal(a, b)
  (_, want_NK), (_, got_NK) = (x.top_k(state, h_ND, V) for x in both)
  assert got_NK.dtype == jnp.float32
  assert 0 < np.abs(got_NK - want_NK).max() < 4 * float(jnp.finfo(jnp.bfloat16).eps)


def test_class_rows_are_those_of_the_table():
  head = Spherical(bias=False)
  state = head.init(KEY, np.ones(V), D)
  state = state._replace(u_DD=2 * state.u_DD, omega_D=state.omega_D + 1)
  rows_RD = head.class_rows(state, jnp.array([3, 0]))
  np.testing.assert_allclose(rows_RD, 2 * state.v_VD[jnp.array([3, 0])] + 1, rtol=1e-6)


@pytest.mark.parametrize(
  ("loss", "P"),
  others_long(itertools.product(SPHERICAL_LOSSES, [1, 3]), [("taylor", 1), ("z", 3)]),
)
def test_step_does_not_copy_the_table(loss, P):
  """Donated, the state is changed in place: no temporary of the size of V."""
  big = 200_000
  head = Spherical(loss=SPHERICAL_LOSSES[loss](), bias=False)
  state = jax.eval_shape(lambda: head.init(KEY, np.ones(big), 16))

  def step(state, h_ND, y):
    out = head.backward(state, h_ND, y, KEY)
    return head.update(state, out.grads, 0.1, 1.0), out.loss, out.dh_ND, out.sq_norm

  args = jnp.zeros((N, 16)), multi_targets(np.tile(np.arange(P), (N, 1)))
  compiled = jax.jit(step, donate_argnums=0).lower(state, *args).compile()
  analysis = compiled.memory_analysis()
  assert analysis.alias_size_in_bytes >= 4 * big * 16
  assert analysis.temp_size_in_bytes < 4 * big
