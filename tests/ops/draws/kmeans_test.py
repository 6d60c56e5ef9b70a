import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.ops.draws import kmeans

KEY = jax.random.key(0)
nearest = jax.jit(kmeans.nearest, static_argnames="size")
lloyd_step = jax.jit(kmeans.lloyd_step)


def blobs(num_blobs, size, dim=4, seed=0):
  """Rows around far centres, in random order; the blob of each row."""
  rng = np.random.default_rng(seed)
  centre_KD = 5 * rng.normal(size=(num_blobs, dim))
  blob_V = rng.permutation(np.repeat(np.arange(num_blobs), size))
  w_VD = centre_KD[blob_V] + 0.1 * rng.normal(size=(len(blob_V), dim))
  return jnp.asarray(w_VD, jnp.float32), blob_V


def error(w_VD, centroids_KD, cluster_V):
  return float(jnp.mean(jnp.square(w_VD - centroids_KD[cluster_V])))


@pytest.mark.parametrize("size", [1, 7, 50, None])
@pytest.mark.parametrize("num_classes", [1, 33, 64, 96])
def test_nearest_has_the_smallest_distance_in_chunks_of_any_size(num_classes, size):
  rng = np.random.default_rng(0)
  w_VD, centroids_KD = rng.normal(size=(num_classes, 3)), rng.normal(size=(9, 3))
  square_VK = ((w_VD[:, None] - centroids_KD[None]) ** 2).sum(-1)
  as_f32 = lambda x: jnp.asarray(x, jnp.float32)
  found = nearest(as_f32(w_VD), as_f32(centroids_KD), size=size)
  np.testing.assert_array_equal(found, square_VK.argmin(1))
  assert found.dtype == jnp.int32


def test_lloyd_moves_to_the_means():
  w_VD, _ = blobs(5, 20)
  old_KD = kmeans.random_rows(KEY, w_VD, 8)
  cluster_V = np.asarray(nearest(w_VD, old_KD))
  new_KD = lloyd_step(w_VD, old_KD, KEY)
  for k in range(8):
    want_D = np.asarray(w_VD)[cluster_V == k].mean(0)
    np.testing.assert_allclose(new_KD[k], want_D, rtol=1e-5)


def test_means_of_many_rows_do_not_drift():
  """A running sum in float32 would soon round each row."""
  w_VD = jnp.full((300_000, 1), 0.1)
  (mean_K1,) = lloyd_step(w_VD, jnp.zeros((1, 1)), KEY)
  np.testing.assert_allclose(mean_K1, np.float32(0.1), rtol=1e-3)


def test_kmeans_finds_planted_clusters_and_lowers_the_error():
  w_VD, blob_V = blobs(6, 50)
  centroids_KD = kmeans.random_rows(KEY, w_VD, 12)
  errors = []
  for _ in range(4):
    cluster_V = nearest(w_VD, centroids_KD)
    errors.append(error(w_VD, centroids_KD, cluster_V))
    centroids_KD = lloyd_step(w_VD, centroids_KD, KEY)
  assert (np.diff(errors) <= 1e-6).all()
  random_V = jnp.asarray(np.random.default_rng(0).integers(0, 12, len(w_VD)))
  means_KD = jax.ops.segment_sum(w_VD, random_V, 12) / (len(w_VD) / 12)
  assert errors[-1] < 0.1 * error(w_VD, means_KD, random_V)
  # Twice as many clusters as blobs: none of them lies in two.
  assert all(len(set(blob_V[np.asarray(cluster_V) == k])) <= 1 for k in range(12))


def test_empty_clusters_restart_at_some_row():
  w_VD, _ = blobs(3, 10)
  far_KD = jnp.concatenate([w_VD[:2], jnp.full((2, 4), 1e3)])
  new_KD = lloyd_step(w_VD, far_KD, KEY)
  rows = set(map(tuple, np.asarray(w_VD).tolist()))
  assert set(map(tuple, np.asarray(new_KD[2:]).tolist())) <= rows


def test_random_rows_belong_to_different_classes():
  w_VD = jnp.arange(30.0)[:, None]
  rows = kmeans.random_rows(KEY, w_VD, 30)[:, 0]
  assert sorted(rows.tolist()) == w_VD[:, 0].tolist()
  with pytest.raises(ValueError, match="larger"):
    kmeans.random_rows(KEY, w_VD, 31)


members = jax.jit(kmeans.members, static_argnums=1)
first_members = jax.jit(kmeans.first_members, static_argnums=2)


@settings(max_examples=40, deadline=None)
@given(
  st.sampled_from([1, 6, 20]).flatmap(
    lambda V: st.lists(st.integers(0, 4), min_size=V, max_size=V)
  ),
  st.permutations(range(5)),
)
def test_members_are_listed_by_cluster(clusters, order):
  found = members(jnp.asarray(clusters, jnp.int32), 5)
  assert found.class_V.dtype == found.first_K.dtype == jnp.int32
  want = [[c for c, k in enumerate(clusters) if k == cluster] for cluster in range(5)]
  for k in range(5):
    got = found.class_V[found.first_K[k] : found.first_K[k + 1]]
    assert got.tolist() == want[k]
  num = (len(clusters) + 1) // 2
  first = first_members(found, jnp.asarray(order, jnp.int32), num)
  assert first.dtype == jnp.int32
  assert first.tolist() == [c for k in order for c in want[k]][:num]


def test_no_array_of_rows_by_clusters_is_held():
  w_VD, centroids_KD = jnp.zeros((40_000, 8)), jnp.zeros((500, 8))
  step = lloyd_step.lower(w_VD, centroids_KD, KEY).compile()
  assert step.memory_analysis().temp_size_in_bytes < 4 * 40_000 * 500 / 5
