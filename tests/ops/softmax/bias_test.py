import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.softmax.bias import extend, extended_width


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 64])
def test_width_is_a_multiple_of_8_with_room_for_the_constant(dim):
  width = extended_width(dim)
  assert width % 8 == 0
  assert dim < width <= dim + 8


@pytest.mark.parametrize("dim", [7, 8])
def test_column_d_is_the_bias_and_the_others_get_no_gradient(dim):
  rng = np.random.default_rng(0)
  h_ND = rng.standard_normal((3, dim)).astype(np.float32)
  w_VD = rng.standard_normal((5, extended_width(dim))).astype(np.float32)
  score = lambda h_ND, w_VD: extend(h_ND) @ w_VD.T
  want_NV = h_ND @ w_VD[:, :dim].T + w_VD[:, dim][None, :]
  np.testing.assert_allclose(score(h_ND, w_VD), want_NV, rtol=1e-5, atol=1e-6)
  dh_ND, dw_VD = jax.grad(lambda h, w: jnp.sum(score(h, w) ** 2), (0, 1))(h_ND, w_VD)
  assert dh_ND.shape == h_ND.shape
  assert not dw_VD[:, dim + 1 :].any()
  np.testing.assert_allclose(dw_VD[:, dim], 2 * want_NV.sum(axis=0), rtol=1e-5)
