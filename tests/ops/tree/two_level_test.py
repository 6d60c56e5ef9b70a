import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.tree import tiles as tiles_of
from largevocab.ops.tree.tiles import over_tiles, tiles
from largevocab.ops.tree.two_level import (
  layout,
  two_level_loss,
  two_level_nll,
)
from largevocab.ops.tree.two_level_top_k import two_level_top_k
from tests.ops.tree.naive import log_p_naive

N, D = 5, 4
CLUSTER_V = np.array([3, 3, 0, 3, 7, 3, 0, 3, 7, 3, 7])  # of 2, 6 and 3 classes
V = len(CLUSTER_V)


def model(seed=0, cluster_V=CLUSTER_V):
  """Features, clusters, leaves and layout; free slots have by far the top logits."""
  rng = np.random.default_rng(seed)
  where = layout(cluster_V)
  K, S = where.members_KS.shape
  normal = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
  x_ND = normal(N, D).at[:, 0].set(1)
  is_free_KS = where.members_KS == len(cluster_V)
  leaves_KSD = normal(K, S, D)
  leaves_KSD = leaves_KSD.at[:, :, 0].add(jnp.where(is_free_KS, 50.0, 0.0))
  return x_ND, normal(K, D), leaves_KSD, where


def by_definition(x_D, clusters_KD, leaves_KSD, where):
  """p of all classes, one after the other, in float64."""
  x_D, clusters_KD, leaves_KSD = (
    np.asarray(a, np.float64) for a in (x_D, clusters_KD, leaves_KSD)
  )
  p_K = np.exp(clusters_KD @ x_D)
  p_K /= p_K.sum()
  p_V = np.zeros(len(where.cluster_V))
  for k, members_S in enumerate(np.asarray(where.members_KS)):
    num = int((members_S < len(p_V)).sum())
    p_S = np.exp(leaves_KSD[k, :num] @ x_D)
    p_V[members_S[:num]] = p_K[k] * p_S / p_S.sum()
  return p_V


dense = jax.jit(log_p_naive)


def test_layout_finds_every_class():
  where = layout(CLUSTER_V)
  assert where.members_KS.shape == (3, 6)
  found_V = where.members_KS[where.cluster_V, where.slot_V]
  np.testing.assert_array_equal(found_V, np.arange(V))
  assert (where.members_KS == V).sum() == 3 * 6 - V


def test_naive_equals_the_definition_and_sums_to_one():
  args = model()
  p_NV = jnp.exp(dense(*args))
  for p_V, x_D in zip(p_NV, args[0], strict=True):
    np.testing.assert_allclose(p_V, by_definition(x_D, *args[1:]), rtol=1e-5)
  np.testing.assert_allclose(p_NV.sum(axis=1), 1, rtol=1e-5)


@pytest.fixture(autouse=True)
def two_blocks_at_a_time(monkeypatch):
  """By default, all of these small blocks would be read at once."""
  monkeypatch.setattr(tiles_of, "_BLOCK_BYTES", 2 * 4 * 6 * D)


def test_nll_equals_naive_for_every_class():
  args = model()
  ids_NP = jnp.tile(jnp.arange(V + 1), (N, 1))
  nll_NP = jax.jit(two_level_nll)(*args, ids_NP)
  np.testing.assert_allclose(nll_NP[:, :V], -dense(*args), rtol=1e-5, atol=1e-5)
  assert not nll_NP[:, V].any()


def test_gradients_equal_those_of_the_naive_loss():
  x_ND, clusters_KD, leaves_KSD, where = model()
  rng = np.random.default_rng(1)
  # A class twice, one without weight in a cluster of its own, padding.
  ids_NP = jnp.array([[0, 0, 3], [5, V, V], [V, V, V], [9, 1, 4], [2, 3, V]])
  w_NP = jnp.asarray(rng.uniform(0.1, 1, (N, 3)), jnp.float32)
  w_NP = jnp.where(ids_NP < V, w_NP, 0).at[3, 2].set(0)

  def naive(x_ND, clusters_KD, leaves_KSD):
    log_p_NV = log_p_naive(x_ND, clusters_KD, leaves_KSD, where)
    log_p_NP = jnp.take_along_axis(log_p_NV, ids_NP, 1, mode="fill", fill_value=0)
    return -jnp.sum(w_NP * log_p_NP)

  tables = x_ND, clusters_KD, leaves_KSD
  loss, grads = jax.jit(two_level_loss)(*tables, where, ids_NP, w_NP)
  want, d = jax.jit(jax.value_and_grad(naive, (0, 1, 2)))(*tables)
  dx_ND, dclusters_KD, dleaves_KSD = d
  np.testing.assert_allclose(loss, want, rtol=1e-5)
  np.testing.assert_allclose(grads.x_ND, dx_ND, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(grads.clusters_KD, dclusters_KD, rtol=1e-4, atol=1e-5)
  ids_M, d_MS, x_MD, _ = grads.leaves
  rows_MSD = d_MS[:, :, None] * x_MD[:, None, :]
  got_KSD = jnp.zeros_like(leaves_KSD).at[ids_M].add(rows_MSD, mode="drop")
  np.testing.assert_allclose(got_KSD, dleaves_KSD, rtol=1e-4, atol=1e-5)
  # Of the third cluster only class 4 is true, and it has no weight.
  assert set(np.asarray(ids_M)) == {0, 1, 3}


def test_bfloat16_rounds_the_operands_and_sums_in_float32():
  """With operands that bfloat16 holds exactly, the loss is that of float32; so are
  gradients, but for the rounding of those of the logits."""
  x_ND, clusters_KD, leaves_KSD, where = model()
  half = lambda a: a.astype(jnp.bfloat16).astype(jnp.float32)
  tables = half(x_ND), half(clusters_KD), half(leaves_KSD)
  ids_NP, w_NP = jnp.arange(N)[:, None], jnp.full((N, 1), 1 / N)
  loss_of = jax.jit(two_level_loss, static_argnames="dtype")
  nll_of = jax.jit(two_level_nll, static_argnames="dtype")
  loss, got = loss_of(*tables, where, ids_NP, w_NP, dtype="bfloat16")
  nll_NP = nll_of(*tables, where, ids_NP, dtype="bfloat16")
  want_loss, want = loss_of(*tables, where, ids_NP, w_NP)
  np.testing.assert_allclose(loss, want_loss, rtol=1e-6)
  np.testing.assert_allclose(nll_NP.mean(), want_loss, rtol=1e-6)
  np.testing.assert_allclose(got.leaves.d_MS, want.leaves.d_MS, atol=1e-6)
  for x, z in [(got.x_ND, want.x_ND), (got.clusters_KD, want.clusters_KD)]:
    assert x.dtype == jnp.float32
    error = np.abs(x - z).max() / np.abs(z).max()
    assert 1e-5 < error < float(jnp.finfo(jnp.bfloat16).eps)
  rounded, _ = loss_of(x_ND, *tables[1:], where, ids_NP, w_NP, dtype="bfloat16")
  np.testing.assert_array_equal(rounded, loss)  # x_ND is rounded, if it has not been


cut_tiles = jax.jit(tiles, static_argnums=(1, 2))


def test_tiles_hold_every_example_once_with_its_group():
  rng = np.random.default_rng(0)
  for num, K, size in [(40, 6, 4), (7, 30, 8)]:
    group_N = rng.integers(0, K + 1, num)  # the last is none
    cut = jax.tree.map(np.asarray, cut_tiles(group_N, K, size))
    held = []
    for group, row, at_T in zip(cut.group_A, cut.row_A, cut.at_AT, strict=True):
      at = at_T[at_T < num]
      held += at.tolist()
      assert (group_N[at] == group).all()
      assert not len(at) or cut.ids_R[row] == group
    assert sorted(held) == np.flatnonzero(group_N < K).tolist()
    assert len(set(cut.ids_R.tolist())) == len(cut.ids_R)


@pytest.mark.parametrize("at_once", [2, 100])
def test_over_tiles_visits_all_tiles(at_once):
  cut = cut_tiles(np.array([2, 0, 2, 2, 9, 1, 1, 1]), 3, 2)
  assert cut.num == 5

  @jax.jit
  def add(so_far, part):
    num, seen_N = so_far
    return num + 1, seen_N.at[part.at_AT].add(1, mode="drop")

  num, seen_N = over_tiles(add, (0, jnp.zeros(8, int)), cut, at_once)
  assert num == -(-5 // min(at_once, len(cut.group_A)))
  assert seen_N.tolist() == [1, 1, 1, 1, 0, 1, 1, 1]


@pytest.mark.parametrize(("k", "size"), [(4, 2), (V, 1)])
def test_top_k_equals_dense_sorting(k, size):
  args = model()
  ids_NK, log_p_NK = two_level_top_k(*args, k, size=size)
  want_NK, want_ids_NK = jax.lax.top_k(dense(*args), k)
  np.testing.assert_array_equal(ids_NK, want_ids_NK)
  np.testing.assert_allclose(log_p_NK, want_NK, rtol=1e-5, atol=1e-5)


def test_smaller_id_comes_first_among_equally_likely_classes():
  x_ND, clusters_KD, leaves_KSD, where = model(cluster_V=np.array([2, 0, 1, 0, 2, 1]))
  same = jnp.zeros_like(clusters_KD), jnp.zeros_like(leaves_KSD)
  ids_NK, log_p_NK = two_level_top_k(x_ND, *same, where, 5, size=1)
  assert ids_NK.tolist() == [[0, 1, 2, 3, 4]] * N
  np.testing.assert_allclose(jnp.exp(log_p_NK), 1 / 6, rtol=1e-6)


@pytest.mark.parametrize("k", [0, V + 1])
def test_k_outside_the_classes_is_refused(k):
  with pytest.raises(ValueError, match="k must be in 1"):
    two_level_top_k(*model(), k)


def test_top_k_never_holds_all_logits():
  num, S = 256, 200
  where = layout(np.arange(S * S) // S)
  f = jax.jit(lambda *args: two_level_top_k(*args, 5))
  tables = jnp.zeros((num, D)), jnp.zeros((S, D)), jnp.zeros((S, S, D))
  compiled = f.lower(*tables, where).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < 4 * num * S * S


def test_mismatched_shapes_are_named():
  x_ND, clusters_KD, leaves_KSD, where = model()
  ids_NP = jnp.zeros((len(x_ND), 1), jnp.int32)
  with pytest.raises(ValueError, match="leaves_KSD"):
    two_level_nll(x_ND, clusters_KD, leaves_KSD[:, 1:], where, ids_NP)
