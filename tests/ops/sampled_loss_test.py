import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.ops.sampled_loss import (
  complement_loss,
  is_first,
  is_member,
  log_normalizer_ratio,
)


@pytest.fixture(autouse=True)
def _x64():
  with jax.enable_x64(True):
    yield


def _case(seed=0, num=4, labels=3, samples=6):
  rng = np.random.default_rng(seed)
  o_NP = jnp.asarray(rng.standard_normal((num, labels)))
  w_NP = jnp.asarray(rng.uniform(0, 1, (num, labels)))
  true_NP = jnp.asarray(rng.random((num, labels)) < 0.7).at[:, 0].set(True)
  o_NM = jnp.asarray(rng.standard_normal((num, samples)))
  log_expected_NM = jnp.asarray(rng.standard_normal((num, samples)))
  mask_NM = jnp.asarray(rng.random((num, samples)) < 0.7)
  return o_NP, jnp.where(true_NP, w_NP, 0), true_NP, o_NM, log_expected_NM, mask_NM


def _naive(o_NP, w_NP, true_NP, o_NM, log_expected_NM, mask_NM):
  loss = 0.0
  for n in range(len(o_NP)):
    z = sum(np.exp(o_NP[n, p]) for p in range(o_NP.shape[1]) if true_NP[n, p])
    for m in range(o_NM.shape[1]):
      if mask_NM[n, m]:
        z += np.exp(o_NM[n, m]) / np.exp(log_expected_NM[n, m])
    loss += sum(w * (np.log(z) - o) for w, o in zip(w_NP[n], o_NP[n], strict=True))
  return loss


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_sum_written_out(seed):
  case = _case(seed)
  np.testing.assert_allclose(complement_loss(*case), _naive(*case), rtol=1e-12)


def test_gradient_equals_the_weighted_softmax():
  o_NP, w_NP, true_NP, o_NM, log_expected_NM, mask_NM = _case()
  loss = lambda o_NP, o_NM: complement_loss(
    o_NP, w_NP, true_NP, o_NM, log_expected_NM, mask_NM
  )
  do_NP, do_NM = jax.grad(loss, (0, 1))(o_NP, o_NM)
  share_NP = jnp.where(true_NP, jnp.exp(o_NP), 0)
  share_NM = jnp.where(mask_NM, jnp.exp(o_NM - log_expected_NM), 0)
  z_N = share_NP.sum(1) + share_NM.sum(1)
  scale_N1 = (w_NP.sum(1) / z_N)[:, None]
  np.testing.assert_allclose(do_NP, scale_N1 * share_NP - w_NP, rtol=1e-12)
  np.testing.assert_allclose(do_NM, scale_N1 * share_NM, rtol=1e-12)


def test_nothing_drawn_and_one_true_class_is_no_loss():
  o = jnp.full((1, 1), 5.0)
  yes, no = jnp.ones((1, 1), bool), jnp.zeros((1, 4), bool)
  loss = lambda o: complement_loss(
    o, jnp.ones((1, 1)), yes, jnp.zeros((1, 4)), jnp.zeros((1, 4)), no
  )
  value, grad = jax.value_and_grad(loss)(o)
  assert value == 0
  assert grad[0, 0] == 0


logits = st.lists(st.floats(-30, 30), min_size=6, max_size=6)


@jax.jit
def _gradients(o_NP, o_NM, log_e_NM):
  """Compiled once: of one label and some candidates."""
  one, yes = jnp.ones((1, 1)), jnp.ones((1, 1), bool)

  def loss(o_NP, o_NM):
    mask_NM = jnp.ones(o_NM.shape, bool)
    return complement_loss(o_NP, one, yes, o_NM, log_e_NM, mask_NM)

  return jax.grad(loss, (0, 1))(o_NP, o_NM)


@settings(max_examples=100, deadline=None)
@given(logits, st.integers(0, 6), st.lists(st.floats(-12, 0), min_size=8, max_size=8))
def test_coefficients_are_bounded_and_of_the_right_sign(o, num_exact, log_expected):
  """gamma = -d loss / d o is in [-1, 1], sums to 0, and has the sign of the exact one:
  paper 001, equations 26 and 28. Some classes are exact, others drawn, maybe twice."""
  others = np.array(o[1:] + o[-1:])  # the last class is drawn twice
  log_e = np.array([*log_expected, 0.0])[: len(others)]
  log_e[:num_exact] = 0
  d_NP, d_NM = _gradients(jnp.array([[o[0]]]), others[None], log_e[None])
  of_class = np.append(d_NM[0, :-2], d_NM[0, -2:].sum())
  true, gamma = -float(d_NP[0, 0]), -of_class
  exact = np.exp(np.array(o) - max(o))
  exact = np.eye(len(o))[0] - exact / exact.sum()
  assert 0 <= true <= 1
  assert (np.abs(gamma) <= 1).all()
  np.testing.assert_allclose(true + gamma.sum(), 0, atol=1e-12)
  assert (np.sign(gamma) * np.sign(exact[1:]) >= 0).all()
  assert np.sign(true) * np.sign(exact[0]) >= 0


def test_ratio_is_that_of_the_normalisers_in_the_loss():
  rng = np.random.default_rng(0)
  o_NV = jnp.asarray(rng.standard_normal((5, 20)))
  ids_NP = jnp.asarray(rng.integers(0, 20, (5, 2)))
  true_NP = is_first(ids_NP)
  ids_NM = jnp.asarray(rng.integers(0, 20, (5, 7)))
  log_e_NM = jnp.asarray(rng.standard_normal((5, 7)))
  mask_NM = jnp.asarray(rng.random((5, 7)) < 0.7)
  log_ratio_N = log_normalizer_ratio(
    jax.nn.log_softmax(o_NV), ids_NP, true_NP, ids_NM, log_e_NM, mask_NM
  )
  ratio_N = jnp.exp(log_ratio_N)
  at = lambda ids: jnp.take_along_axis(o_NV, ids, axis=1)
  for n in range(5):
    w_NP = jnp.zeros((5, 2)).at[n, 0].set(1.0)
    loss = complement_loss(at(ids_NP), w_NP, true_NP, at(ids_NM), log_e_NM, mask_NM)
    z = jnp.exp(loss + at(ids_NP)[n, 0])
    np.testing.assert_allclose(ratio_N[n], z / jnp.exp(o_NV[n]).sum(), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 33, 100])
def test_membership_in_one_set_for_all_rows(size):
  rng = np.random.default_rng(size)
  ids_NM, set_S = rng.integers(0, 200, (5, 7)), rng.integers(0, 200, size)
  got = is_member(jnp.asarray(ids_NM), jnp.asarray(set_S)[None])
  np.testing.assert_array_equal(got, np.isin(ids_NM, set_S))


def test_membership_and_first_occurrence():
  rng = np.random.default_rng(0)
  ids_NM, set_NS = rng.integers(0, 9, (5, 7)), rng.integers(0, 9, (5, 3))
  want = [np.isin(ids_M, set_S) for ids_M, set_S in zip(ids_NM, set_NS, strict=True)]
  np.testing.assert_array_equal(is_member(ids_NM, set_NS), want)
  want = [[x not in row[:i] for i, x in enumerate(row)] for row in ids_NM.tolist()]
  np.testing.assert_array_equal(is_first(jnp.asarray(ids_NM)), want)
