import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.losses.ranking import ranking_loss
from largevocab.losses.sampled_softmax import sampled_softmax_loss

pytestmark = pytest.mark.usefixtures("x64")


def case(seed=0, num=4, labels=2, samples=5):
  rng = np.random.default_rng(seed)
  o_NP = jnp.asarray(3 * rng.standard_normal((num, labels)))
  w_NP = jnp.asarray(rng.uniform(0, 1, (num, labels))).at[0, 1:].set(0)
  o_NM = jnp.asarray(3 * rng.standard_normal((num, samples)))
  mask_NM = jnp.asarray(rng.random((num, samples)) < 0.7).at[1].set(False)
  return o_NP, w_NP, o_NM, mask_NM


def naive(o_NP, w_NP, o_NM, mask_NM, alpha, penalty):
  """Equations 32 to 35."""
  loss = 0.0
  for n in range(len(o_NP)):
    drawn = [m for m in range(o_NM.shape[1]) if mask_NM[n, m]]
    for i in range(o_NP.shape[1]):
      for m in drawn:
        margin = o_NP[n, i] - o_NM[n, m] - alpha
        if penalty == "log":
          each = -jnp.log(1 / (1 + jnp.exp(-margin)))
        else:
          each = jnp.maximum(0.0, -margin)
        loss += w_NP[n, i] * each / len(drawn)
  return loss


@pytest.mark.parametrize("penalty", ["log", "hinge"])
@pytest.mark.parametrize("alpha", [0.0, 2.5])
def test_loss_and_gradient_equal_the_formula(penalty, alpha):
  o_NP, w_NP, o_NM, mask_NM = case()
  got, want = (
    jax.value_and_grad(
      lambda a, b, f=f: f(a, w_NP, b, mask_NM, alpha, penalty), (0, 1)
    )(o_NP, o_NM)
    for f in (ranking_loss, naive)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_loss_with_one_uniform_draw_is_a_sampled_softmax():
  """Equations 36 to 41: alpha = log(V - 1)."""
  o_NP, o_NM = jnp.array([[0.3], [-2.0]]), jnp.array([[1.0], [0.5]])
  one, yes = jnp.ones((2, 1)), jnp.ones((2, 1), bool)
  alpha = np.log(999)
  rank = ranking_loss(o_NP, one, o_NM, yes, alpha)
  soft = sampled_softmax_loss(o_NP, one, yes, o_NM, jnp.full((2, 1), -alpha), yes)
  np.testing.assert_allclose(rank, soft, rtol=1e-12)


scores = st.lists(st.floats(-30, 30), min_size=5, max_size=5)


@functools.cache
def _gradients(penalty):
  """Compiled once: of one label and some negatives."""

  def loss(o_NP, o_NM, alpha):
    mask_NM = jnp.ones(o_NM.shape, bool)
    return ranking_loss(o_NP, jnp.ones((1, 1)), o_NM, mask_NM, alpha, penalty)

  return jax.jit(jax.grad(loss, (0, 1)))


@settings(max_examples=60, deadline=None)
@given(scores, st.floats(0, 15), st.sampled_from(["log", "hinge"]))
def test_coefficients_are_bounded_and_have_the_right_sign(o, alpha, penalty):
  """gamma = -d loss / d o is in [0, 1] for the label, in [-1, 0] for the drawn."""
  o_NP, o_NM = jnp.array([[o[0]]]), jnp.array([o[1:]])
  d_NP, d_NM = _gradients(penalty)(o_NP, o_NM, alpha)
  assert -1 - 1e-12 <= float(d_NP[0, 0]) <= 0
  assert (d_NM >= 0).all()
  np.testing.assert_allclose(d_NP.sum() + d_NM.sum(), 0, atol=1e-12)
