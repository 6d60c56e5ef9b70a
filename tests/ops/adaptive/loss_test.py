"""The adaptive softmax against all logits, masks and JAX's own gradients."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.adaptive import loss as adaptive, top_k as adaptive_top_k
from largevocab.ops.adaptive.clusters import Clusters, widths
from largevocab.ops.adaptive.model import Model, Tail, class_rows
from largevocab.ops.softmax.bias import extended_width
from largevocab.ops.softmax.chunks import compute_dtype, logits
from tests.long import others_long

N, P, D = 9, 2, 6
SIZES = (5, 7, 11)
V = sum(SIZES)
MASSES = (0.6, 0.3, 0.1)
CLUSTERS = Clusters(SIZES, (D, 3, 1), MASSES)


def log_p_naive(h_ND: jax.Array, model: Model) -> jax.Array:
  """Log-probabilities of all classes by place, f32[N, V], from all logits at once."""
  dtype = compute_dtype(h_ND, model.head_VD)
  log_p_NV = jax.nn.log_softmax(logits(model.features(h_ND), model.head_VD, dtype))
  parts = [log_p_NV[:, : model.sizes[0]]]
  for i, tail in enumerate(model.tails):
    log_q_NV = jax.nn.log_softmax(logits(tail.features(h_ND), tail.rows_VE, dtype))
    parts.append(log_p_NV[:, model.sizes[0] + i, None] + log_q_NV)
  return jnp.concatenate(parts, axis=1)


def normal(key, *shape):
  return jax.random.normal(jax.random.key(key), shape)


def model(bias=True, dim=D, widths=CLUSTERS.widths[1:]):
  width = lambda d: extended_width(d) if bias else d
  tails = tuple(
    Tail(normal(2 * i, e, dim), normal(2 * i + 1, size, width(e)))
    for i, (size, e) in enumerate(zip(SIZES[1:], widths, strict=True), 1)
  )
  return Model(normal(0, SIZES[0] + len(tails), width(dim)), tails)


def batch(place_NP):
  """Weighted targets, one of them without weight, and one example without any."""
  place_NP = jnp.asarray(place_NP, jnp.int32)
  w_NP = jax.random.uniform(jax.random.key(7), place_NP.shape, minval=0.2)
  w_NP = w_NP.at[0, 1].set(0.0).at[-1].set(0.0)
  return place_NP.at[-1].set(V), w_NP


WHERE = {
  "everywhere": np.random.default_rng(0).integers(0, V, (N, P)),
  "all in the last tail": np.random.default_rng(1).integers(12, V, (N, P)),
  "all in the first tail": np.random.default_rng(1).integers(5, 12, (N, P)),
  "all on the short list": np.random.default_rng(1).integers(0, 5, (N, P)),
}


nll = jax.jit(adaptive.adaptive_nll, static_argnums=4)
loss_and_gradients = jax.jit(adaptive.adaptive_loss, static_argnums=4)
top_k = jax.jit(adaptive_top_k.adaptive_top_k, static_argnums=3)


@jax.jit
def masked_loss(h_ND, model, place_NP, w_NP):
  log_p_NV = log_p_naive(h_ND, model)
  log_p_NP = jnp.take_along_axis(log_p_NV, place_NP, 1, mode="fill", fill_value=0)
  return -(w_NP * log_p_NP).sum()


@pytest.mark.parametrize("bias", others_long([True, False], [True]))
def test_probabilities_sum_to_one(bias):
  with jax.enable_x64(True):
    m = jax.tree.map(lambda x: x.astype(jnp.float64), model(bias))
    h_ND = normal(9, N, D).astype(jnp.float64)
    place_NV = jnp.broadcast_to(jnp.arange(V, dtype=jnp.int32)[None], (N, V))
    at_once = log_p_naive(h_ND, m)
    each = [
      nll(h_ND, m, place_NV[:, [v]], jnp.ones((N, 1)), adaptive.capacities(CLUSTERS, N))
      for v in range(V)
    ]
    p_NV = jnp.exp(-jnp.stack(each, axis=1))
    assert p_NV.dtype == jnp.float64
    np.testing.assert_allclose(p_NV.sum(axis=1), 1, rtol=1e-13)
    np.testing.assert_allclose(p_NV, jnp.exp(at_once), rtol=1e-12)


masked_gradients = jax.jit(jax.value_and_grad(masked_loss, (0, 1)))


@pytest.mark.parametrize(
  ("where", "capacity"),
  others_long(
    itertools.product(WHERE, [1, 3, N * P]),
    [*((where, 3) for where in WHERE), ("everywhere", 1)],
  ),
)
def test_loss_and_gradients_equal_those_with_masks(where, capacity):
  """For any number of true classes in a tail, and any capacity."""
  with jax.enable_x64(True):
    m = jax.tree.map(lambda x: x.astype(jnp.float64), model())
    h_ND = normal(9, N, D).astype(jnp.float64)
    place_NP, w_NP = batch(WHERE[where])
    loss, got = loss_and_gradients(h_ND, m, place_NP, w_NP, (capacity,) * 2)
    wanted, (dh_ND, dmodel) = masked_gradients(h_ND, m, place_NP, w_NP)
    np.testing.assert_allclose(loss, wanted, rtol=1e-12)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13)
    jax.tree.map(close, (got.h_ND, got.model), (dh_ND, dmodel))
    counted = [
      ((place_NP >= a) & (place_NP < b) & (w_NP > 0)).sum()
      for a, b in ((5, 12), (12, V))
    ]
    assert got.reached_J.tolist() == counted


def test_nll_is_the_mean_over_true_classes():
  place_NP, w_NP = batch(WHERE["everywhere"])
  h_ND = normal(9, N, D)
  nll_N = nll(h_ND, model(), place_NP, w_NP, (2, 2))
  weight_N = w_NP.sum(axis=1)
  np.testing.assert_allclose(
    (nll_N * weight_N).sum(), masked_loss(h_ND, model(), place_NP, w_NP), rtol=1e-5
  )
  assert nll_N[-1] == 0


def test_examples_beyond_the_capacity_are_not_dropped():
  """With capacity one, the loss of every example still counts."""
  place_NP = jnp.full((N, 1), V - 1, jnp.int32)
  h_ND = normal(9, N, D)
  zero = jax.tree.map(jnp.zeros_like, model())
  args = h_ND, zero, place_NP, jnp.ones((N, 1))
  loss, grads = loss_and_gradients(*args, (1, 1))
  np.testing.assert_allclose(loss, N * np.log(7 * 11), rtol=1e-6)
  assert grads.reached_J.tolist() == [0, N]


@pytest.mark.parametrize(
  ("scale", "k"),
  others_long(itertools.product([0.3, 3.0], [1, 4, 6, V]), [(0.3, 1), (3.0, 6)]),
)
def test_top_k_equals_that_of_all_classes(k, scale):
  rng = np.random.default_rng(2)
  class_V = np.concatenate([np.sort(p) for p in np.split(rng.permutation(V), [5, 12])])
  m, h_ND = jax.tree.map(lambda x: scale * x, model()), normal(4, 150, D)
  log_p_NV = np.asarray(log_p_naive(h_ND, m))
  ids_NK, best_NK = top_k(h_ND, m, jnp.asarray(class_V), k)
  order_NV = np.argsort(-log_p_NV, axis=1)
  np.testing.assert_array_equal(ids_NK, class_V[order_NV[:, :k]])
  np.testing.assert_allclose(
    best_NK, -np.sort(-log_p_NV, axis=1)[:, :k], rtol=2e-5, atol=5e-6
  )


def test_equally_likely_classes_are_ordered_by_id():
  zero = jax.tree.map(jnp.zeros_like, model())
  class_V = np.concatenate([[0, 3, 4, 8, 9], [1, 2, 5, 6, 7, 10, 11], range(12, V)])
  ids_NK, _ = top_k(jnp.ones((2, D)), zero, jnp.asarray(class_V, jnp.int32), 9)
  assert ids_NK.tolist() == [[0, 3, 4, 8, 9, 1, 2, 5, 6]] * 2


def test_tails_that_cannot_hold_a_top_class_are_not_read():
  """NaN rows of a tail with almost no probability have no effect."""
  m = model()
  far = m.head_VD.at[-1, :].set(0).at[-1, D].set(-100.0)
  broken = m.tails[1]._replace(rows_VE=jnp.full_like(m.tails[1].rows_VE, jnp.nan))
  whole, cut = (
    dataclasses.replace(m, head_VD=far),
    dataclasses.replace(m, head_VD=far, tails=(m.tails[0], broken)),
  )
  args = jnp.arange(V, dtype=jnp.int32), 3
  h_ND = normal(4, 5, D)
  got, wanted = (top_k(h_ND, x, *args) for x in (cut, whole))
  jax.tree.map(np.testing.assert_array_equal, got, wanted)


def test_class_rows_are_linear_in_log_p():
  m, h_ND = model(), normal(4, 3, D)
  rows_VD = class_rows(m, jnp.arange(V))
  o_NV = m.features(h_ND) @ rows_VD.T
  log_p_NV = log_p_naive(h_ND, m)
  for start, end in ((0, 5), (5, 12), (12, V)):
    part = (o_NV - log_p_NV)[:, start:end]
    np.testing.assert_allclose(
      part, jnp.broadcast_to(part[:, :1], part.shape), atol=1e-4
    )


def test_biases_of_tails_only_widen_class_rows():
  m = model()
  no_bias = dataclasses.replace(m, head_VD=m.head_VD[:, :D])
  rows_VD = class_rows(no_bias, jnp.arange(V))
  assert rows_VD.shape == (V, extended_width(D))
  assert not rows_VD[:5, D].any()
  assert rows_VD[5:, D].all()


def test_widths_of_narrow_tails_are_positive():
  """In PyTorch, a fourth tail with rows of 200 / 4^4 has width 0."""
  assert widths(200, 5, 4)[-1] == 1
  assert min(widths(200, 5, 4, align=8)) == 8


def test_wrong_number_of_capacities_is_refused():
  place_NP, w_NP = batch(WHERE["everywhere"])
  with pytest.raises(ValueError, match="1 capacities for 2 tails"):
    adaptive.adaptive_loss(normal(1, N, D), model(), place_NP, w_NP, (1,))


def test_logits_of_a_tail_are_held_for_its_capacity_only():
  """The compiled program has no array of [N, V]."""
  num, sizes, dim = 512, (500, 40_000), 16
  clusters = Clusters(sizes, (dim, 8), (0.9, 0.1))
  spec = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
  shapes = (sizes[0] + 1, dim), (8, dim), (sizes[1], 8)
  zeros = lambda head, down, rows: Model(
    jnp.zeros(head), (Tail(jnp.zeros(down), jnp.zeros(rows)),)
  )
  m = jax.eval_shape(lambda: zeros(*shapes))
  places = jax.ShapeDtypeStruct((num, 1), jnp.int32)

  @jax.jit
  def step(h_ND, m, place_NP, w_NP):
    return adaptive.adaptive_loss(
      h_ND, m, place_NP, w_NP, adaptive.capacities(clusters, num), budget_bytes=2**22
    )

  program = step.lower(spec(num, dim), m, places, spec(num, 1)).compile()
  analysis = program.memory_analysis()
  assert analysis is not None
  assert analysis.temp_size_in_bytes < num * sizes[1] * 4 / 4
