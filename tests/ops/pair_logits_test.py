from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.pair_logits import (
  by_passes,
  by_products,
  by_rows,
  pair_logits,
  products_are_faster,
)
from tests.long import others_long

N, V, D = 6, 11, 4
DIFFERENTIABLE = [by_rows, by_products]
# A class of each example, or some, so many pairs at a time.
PASSES = [partial(by_passes, num_true=P, at_once=K) for P, K in ((1, 2), (3, 4 * N))]
WAYS = [*DIFFERENTIABLE, *PASSES]
SIZES = [(5, 0), (1, 7), (5, 7), (0, 7)]


def case(S, T, seed=0):
  """Classes that repeat within and between examples, and some padding."""
  rng = np.random.default_rng(seed)
  f32 = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
  ids = lambda *shape: jnp.asarray(rng.integers(0, V - 3, shape), jnp.int32)
  ids_NS, shared_T = ids(N, S), ids(T)
  if S:
    ids_NS = ids_NS.at[0, :].set(2).at[1, -1].set(V)
  if T:
    shared_T = shared_T.at[-1].set(V).at[0].set(2)
  live = jnp.asarray(rng.random((N, S + T)) < 0.7).at[3].set(False)
  live &= all_ids(ids_NS, shared_T) < V
  return f32(N, D), f32(V, D), ids_NS, shared_T, f32(N, S + T), live


def all_ids(ids_NS, shared_T):
  shared_NT = jnp.broadcast_to(shared_T, (len(ids_NS), len(shared_T)))
  return jnp.concatenate([ids_NS, shared_NT], axis=1)


def dense(ids_R, rows_RD):
  """The gradient as one of the table's shape; its ids are distinct."""
  ids_R = np.asarray(ids_R)
  assert len(np.unique(ids_R)) == len(ids_R)
  assert not np.asarray(rows_RD)[ids_R >= V].any()
  return jnp.zeros((V, rows_RD.shape[1])).at[ids_R].add(rows_RD, mode="drop")


@pytest.mark.parametrize(
  ("way", "S", "T"),
  others_long(
    [(way, *sizes) for way in DIFFERENTIABLE for sizes in SIZES]
    + [(PASSES[0], 1, 7), *((way, 5, 7) for way in PASSES), (PASSES[1], 5, 0)],
    [(by_rows, 5, 0), (by_products, 0, 7), *((way, 5, 7) for way in WAYS)],
  ),
)
def test_all_ways_equal_the_pairs_written_out_and_their_autodiff(way, S, T):
  x_ND, w_VD, ids_NS, shared_T, d, live = case(S, T)
  ids = all_ids(ids_NS, shared_T)

  def naive(x_ND, w_VD):
    row = lambda x_D, id: jnp.sum(x_D * w_VD[jnp.minimum(id, V - 1)])
    o = jnp.stack([jnp.stack([row(x_ND[n], i) for i in ids[n]]) for n in range(N)])
    return jnp.where(live, o, 0)

  @jax.jit
  def of_naive(x_ND, w_VD):
    want, pull_back = jax.vjp(naive, x_ND, w_VD)
    return want, *pull_back(d)

  @jax.jit
  def of_way(x_ND, w_VD):
    o, pull_back = way(x_ND, w_VD, ids_NS, shared_T, "float32")
    return o, *pull_back(d, live)

  want, want_dx_ND, want_dw_VD = of_naive(x_ND, w_VD)
  o, dx_ND, ids_R, rows_RD = of_way(x_ND, w_VD)
  assert jnp.isfinite(o).all()
  np.testing.assert_allclose(jnp.where(live, o, 0), want, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(dx_ND, want_dx_ND, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(dense(ids_R, rows_RD), want_dw_VD, rtol=1e-4, atol=1e-6)
  # Rows with a live pair, and no others.
  touched = np.asarray(ids_R)[np.asarray(ids_R) < V]
  assert set(touched.tolist()) == set(np.asarray(ids)[np.asarray(live)].tolist())


@pytest.mark.parametrize("way", others_long(WAYS, [by_products, PASSES[0]]))
def test_live_row_is_touched_even_if_its_gradient_is_zero(way):
  x_ND, w_VD, ids_NS, shared_T, d, live = case(5, 7)
  _, pull_back = way(x_ND, w_VD, ids_NS, shared_T, "float32")
  touched = lambda ids_R: {int(i) for i in ids_R if i < V}
  zero_dx_ND, ids_R, rows_RD = pull_back(jnp.zeros_like(d), live)
  assert touched(ids_R) == touched(pull_back(d, live)[1]) != set()
  assert not zero_dx_ND.any()
  assert not rows_RD.any()


@pytest.mark.parametrize("way", WAYS)
def test_rows_get_no_gradient_from_constant_pairs_and_activations_do(way):
  x_ND, w_VD, ids_NS, shared_T, d, live = case(5, 7)
  constant = jnp.zeros_like(live).at[:, 1::2].set(True)
  _, pull_back = way(x_ND, w_VD, ids_NS, shared_T, "float32")
  dx_ND, ids_R, rows_RD = pull_back(d, live, constant)
  want_dx_ND, *all_rows = pull_back(d, live)
  _, *want = pull_back(d, live & ~constant)
  np.testing.assert_array_equal(dx_ND, want_dx_ND)
  np.testing.assert_allclose(dense(ids_R, rows_RD), dense(*want), rtol=1e-5, atol=1e-6)
  assert {*map(int, ids_R[ids_R < V])} == {*map(int, want[0][want[0] < V])}
  assert np.abs(dense(*all_rows) - dense(*want)).max() > 0.1


@pytest.mark.parametrize("way", DIFFERENTIABLE)
def test_logits_can_be_differentiated_directly(way):
  x_ND, w_VD, ids_NS, shared_T, d, live = case(5, 7)
  d = jnp.where(live, d, 0)
  o = lambda x_ND, w_VD: way(x_ND, w_VD, ids_NS, shared_T, "float32")[0]
  _, vjp = jax.vjp(o, x_ND, w_VD)
  dx_ND, dw_VD = vjp(d)
  _, pull_back = way(x_ND, w_VD, ids_NS, shared_T, "float32")
  got_dx_ND, ids_R, rows_RD = pull_back(d, live)
  np.testing.assert_allclose(got_dx_ND, dx_ND, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(dense(ids_R, rows_RD), dw_VD, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  "way", others_long([*DIFFERENTIABLE, PASSES[0]], [by_products, PASSES[0]])
)
def test_bfloat16_rounds_the_operands_and_sums_in_float32(way):
  x_ND, w_VD, _, _, d, _ = case(1, 5)
  # Each pair once: by products d is summed over repetitions before it is rounded.
  ids_NS, shared_T = jnp.arange(N)[:, None], jnp.arange(N, V)
  live = jnp.ones(d.shape, bool)
  cast = lambda x: x.astype(jnp.bfloat16).astype(jnp.float32)
  o, pull_back = way(x_ND, w_VD, ids_NS, shared_T, "bfloat16")
  want_o, want_pull_back = way(cast(x_ND), cast(w_VD), ids_NS, shared_T, "float32")
  np.testing.assert_allclose(o, want_o, rtol=1e-5, atol=1e-6)
  exact_o, _ = way(x_ND, w_VD, ids_NS, shared_T, "float32")
  assert float(jnp.abs(o - exact_o).max()) > 1e-4
  for got, want in zip(pull_back(d, live), want_pull_back(cast(d), live), strict=True):
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_choice_depends_on_the_classes_per_example():
  assert products_are_faster(400, 321, 10_000)
  assert not products_are_faster(400, 11, 10_000)  # few pairs
  assert not products_are_faster(400, 10_000, 200_000)  # [N, V] of 320 MB
  assert not products_are_faster(4, 321, 10_000)  # more rows than pairs


@pytest.mark.parametrize(("S", "T", "num_rows"), [(1, 9, N + 9), (2, 0, V), (2, 9, V)])
def test_faster_way_is_taken(S, T, num_rows):
  """Shown by the result: a row for each pair or shared class, or for each class."""
  x_ND, w_VD, ids_NS, shared_T, d, live = case(S, T)
  _, pull_back = pair_logits(x_ND, w_VD, ids_NS, shared_T, "float32")
  assert len(pull_back(d, live)[1]) == num_rows


def test_mismatched_shapes_are_named():
  x_ND, w_VD, ids_NS, shared_T, _, _ = case(2, 3)
  with pytest.raises(ValueError, match="ids_NS"):
    pair_logits(x_ND, w_VD, ids_NS[1:], shared_T, "float32")
