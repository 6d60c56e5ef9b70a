import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.losses import nce_loss

pytestmark = pytest.mark.usefixtures("x64")


def case(seed=0, num=4, labels=3, samples=6):
  rng = np.random.default_rng(seed)
  o_NP, log_e_NP = jnp.asarray(3 * rng.standard_normal((2, num, labels)))
  w_NP = jnp.asarray(rng.uniform(0, 1, (num, labels))).at[0, 1:].set(0)
  o_NM, log_e_NM = jnp.asarray(3 * rng.standard_normal((2, num, samples)))
  mask_NM = jnp.asarray(rng.random((num, samples)) < 0.7)
  return o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM


def naive_nce(o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM):
  """Equation 30's objective: p' = e^o, and e = k q."""
  loss = 0.0
  for n in range(len(o_NP)):
    noise = 0.0
    for m in range(o_NM.shape[1]):
      if mask_NM[n, m]:
        p, e = jnp.exp(o_NM[n, m]), jnp.exp(log_e_NM[n, m])
        noise -= jnp.log(e / (p + e))
    for i in range(o_NP.shape[1]):
      p, e = jnp.exp(o_NP[n, i]), jnp.exp(log_e_NP[n, i])
      loss += w_NP[n, i] * (noise - jnp.log(p / (p + e)))
  return loss


@pytest.mark.parametrize("seed", range(2))
def test_loss_and_gradient_equal_the_formula(seed):
  o_NP, w_NP, log_e_NP, o_NM, log_e_NM, mask_NM = case(seed)
  fast = lambda a, b: nce_loss(a, w_NP, log_e_NP, b, log_e_NM, mask_NM)
  naive = lambda a, b: naive_nce(a, w_NP, log_e_NP, b, log_e_NM, mask_NM)
  got, want = (jax.value_and_grad(f, (0, 1))(o_NP, o_NM) for f in (fast, naive))
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_label_that_is_never_noise_has_zero_loss():
  o, no = jnp.zeros((1, 1)), jnp.zeros((1, 1), bool)
  loss = lambda o: nce_loss(
    o, jnp.ones((1, 1)), jnp.full((1, 1), -jnp.inf), o, jnp.zeros((1, 1)), no
  )
  value, grad = jax.value_and_grad(loss)(o)
  assert value == grad[0, 0] == 0


@pytest.mark.parametrize(
  ("expected_YV", "is_consistent"),
  [
    ([[0.6, 0.3], [0.6, 0.3]], True),
    ([[1.0, 0.5], [0.5, 1.0]], False),  # hash buckets of the label
    ([[1.0, 0.7], [0.3, 1.0]], False),  # draws from the batch: one's own label, too
  ],
)
def test_noise_must_not_depend_on_the_label(expected_YV, is_consistent):
  """By enumeration of labels and of sets of independent noise, at the true model."""
  p_V, expected_YV = np.array([0.3, 0.7]), np.array(expected_YV)

  def mean_loss(o_V):
    total = 0.0
    for y, e_V in enumerate(expected_YV):
      for drawn in itertools.product((False, True), repeat=2):
        share = p_V[y] * np.prod(np.where(drawn, e_V, 1 - e_V))
        true = o_V[y].reshape(1, 1), jnp.ones((1, 1)), jnp.log(e_V[y]).reshape(1, 1)
        noise = o_V[None], jnp.log(e_V)[None], jnp.array([drawn])
        total += share * nce_loss(*true, *noise)
    return total

  steepest = np.abs(jax.grad(mean_loss)(jnp.log(p_V))).max()
  assert steepest < 1e-6 if is_consistent else steepest > 0.02
