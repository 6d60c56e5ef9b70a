"""Every public loss under JAX's transformations, against finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import losses
from tests.long import others_long

N, P, M, D, V, BATCHES = 5, 3, 6, 4, 11, 3
RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.standard_normal((BATCHES, *shape))
IDS_NP = RNG.integers(0, V, (N, P)).astype(np.int32)
IDS_NP[1, 1:] = V  # padding
TRUE_NP = IDS_NP < V
WEIGHTS = RNG.uniform(0.1, 1, (BATCHES, N, P)) * TRUE_NP
MASK_NM = RNG.random((N, M)) < 0.7
LAW_NP = np.float32(np.where(TRUE_NP, -RNG.uniform(0.1, 2, (N, P)), -np.inf))
LAW_NM = np.float32(np.where(MASK_NM, -RNG.uniform(0.1, 2, (N, M)), -np.inf))
SCORES = normal(N, P), WEIGHTS, normal(N, M)
SUMS = normal(P), np.full(BATCHES, 9.0), np.full(BATCHES, 1.5)
TARGETS = np.array([0.5, 0.5, 0.0])


def spherical(loss):
  each = lambda o_P, q, s: loss(o_P, jnp.asarray(TARGETS, o_P.dtype), q, s, V)
  return each, SUMS


# Each as a function of all that it is differentiable in, of several batches.
LOSSES = {
  "softmax_cross_entropy": (
    lambda h, w, weight: losses.softmax_cross_entropy(
      h, w, IDS_NP, weight, budget_mib=0.001
    ),
    (normal(N, D), normal(V, D), WEIGHTS),
  ),
  "sampled_softmax_loss": (
    lambda o, w, drawn: losses.sampled_softmax_loss(
      o, w, TRUE_NP, drawn, LAW_NM, MASK_NM
    ),
    SCORES,
  ),
  "nce_loss": (
    lambda o, w, drawn: losses.nce_loss(o, w, LAW_NP, drawn, LAW_NM, MASK_NM),
    SCORES,
  ),
  "negative_sampling_loss": (
    lambda o, w, drawn: losses.negative_sampling_loss(o, w, drawn, MASK_NM),
    SCORES,
  ),
  "ranking_loss": (
    lambda o, w, drawn: losses.ranking_loss(o, w, drawn, MASK_NM, 0.5),
    SCORES,
  ),
  "blackout_loss": (
    lambda o, w, drawn: losses.blackout_loss(o, w, LAW_NP, drawn, LAW_NM, MASK_NM),
    SCORES,
  ),
  "upper_bound_loss": (
    lambda o, w, drawn: losses.upper_bound_loss(
      o, w, TRUE_NP, drawn, LAW_NM, MASK_NM, V
    ),
    SCORES,
  ),
  "importance_loss": (
    lambda o, w, drawn: losses.importance_loss(o, w, drawn, LAW_NM, MASK_NM),
    SCORES,
  ),
  **{name: spherical(loss()) for name, loss in losses.SPHERICAL_LOSSES.items()},
}
UNUSED = {"squared", "spherical"}  # do not depend on the sum of the logits


def test_every_loss_has_a_case():
  public = {name for name in losses.__all__ if name.endswith(("_loss", "entropy"))}
  assert LOSSES.keys() == public | losses.SPHERICAL_LOSSES.keys()


def gradients(loss, arrays):
  """Of each batch, again without what the forward pass has kept, of the sum in two
  ways, and the second derivative along the first array, with a finite difference."""
  grad = jax.grad(loss, (0, 1, 2))
  first = jax.tree.map(lambda x: x[0], arrays)

  def in_vmap(*arrays):
    return jnp.sum(jax.vmap(loss)(*arrays))

  def in_scan(*arrays):
    return jax.lax.scan(lambda total, x: (total + loss(*x), None), 0.0, arrays)[0]

  each = jax.lax.map(lambda x: grad(*x), arrays)
  again = jax.grad(jax.checkpoint(loss), (0, 1, 2))(*first)
  along = lambda size: jnp.vdot(first[0], grad(size * first[0], *first[1:])[0])
  second = jax.grad(along)(1.0), (along(1.01) - along(0.99)) / 0.02
  of_sums = [jax.grad(f, (0, 1, 2))(*arrays) for f in (in_vmap, in_scan)]
  return each, again, of_sums, second


FIRST = ("softmax_cross_entropy", "sampled_softmax_loss", "taylor")


@pytest.mark.parametrize("name", others_long(LOSSES, FIRST))
def test_gradients_equal_finite_differences_under_all_transformations(name):
  loss, arrays = LOSSES[name]
  cast = lambda dtype: jax.tree.map(lambda x: jnp.asarray(x, dtype), arrays)
  run = jax.jit(functools.partial(gradients, loss))
  each, again, of_sums, second = run(cast(jnp.float32))
  np.testing.assert_allclose(*second, rtol=1e-2, atol=1e-2)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  jax.tree.map(lambda x, y: close(x, y[0]), again, each)
  for of_sum in of_sums:
    jax.tree.map(close, of_sum, each)
  with jax.enable_x64(True):
    wide = cast(jnp.float64)
    of_all = jax.jit(
      lambda arrays: sum(loss(*(x[b] for x in arrays)) for b in range(3))
    )

    def slope(i, step):
      at = lambda eps: [x + eps * step if j == i else x for j, x in enumerate(wide)]
      return (of_all(at(1e-4)) - of_all(at(-1e-4))) / 2e-4

    for i, g in enumerate(each):
      step = RNG.standard_normal(g.shape) * (wide[i] != 0)  # weights of padding stay
      want = slope(i, step)
      np.testing.assert_allclose(np.vdot(g, step), want, rtol=1e-3, atol=1e-4)
      assert np.abs(want) > 1e-3 or name in UNUSED


def test_importance_weights_are_constants():
  """Even where they have no derivative."""
  weights = lambda share_N: sum(
    map(jnp.sum, losses.complement_weights(share_N, jnp.array([0, 2, 3]), 4))
  )
  gradient = jax.grad(weights)(jnp.array([0.0, 0.5, 1.0]))
  np.testing.assert_array_equal(gradient, 0)
