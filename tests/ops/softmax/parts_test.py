import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from largevocab.ops.softmax.log_partition import score_of
from largevocab.ops.softmax.parts import Part, parts_loss, parts_loss_naive, parts_nll
from largevocab.ops.softmax.plan import Plan, plan

N, SIZES, WIDTHS = 7, (5, 11, 1, 8), (6, 3, 2, 1)
V = sum(SIZES)
HOW = {
  "reference": Plan("reference", N, V, 1, 0),
  "tiles": Plan("tiles", 3, 4, 0, 0),
  "classes": Plan("classes", N, 4, 0, 0),
}


def problem(dtype=np.float32, size=1.0):
  """Labels of all parts, none, several of one example, one twice, weightless ones."""
  rng = np.random.default_rng(0)
  normal = lambda *shape: rng.standard_normal(shape).astype(dtype)
  parts = tuple(
    Part(size * normal(N, D), normal(V_i, D))
    for V_i, D in zip(SIZES, WIDTHS, strict=True)
  )
  ids_NP = rng.integers(0, V, (N, 3)).astype(np.int32)
  ids_NP[:3] = [[4, 5, 15], [16, 17, V - 1], [V, V, V]]
  ids_NP[3] = [0, 0, V]
  w_NP = np.where(ids_NP < V, rng.uniform(0.1, 1, (N, 3)), 0).astype(dtype)
  w_NP[4] = 0
  return parts, ids_NP, w_NP


def arrays(parts):
  return [(part.h_ND, part.w_VD) for part in parts]


def by_definition(parts, ids_NP, w_NP):
  o_NV = np.concatenate(
    [h.astype(float) @ w.astype(float).T for h, w in arrays(parts)], 1
  )
  log_p_NV = np.pad(scipy.special.log_softmax(o_NV, axis=1), ((0, 0), (0, 1)))
  return -w_NP * np.take_along_axis(log_p_NV, ids_NP, axis=1)


def value_and_gradients(how, parts, ids_NP, w_NP, **options):
  f = lambda parts, w_NP: parts_loss(parts, ids_NP, w_NP, how, **options)
  return jax.jit(jax.value_and_grad(f, (0, 1)))(parts, w_NP)


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_loss_equals_the_definition(how):
  loss = jax.jit(lambda *args: parts_loss(*args, how))
  for size in (1, 300):
    args = problem(size=np.float32(size))
    np.testing.assert_allclose(loss(*args), by_definition(*args).sum(), rtol=1e-5)


@pytest.mark.parametrize(
  ("how", "absolute"),
  [*((how, False) for how in HOW if how != "reference"), ("tiles", True)],
)
def test_chunked_equals_naive_in_float64(how, absolute):
  with jax.enable_x64(True):
    args = problem(np.float64)
    got = value_and_gradients(HOW[how], *args, score=score_of(absolute))
    want = value_and_gradients(HOW["reference"], *args, score=score_of(absolute))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
      assert a.dtype == b.dtype == np.float64
      np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_nll_equals_the_mean_of_the_definition():
  parts, ids_NP, w_NP = problem()
  nll_N, log_z_N = parts_nll(parts, ids_NP, w_NP)
  weight_N = w_NP.sum(axis=1)
  want_N = by_definition(parts, ids_NP, w_NP).sum(1) / np.where(weight_N, weight_N, 1)
  np.testing.assert_allclose(nll_N, want_N, rtol=1e-5)
  o_NV = np.concatenate([h @ w.T for h, w in arrays(parts)], axis=1)
  np.testing.assert_allclose(log_z_N, scipy.special.logsumexp(o_NV, axis=1), rtol=1e-5)


def test_probabilities_sum_to_one_in_float64():
  with jax.enable_x64(True):
    parts, _, _ = problem(np.float64)
    parts = tuple(Part(jnp.repeat(h[:1], V, axis=0), w) for h, w in arrays(parts))
    ids_NP = jnp.arange(V, dtype=jnp.int32)[:, None]
    nll_N, _ = parts_nll(parts, ids_NP, jnp.ones((V, 1)))
    np.testing.assert_allclose(jnp.exp(-nll_N).sum(), 1, rtol=1e-13)


@pytest.mark.parametrize("method", ["tiles", "classes"])
def test_never_holds_all_logits(method):
  num, sizes, widths = 256, (2000, 18_000), (16, 4)
  parts = tuple(
    Part(jnp.zeros((num, D)), jnp.zeros((V_i, D)))
    for V_i, D in zip(sizes, widths, strict=True)
  )
  args = parts, jnp.zeros((num, 1), jnp.int32), jnp.ones((num, 1))
  how = plan(num, sum(sizes), sum(widths), 4 * 2**20, method=method)

  def temp_bytes(loss):
    f = jax.jit(jax.value_and_grad(lambda parts: loss(parts, *args[1:])))
    compiled = f.lower(parts).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  all_logits = 4 * num * sum(sizes)
  assert temp_bytes(lambda *args: parts_loss(*args, how)) < all_logits / 4
  assert temp_bytes(parts_loss_naive) >= all_logits


def test_shapes_are_checked():
  parts, ids_NP, w_NP = problem()
  wrong = (*parts[:2], Part(parts[2].h_ND, parts[3].w_VD))
  with pytest.raises(ValueError, match="w_VD has shape"):
    parts_loss_naive(wrong, ids_NP, w_NP)
