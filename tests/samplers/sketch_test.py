"""The sketch of rows and activations: the best product of low rank."""

import jax.numpy as jnp
import numpy as np

from largevocab.samplers import sketch

D, R = 8, 3


def anisotropic(num, seed):
  rng = np.random.default_rng(seed)
  mix_DD = rng.normal(size=(D, D)) * np.geomspace(1, 0.05, D)
  return (rng.normal(size=(num, D)) @ mix_DD).astype("f")


def error(fitted, h_ND, w_VD) -> float:
  """Mean square error of the sketched logits."""
  o_NV = (h_ND @ fitted.query_DR) @ (w_VD @ fitted.row_DR).T
  return float(jnp.mean(jnp.square(o_NV - h_ND @ w_VD.T)))


def test_sketch_is_the_best_of_its_rank():
  h_ND, w_VD = anisotropic(500, 0), anisotropic(300, 1)
  seen = sketch.init(D, R)
  for _ in range(300):  # rows change by sums of activations
    seen = sketch.observe(seen, jnp.asarray(h_ND))
  fitted = sketch.fit(seen, jnp.asarray(w_VD.T @ w_VD))
  values = np.linalg.svd(np.float64(h_ND) @ w_VD.T, compute_uv=False)
  best = np.square(values[R:]).sum() / (500 * 300)
  assert error(fitted, h_ND, w_VD) < 1.01 * best
  unseen = sketch.fit(sketch.init(D, R), jnp.asarray(w_VD.T @ w_VD))
  assert error(unseen, h_ND, w_VD) > 1.5 * best


def test_all_coordinates_lose_nothing():
  h_ND, w_VD = anisotropic(50, 2), anisotropic(30, 3)
  seen = sketch.observe(sketch.init(D, D), jnp.asarray(h_ND))
  fitted = sketch.fit(seen, jnp.asarray(w_VD.T @ w_VD))
  identity_DD = np.asarray(fitted.query_DR) @ np.asarray(fitted.row_DR).T
  np.testing.assert_allclose(identity_DD, np.eye(D), atol=1e-4)


def test_old_changes_are_forgotten():
  one = jnp.zeros((1, D)).at[0, 0].set(1)
  seen = sketch.observe(sketch.init(D, R), one)
  for _ in range(500):
    seen = sketch.observe(seen, jnp.zeros((4, D)))
  assert 0 < seen.change_DD[0, 0] < 0.01
