import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.losses.blackout import blackout_loss

pytestmark = pytest.mark.usefixtures("x64")


def case(seed=0, num=4, labels=2, samples=5):
  rng = np.random.default_rng(seed)
  o_NP, log_e_NP = jnp.asarray(2 * rng.standard_normal((2, num, labels)))
  w_NP = jnp.asarray(rng.uniform(0, 1, (num, labels))).at[0, 1:].set(0)
  o_NM, log_e_NM = jnp.asarray(2 * rng.standard_normal((2, num, samples)))
  mask_NM = jnp.asarray(rng.random((num, samples)) < 0.7).at[1].set(False)
  return o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM


def naive(o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM):
  """Equations 46 and 47, with 1 / Q instead of 1 / expected."""
  loss = 0.0
  for n in range(len(o_NP)):
    drawn = [m for m in range(o_NM.shape[1]) if mask_NM[n, m]]
    for i in range(o_NP.shape[1]):
      own = jnp.exp(o_NP[n, i]) / jnp.exp(log_e_NP[n, i])
      others = [jnp.exp(o_NM[n, m]) / jnp.exp(log_e_NM[n, m]) for m in drawn]
      z = own + sum(others)
      each = jnp.log(own / z) + sum(jnp.log(1 - e / z) for e in others)
      loss -= w_NP[n, i] * each
  return loss


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_equal_the_formula(seed):
  o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM = case(seed)
  got, want = (
    jax.value_and_grad(
      lambda a, b, f=f: f(a, w_NP, log_e_NP, b, log_e_NM, mask_NM), (0, 1)
    )(o_NP, o_NM)
    for f in (blackout_loss, naive)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def test_common_factor_of_all_probabilities_cancels():
  o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM = case()
  a = blackout_loss(o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM)
  b = blackout_loss(o_NP, w_NP, log_e_NP + 3, o_NM, log_e_NM + 3, mask_NM)
  np.testing.assert_allclose(a, b, rtol=1e-12)


def test_drawn_class_of_probability_one_still_has_its_gradient():
  """Where p rounds to 1, log(1 - p) does not: the others are 40 below."""
  zero = jnp.zeros((1, 1))
  yes = jnp.ones((1, 2), bool)
  loss = lambda o_NM: blackout_loss(
    zero, jnp.ones((1, 1)), zero, o_NM, jnp.zeros((1, 2)), yes
  )
  value, grad_NM = jax.value_and_grad(loss)(jnp.array([[40.0, 1.0]]))
  # -log p = 40, -log(1 - p) = 40 - log(1 + e), and nearly nothing of the other one.
  np.testing.assert_allclose(value, 80 - np.log(1 + np.e), rtol=1e-12)
  np.testing.assert_allclose(grad_NM, [[2.0, -np.e / (1 + np.e)]], rtol=1e-12)
