"""Huffman's tree, and the loss of binary decisions along it, by enumeration."""

import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.tree.huffman import (
  huffman,
  level_steps,
  over_read_rows,
  over_table,
  tree_loss,
  tree_nll,
  ways,
)
from largevocab.ops.tree.huffman_top_k import tree_top_k

N, D = 4, 3
COUNT_V = np.array([40, 0, 7, 7, 1, 20, 3, 0, 1, 90, 7])
V = len(COUNT_V)

nll = jax.jit(tree_nll)
loss_of = jax.jit(tree_loss)


def depths(count_V):
  tree = huffman(np.asarray(count_V))
  return (np.asarray(ways(tree, jnp.arange(len(count_V)))) >= 0).sum(axis=0)


def least_total(count_V):
  """Counts times depths of Huffman's tree: the sum of all merged counts."""
  heap, total = sorted(map(int, count_V)), 0
  while len(heap) > 1:
    merged = heapq.heappop(heap) + heapq.heappop(heap)
    heapq.heappush(heap, merged)
    total += merged
  return total


def model(dtype=np.float64, size=1.0):
  rng = np.random.default_rng(0)
  x_ND, w_VD = rng.standard_normal((N, D)), size * rng.standard_normal((V, D))
  w_VD[-1] = np.nan  # never read
  return x_ND.astype(dtype), w_VD.astype(dtype), huffman(COUNT_V)


def by_definition(x_ND, w_VD, tree):
  """log p of all classes, f64[N, V], from the root on."""
  log_p_NV = np.zeros((len(x_ND), V))
  for c in range(V):
    above = int(tree.above_class_V[c])
    while above >= 0:
      node, side = divmod(above, 2)
      o_N = x_ND @ w_VD[node] if side else -(x_ND @ w_VD[node])
      log_p_NV[:, c] -= np.logaddexp(0, -o_N)
      above = int(tree.above_node_V[node])
  return log_p_NV


@pytest.mark.parametrize(
  "count_V",
  [COUNT_V, np.ones(9, int), 2 ** np.arange(12), np.zeros(5, int), [3], [0, 1]],
)
def test_no_tree_needs_fewer_steps(count_V):
  depth_V = depths(count_V)
  assert (depth_V * count_V).sum() == least_total(count_V)
  assert sum(0.5**depth for depth in depth_V) == 1
  num_L = huffman(np.asarray(count_V)).num_L
  np.testing.assert_array_equal(np.bincount(depth_V, minlength=2)[1:], num_L)


def test_classes_that_never_occur_form_a_flat_tree():
  assert set(depths(np.zeros(11, int))) == {3, 4}


def test_every_side_of_every_node_has_a_child():
  tree = huffman(COUNT_V)
  above = np.concatenate([tree.above_class_V, tree.above_node_V[1 : V - 1]])
  assert sorted(above.tolist()) == list(range(2 * V - 2))
  assert tree.above_node_V[0] == tree.above_node_V[V - 1] == -1


@pytest.mark.parametrize(
  "count_V", [COUNT_V, np.ones(99, int), 2 ** np.arange(12), np.arange(300) // 7]
)
def test_parents_of_nodes_ascend(count_V):
  parent_V = np.asarray(huffman(count_V).above_node_V)[:-1] // 2
  assert (np.diff(parent_V) >= 0).all()


def test_nll_equals_the_definition_and_sums_to_one():
  with jax.enable_x64(True):
    x_ND, w_VD, tree = model()
    ids_NV = jnp.broadcast_to(jnp.append(jnp.arange(V, dtype=jnp.int32), V), (N, V + 1))
    nll_NV = np.asarray(nll(x_ND, w_VD, tree, ids_NV))
  assert not nll_NV[:, V].any()
  np.testing.assert_allclose(-nll_NV[:, :V], by_definition(x_ND, w_VD, tree), 1e-12)
  np.testing.assert_allclose(np.exp(-nll_NV[:, :V]).sum(axis=1), 1, rtol=1e-12)


def test_gradients_equal_those_of_the_definition():
  ids_NP = np.array([[9, 4], [4, 4], [V, 1], [0, 5]], np.int32)
  w_NP = np.array([[0.5, 1.0], [2.0, 0.1], [0.0, 0.3], [0.0, 0.0]])
  with jax.enable_x64(True):
    x_ND, w_VD, tree = model()
    total = lambda x_ND, w_VD: (w_NP * tree_nll(x_ND, w_VD, tree, ids_NP)).sum()
    want, (dx_ND, dw_VD) = jax.jit(jax.value_and_grad(total, (0, 1)))(x_ND, w_VD)
    loss, got_ND, (ids_R, rows_RD) = loss_of(x_ND, w_VD, tree, ids_NP, w_NP)
    np.testing.assert_allclose(loss, want, rtol=1e-12)
    np.testing.assert_allclose(got_ND, dx_ND, atol=1e-12)
    got_VD = np.zeros((V, D))
    live_R = np.asarray(ids_R) < V
    got_VD[ids_R[live_R]] = rows_RD[live_R]
    np.testing.assert_allclose(got_VD, dw_VD, atol=1e-12)
  assert len(set(ids_R.tolist())) == len(ids_R) == V
  assert not rows_RD[~live_R].any()
  above = np.asarray(ways(tree, jnp.array([9, 4, 1])))
  assert set(ids_R[live_R].tolist()) == set((above[above >= 0] // 2).tolist())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_read_once_give_the_same_as_the_table(dtype):
  """As on a TPU; some classes have no weight, some are padding."""
  _, w_VD, tree = model(np.float32)
  ids_M, w_M = jnp.array([9, 4, 4, V, 0, 6]), jnp.array([0.5, 1, 0.2, 0, 0, 2])
  x_MD = np.random.default_rng(1).standard_normal((6, D)).astype(np.float32)
  steps = level_steps(tree, ids_M, w_M)
  got, want = (
    jax.jit(way, static_argnames="dtype")(x_MD, w_VD, w_M, steps, dtype=dtype)
    for way in (over_read_rows, over_table)
  )
  for a, b in zip(got, want, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
  assert np.any(want[2])


def test_bfloat16_rounds_the_operands_and_sums_in_float32():
  """With operands that bfloat16 holds exactly, results are those of float64; gradients
  but for the rounding of those of the logits."""
  ids_NP, w_NP = np.array([[9], [4], [1], [0]], np.int32), np.full((N, 1), 1 / N)
  half = lambda a: np.asarray(jnp.asarray(a, jnp.bfloat16), np.float32)
  given_ND, given_VD, tree = model(np.float32)
  x_ND, w_VD = half(given_ND), half(given_VD)
  nll_of = jax.jit(tree_nll, static_argnames="dtype")
  dtyped = jax.jit(tree_loss, static_argnames="dtype")
  args = tree, ids_NP, np.float32(w_NP)
  loss, dx_ND, (_, rows_RD) = dtyped(x_ND, w_VD, *args, dtype="bfloat16")
  nll_NP = nll_of(x_ND, w_VD, tree, ids_NP, dtype="bfloat16")
  _, log_p_NK = tree_top_k(x_ND, jnp.asarray(w_VD), tree, V, dtype="bfloat16")
  want_NV = by_definition(np.float64(x_ND), np.float64(w_VD), tree)
  with jax.enable_x64(True):
    wide = np.float64(x_ND), np.float64(w_VD), tree, ids_NP, w_NP
    want_loss, want_ND, (_, want_RD) = dtyped(*wide)
  np.testing.assert_allclose(loss, want_loss, rtol=1e-6)
  np.testing.assert_allclose(nll_NP.mean(), want_loss, rtol=1e-6)
  np.testing.assert_allclose(log_p_NK, -np.sort(-want_NV), rtol=1e-5)
  for x, z in [(dx_ND, want_ND), (rows_RD, want_RD)]:
    assert x.dtype == jnp.float32
    error = np.abs(np.asarray(x) - np.asarray(z)).max() / np.abs(z).max()
    assert 1e-5 < error < float(jnp.finfo(jnp.bfloat16).eps)
  rounded = dtyped(given_ND, given_VD, *args, dtype="bfloat16")
  np.testing.assert_array_equal(rounded[0], loss)


@pytest.mark.parametrize(("size", "nodes"), [(1, 1), (3, 2), (3, 100)])
def test_top_k_equals_sorting(size, nodes):
  x_ND, w_VD, tree = model(np.float32)
  want_NV = by_definition(x_ND, w_VD, tree)
  ids_NK, log_p_NK = tree_top_k(x_ND, w_VD, tree, 5, size=size, nodes=nodes)
  np.testing.assert_array_equal(ids_NK, np.argsort(-want_NV)[:, :5])
  np.testing.assert_allclose(log_p_NK, -np.sort(-want_NV)[:, :5], rtol=1e-5)


def test_top_k_prefers_the_smaller_id():
  x_ND, w_VD, tree = model(np.float32)
  depth_V = depths(COUNT_V)
  ids_NK, log_p_NK = tree_top_k(x_ND, np.zeros_like(w_VD), tree, V)
  want = sorted(range(V), key=lambda c: (depth_V[c], c))
  np.testing.assert_array_equal(ids_NK, np.broadcast_to(want, (N, V)))
  np.testing.assert_allclose(log_p_NK[0], -depth_V[want] * np.log(2), rtol=1e-6)
  for k in (0, V + 1):
    with pytest.raises(ValueError, match=f"V = {V}, got {k}"):
      tree_top_k(x_ND, w_VD, tree, k)


def test_no_product_holds_all_classes_of_all_examples():
  many, few, classes = 64, 2, 4096
  tree = huffman(np.arange(classes))
  find = lambda x_ND, w_VD: tree_top_k(x_ND, w_VD, tree, 3, size=few)
  shapes = (
    jax.ShapeDtypeStruct((many, D), "f4"),
    jax.ShapeDtypeStruct((classes, D), "f4"),
  )
  memory = jax.jit(find).lower(*shapes).compile().memory_analysis()
  assert memory.temp_size_in_bytes < 4 * many * classes / 2


def test_mismatched_shapes_are_named():
  x_ND, w_VD, tree = model(np.float32)
  for call in itertools.product((x_ND[:, :2], x_ND), (w_VD, w_VD[:-1])):
    if call[0] is not x_ND or call[1] is not w_VD:
      with pytest.raises(ValueError, match="has shape"):
        tree_nll(*call, tree, jnp.zeros((N, 1), jnp.int32))
