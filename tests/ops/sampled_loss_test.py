import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.sampled_loss import complement_loss, is_first, is_member


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


def test_membership_and_first_occurrence():
  rng = np.random.default_rng(0)
  ids_NM, set_NS = rng.integers(0, 9, (5, 7)), rng.integers(0, 9, (5, 3))
  want = [np.isin(ids_M, set_S) for ids_M, set_S in zip(ids_NM, set_NS, strict=True)]
  np.testing.assert_array_equal(is_member(ids_NM, set_NS), want)
  want = [[x not in row[:i] for i, x in enumerate(row)] for row in ids_NM.tolist()]
  np.testing.assert_array_equal(is_first(jnp.asarray(ids_NM)), want)
