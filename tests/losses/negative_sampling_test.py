import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.losses import calibrated_weight, negative_sampling_loss
from tests.losses.nce_test import case

pytestmark = pytest.mark.usefixtures("x64")


def naive(o_NP, w_NP, o_NM, mask_NM, weight, share=1.0):
  """Equation 43; with a share of 1 / M equation 45."""
  sigma = lambda o: 1 / (1 + jnp.exp(-o))
  loss = 0.0
  for n in range(len(o_NP)):
    drawn = sum(jnp.log(1 - sigma(o)) for o, yes in zip(o_NM[n], mask_NM[n]) if yes)  # noqa: B905
    for w, o in zip(w_NP[n], o_NP[n], strict=True):
      loss -= w * (weight * jnp.log(sigma(o)) + share * drawn)
  return loss


@pytest.mark.parametrize(("weight", "share"), [(1.0, 1.0), (0.3, 1.0), (1.0, 0.2)])
def test_loss_and_gradient_equal_the_formula(weight, share):
  o_NP, w_NP, _, o_NM, _, mask_NM = case(3)
  got, want = (
    jax.value_and_grad(lambda a, b, f=f: f(a, w_NP, b, mask_NM, weight, share), (0, 1))(
      o_NP, o_NM
    )
    for f in (negative_sampling_loss, naive)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("t", [0.0, 0.4, 1.0])
def test_calibration_equals_that_of_gbce(t):
  a = 25 / 1000
  want = a * (t * (1 - 1 / a) + 1 / a)
  assert math.isclose(calibrated_weight(25, 1001, t), want)
  assert calibrated_weight(5000, 1001, t) == 1
