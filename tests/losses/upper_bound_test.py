"""The bound of equation 48."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.losses.sampled_softmax import sampled_softmax_loss
from largevocab.losses.upper_bound import upper_bound_loss

pytestmark = pytest.mark.usefixtures("x64")


def case(seed=0, num=4, labels=3, samples=6):
  rng = np.random.default_rng(seed)
  o_NP = rng.standard_normal((num, labels))
  true_NP = rng.random((num, labels)) < 0.6
  true_NP[:, 0] = True
  w_NP = np.where(true_NP, rng.uniform(0, 1, (num, labels)), 0)
  w_NP[1, 0] = 0  # true, and without weight
  o_NM = rng.standard_normal((num, samples))
  log_b_NM = np.log(rng.uniform(0.2, 1, (num, samples)))
  mask_NM = rng.random((num, samples)) < 0.7
  mask_NM[2] = False
  return tuple(map(jnp.asarray, (o_NP, w_NP, true_NP, o_NM, log_b_NM, mask_NM)))


def naive(o_NP, w_NP, true_NP, o_NM, log_b_NM, mask_NM, num_classes):
  """Class by class: s (exp(o / b) - 1) on top of one for each that is not true."""
  loss = 0.0
  for n in range(len(o_NP)):
    true = [p for p in range(o_NP.shape[1]) if true_NP[n, p]]
    bound = sum(jnp.exp(o_NP[n, p]) for p in true) + num_classes - len(true)
    for m in range(o_NM.shape[1]):
      if mask_NM[n, m]:
        bound += jnp.exp(o_NM[n, m] / jnp.exp(log_b_NM[n, m])) - 1
    for p in true:
      loss += w_NP[n, p] * (jnp.log(bound) - o_NP[n, p])
  return loss


@pytest.mark.parametrize("num_classes", [9, 10_000])
def test_loss_and_gradient_equal_the_formula(num_classes):
  o_NP, w_NP, true_NP, o_NM, log_b_NM, mask_NM = case()
  got, want = (
    jax.value_and_grad(
      lambda a, b, f=f: f(a, w_NP, true_NP, b, log_b_NM, mask_NM, num_classes), (0, 1)
    )(o_NP, o_NM)
    for f in (upper_bound_loss, naive)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_gradient_equals_a_finite_difference():
  o_NP, w_NP, true_NP, o_NM, log_b_NM, mask_NM = case(1)
  loss = lambda a, b: upper_bound_loss(a, w_NP, true_NP, b, log_b_NM, mask_NM, 30)
  rng = np.random.default_rng(2)
  step_NP, step_NM = (jnp.asarray(rng.standard_normal(o.shape)) for o in (o_NP, o_NM))
  d_NP, d_NM = jax.grad(loss, (0, 1))(o_NP, o_NM)
  slope = (d_NP * step_NP).sum() + (d_NM * step_NM).sum()
  up, down = (loss(o_NP + e * step_NP, o_NM + e * step_NM) for e in (1e-5, -1e-5))
  np.testing.assert_allclose((up - down) / 2e-5, slope, rtol=1e-7)


def means(o, b):
  """E B and E Z~, the mean over all sets of the other classes of what
  `upper_bound_loss` and the unbiased estimate take for the normaliser; and each B."""
  o, b = np.asarray(o, float), np.asarray(b, float)
  sets = np.array(list(itertools.product([False, True], repeat=len(b))))
  weight_S = np.where(sets, b, 1 - b).prod(axis=1)
  one, yes = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
  o_11, o_1M = jnp.asarray([[o[0]]]), jnp.asarray([o[1:]])
  log_b_1M = jnp.asarray(np.log(b)[None])
  rest = o_11, one, yes, o_1M, log_b_1M
  bound_S = _of_sets(*rest, jnp.asarray(sets))
  unbiased_S = _unbiased_of_sets(*rest, jnp.asarray(sets))
  of = lambda loss_S: np.exp(np.asarray(loss_S) + o[0])
  return weight_S @ of(bound_S), weight_S @ of(unbiased_S), of(bound_S)


@jax.jit
def _of_sets(o_NP, w_NP, true_NP, o_NM, log_b_NM, sets_SM):
  V = 1 + o_NM.shape[1]
  one = lambda s_M: upper_bound_loss(o_NP, w_NP, true_NP, o_NM, log_b_NM, s_M[None], V)
  return jax.vmap(one)(sets_SM)


@jax.jit
def _unbiased_of_sets(o_NP, w_NP, true_NP, o_NM, log_b_NM, sets_SM):
  one = lambda s_M: sampled_softmax_loss(o_NP, w_NP, true_NP, o_NM, log_b_NM, s_M[None])
  return jax.vmap(one)(sets_SM)


logits = st.lists(st.floats(-4, 4), min_size=5, max_size=5)
chances = st.lists(st.floats(0.15, 1), min_size=4, max_size=4)


@settings(max_examples=60, deadline=None)
@given(logits, chances)
def test_mean_over_all_sets_bounds_the_normaliser(o, b):
  """The mean is the right side of equation 48, with the true class exact."""
  z = np.exp(o).sum()
  bound, unbiased, _ = means(o, b)
  o_M, b_M = np.array(o[1:]), np.array(b)
  right = np.exp(o[0]) + 4 + (b_M * np.expm1(o_M / b_M)).sum()
  np.testing.assert_allclose(bound, right, rtol=1e-9)
  assert bound >= z * (1 - 1e-12)
  np.testing.assert_allclose(unbiased, z, rtol=1e-9)  # which bounds nothing


def test_bound_is_tight_in_some_cases_and_loose_in_others():
  o = [0.5, 1.0, -2.0, 0.3, 0.0]
  z = np.exp(o).sum()
  bound, _, _ = means(o, [1.0, 1.0, 1.0, 1.0])
  np.testing.assert_allclose(bound, z, rtol=1e-12)
  bound, _, each_S = means([0.5, 0, 0, 0, 0], [0.2, 0.5, 0.3, 0.9])
  np.testing.assert_allclose(bound, 4 + np.exp(0.5), rtol=1e-12)
  np.testing.assert_allclose(each_S, bound, rtol=1e-12)  # without any noise
  bound, _, each_S = means(o, [0.3, 0.3, 0.3, 0.3])
  assert bound > 2 * z
  assert each_S.min() < z  # a set's own value is no bound


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_padding_and_masked_entries_may_be_anything(bad):
  o_NP, w_NP, true_NP, o_NM, log_b_NM, mask_NM = case(3)

  def value_and_grads(o_NP, o_NM, log_b_NM):
    return jax.value_and_grad(
      lambda a, b: upper_bound_loss(a, w_NP, true_NP, b, log_b_NM, mask_NM, 40), (0, 1)
    )(o_NP, o_NM)

  spoil_NM = lambda x: jnp.where(mask_NM, x, bad)
  want = value_and_grads(o_NP, o_NM, log_b_NM)
  spoilt_NP = jnp.where(true_NP, o_NP, bad)
  got = value_and_grads(spoilt_NP, spoil_NM(o_NM), spoil_NM(log_b_NM))
  for x, z in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(x, z, rtol=1e-12)


def test_extreme_scores_in_float32_stay_finite():
  o_NP, w_NP, true_NP, o_NM, log_b_NM, mask_NM = (
    x if x.dtype == bool else x.astype(jnp.float32) for x in case(4)
  )
  for scale in (-1e4, 0.0, 1e4):
    loss, grads = jax.value_and_grad(
      lambda a, b: upper_bound_loss(a, w_NP, true_NP, b, 4 * log_b_NM, mask_NM, 7),
      (0, 1),
    )(scale * o_NP, scale * o_NM)
    assert loss.dtype == jnp.float32
    assert all(np.isfinite(x).all() for x in (loss, *grads))
