"""Plain importance sampling of Z (Barber and Botev 2016, equations 12 to 14)."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.losses import importance_loss, sampled_softmax_loss

pytestmark = pytest.mark.usefixtures("x64")


def case(seed=0, num=4, labels=3, samples=6):
  rng = np.random.default_rng(seed)
  o_NP = rng.standard_normal((num, labels))
  w_NP = rng.uniform(0, 1, (num, labels)) * (rng.random((num, labels)) < 0.7)
  o_NM = rng.standard_normal((num, samples))
  log_expected_NM = np.log(rng.uniform(0.2, 2, (num, samples)))
  mask_NM = rng.random((num, samples)) < 0.7
  mask_NM[:, 0] = True
  mask_NM[2] = False  # no estimate
  return tuple(map(jnp.asarray, (o_NP, w_NP, o_NM, log_expected_NM, mask_NM)))


def naive(o_NP, w_NP, o_NM, log_expected_NM, mask_NM):
  loss = 0.0
  for n in range(len(o_NP)):
    drawn = [m for m in range(o_NM.shape[1]) if mask_NM[n, m]]
    z = sum(jnp.exp(o_NM[n, m]) / jnp.exp(log_expected_NM[n, m]) for m in drawn)
    for p in range(o_NP.shape[1]):
      loss += w_NP[n, p] * (jnp.log(z) - o_NP[n, p]) if drawn else 0.0
  return loss


def test_loss_and_gradient_equal_the_formula():
  o_NP, w_NP, o_NM, log_expected_NM, mask_NM = case()
  got, want = (
    jax.value_and_grad(
      lambda a, b, f=f: f(a, w_NP, b, log_expected_NM, mask_NM), (0, 1)
    )(o_NP, o_NM)
    for f in (importance_loss, naive)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
  odd_NM = jnp.where(mask_NM, o_NM, jnp.nan)
  odd_NP = jnp.where(w_NP == 0, jnp.nan, o_NP)
  loss = importance_loss(odd_NP, w_NP, odd_NM, log_expected_NM, mask_NM)
  np.testing.assert_allclose(loss, got[0], rtol=1e-12)


def enumerated(o_V, q_V, size):
  """Each ordered draw of `size` classes: its probability, Z~ of equation 13, and Z~
  with the true class 0 summed exactly (section 2.1)."""
  one, V = jnp.ones((1, 1)), len(o_V)
  o_NP = jnp.zeros((1, 1))  # log Z~ is the loss of a true class with logit 0 ...
  true = jnp.asarray(o_V[:1])[None]
  found = []
  for draw in itertools.product(range(V), repeat=size):
    ids = np.array(draw)
    drawn = jnp.asarray(o_V[ids])[None], jnp.asarray(np.log(size * q_V[ids]))[None]
    yes = jnp.ones((1, size), bool)
    plain = importance_loss(o_NP, one, *drawn, yes)
    exact = sampled_softmax_loss(true, one, one > 0, *drawn, jnp.asarray(ids > 0)[None])
    z = np.exp([plain, exact + o_V[0]])
    found.append((np.prod(q_V[ids]), *z, ids))
  return found


def test_both_estimates_are_unbiased_and_an_exact_true_class_has_less_variance():
  o_V = np.array([2.0, 0.3, -1.0, 0.5])
  q_V = np.array([0.4, 0.3, 0.2, 0.1])
  found = enumerated(o_V, q_V, 3)
  probability, plain, exact = (np.array([x[i] for x in found]) for i in range(3))
  Z = np.exp(o_V).sum()
  np.testing.assert_allclose(probability @ plain, Z, rtol=1e-10)
  np.testing.assert_allclose(probability @ exact, Z, rtol=1e-10)
  variance, less = (probability @ np.square(z - Z) for z in (plain, exact))
  want = (np.exp(2 * o_V) / q_V).sum() - Z**2
  np.testing.assert_allclose(variance, want / 3, rtol=1e-10)  # equation 18
  assert less < variance / 2


def test_equation_14_is_unbounded_and_an_exact_true_class_bounds_it():
  o_V, q_V = np.array([6.0, 0.0, 0.0]), np.array([0.2, 0.4, 0.4])
  found = enumerated(o_V, q_V, 2)
  plain, exact = (np.array([1 - np.exp(o_V[0]) / x[i] for x in found]) for i in (1, 2))
  assert plain.min() < -50
  assert exact.min() >= 0
  assert exact.max() <= 1


def test_loss_falls_without_bound_if_the_true_class_is_not_drawn():
  drawn = jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.ones((1, 2), bool)
  loss = lambda o: importance_loss(jnp.full((1, 1), o), jnp.ones((1, 1)), *drawn)
  falls = [float(loss(o)) for o in (0.0, 10.0, 1000.0)]
  np.testing.assert_allclose(np.diff(falls), [-10, -990])
  np.testing.assert_allclose([jax.grad(loss)(o) for o in (0.0, 1000.0)], -1)
  o_NP, one, yes = jnp.full((1, 1), 1000.0), jnp.ones((1, 1)), jnp.ones((1, 1), bool)
  assert sampled_softmax_loss(o_NP, one, yes, *drawn) >= 0
