"""Tests specific to the hierarchical softmax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Hierarchical
from largevocab.labels import as_counts, single_targets
from largevocab.rows import SGD, Adam
from tests.heads.compiled import backward, update
from tests.long import others_long
from tests.ops.tree.naive import log_p_naive

N, V, D = 6, 12, 3
KEY = jax.random.key(0)
COUNTS = np.arange(V, 0, -1)
UNEVEN_V = np.array([0, 1, 1, 1, 4, 4, 1, 1, 4, 0, 1, 4], np.int32)


@functools.partial(jax.jit, static_argnums=0)
def dense_log_p(head, state, h_ND):
  return log_p_naive(head.features(h_ND), *state.model)


def batch(seed=0, ids=None):
  rng = np.random.default_rng(seed)
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  ids_N = rng.integers(0, V, N) if ids is None else np.asarray(ids)
  return h_ND, single_targets(ids_N, rng.uniform(0.2, 1, N))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
  path = tmp_path_factory.mktemp("clusters") / "clusters.npy"
  np.save(path, UNEVEN_V)
  return str(path)


@pytest.mark.parametrize(("num", "sizes"), [(0, [3, 3, 3, 3]), (5, [3, 2, 3, 2, 2])])
def test_classes_are_cut_by_count_into_equal_clusters(num, sizes):
  cluster_V = Hierarchical(num_clusters=num).cluster_of(as_counts(COUNTS[::-1]))
  assert np.bincount(cluster_V).tolist() == sizes
  assert (np.diff(cluster_V) <= 0).all()  # the last is the most frequent


def test_surplus_clusters_leave_one_class_per_cluster():
  state = Hierarchical(num_clusters=99).init(KEY, COUNTS, D)
  assert state.members_KS.shape == (V, 1)


def test_file_assigns_classes_to_clusters(uneven):
  state = Hierarchical(clusters=uneven).init(KEY, COUNTS, D)
  members = [set(m[m < V].tolist()) for m in np.asarray(state.members_KS)]
  assert members == [set(np.flatnonzero(c == UNEVEN_V)) for c in (0, 1, 4)]
  assert state.members_KS.dtype == jnp.int32


def naive_loss(params, head, state, h_ND, y):
  state = state._replace(
    clusters=state.clusters._replace(w_VD=params[0]),
    leaves=state.leaves._replace(w_VD=params[1]),
  )
  log_p_N = dense_log_p(head, state, h_ND)[jnp.arange(N), y.ids_NP[:, 0]]
  return -jnp.sum(y.w_NP[:, 0] * log_p_N) / jnp.sum(y.w_NP)


def test_updates_equal_those_of_the_dense_gradient(uneven):
  head = Hierarchical(clusters=uneven, init_scale=1.0)
  state = dense = head.init(KEY, COUNTS, D)
  gradient = jax.jit(jax.grad(naive_loss), static_argnums=1)
  dense_update = jax.jit(head.optimizer.dense_update)
  for seed in range(3):
    h_ND, y = batch(seed)
    state = update(head, state, backward(head, state, h_ND, y, KEY).grads, 0.5, 0.7)
    params = dense.clusters.w_VD, dense.leaves.w_VD
    clusters_KD, leaves_KD = gradient(params, head, dense, h_ND, y)
    dense = dense._replace(
      clusters=dense_update(dense.clusters, clusters_KD, 0.5, 0.7),
      leaves=dense_update(dense.leaves, leaves_KD, 0.5, 0.7),
    )
  np.testing.assert_allclose(state.clusters.w_VD, dense.clusters.w_VD, atol=1e-5)
  np.testing.assert_allclose(state.leaves.w_VD, dense.leaves.w_VD, atol=1e-5)


def test_only_clusters_with_a_weighted_class_move(uneven):
  """Includes an optimiser that moves rows whose gradient is zero."""
  head = Hierarchical(clusters=uneven, optimizer=Adam())
  state = head.init(KEY, COUNTS, D)
  for seed, ids in enumerate([range(N), [1, 2, 3, 1, 2, 0]]):
    h_ND, y = batch(seed, ids)
    y = y._replace(w_NP=y.w_NP.at[-1].set(0)) if seed else y
    before = state
    state = update(head, state, backward(head, state, h_ND, y, KEY).grads, 0.1, 1.0)
  moved_K = (state.leaves.w_VD != before.leaves.w_VD).any(axis=1)
  assert moved_K.tolist() == [False, True, False]


def test_free_slots_and_padding_columns_do_not_change(uneven):
  head = Hierarchical(clusters=uneven, init_scale=1.0)
  first = state = head.init(KEY, COUNTS, D)
  for seed in range(2):
    y = batch(seed, range(seed, seed + N))
    state = update(head, state, backward(head, state, *y, KEY).grads, 0.5, 1.0)
  is_free_KS = np.asarray(state.members_KS == V)
  rows, first_rows = state.model[1], first.model[1]
  assert is_free_KS.sum() == 3 * 6 - V
  np.testing.assert_array_equal(rows[is_free_KS], first_rows[is_free_KS])
  assert (rows != first_rows)[~is_free_KS].any()
  assert rows[:, :, D].any()
  assert not rows[:, :, D + 1 :].any()


@pytest.mark.parametrize("optimizer", others_long([SGD(), Adam()], [SGD()]))
def test_step_holds_no_dense_gradient_and_no_copy_of_the_table(optimizer):
  head, num = Hierarchical(optimizer=optimizer), 200_000
  state = jax.eval_shape(lambda: head.init(KEY, np.ones(num, int), 64))

  def step(state, h_ND, y):
    out = head.backward(state, h_ND, y, KEY)
    return head.update(state, out.grads, 0.1, 1.0), out.dh_ND, out.sq_norm

  args = jnp.ones((256, 64)), single_targets(np.arange(256) * 700)
  memory = jax.jit(step, donate_argnums=0).lower(state, *args).compile()
  memory = memory.memory_analysis()
  assert memory.alias_size_in_bytes >= 4 * num * 64
  assert memory.temp_size_in_bytes < num * 64


def test_class_rows_say_which_class_is_likelier(uneven):
  """Within a cluster, differences of log p are those of the rows' products."""
  head = Hierarchical(clusters=uneven, init_scale=1.0)
  state = head.init(KEY, COUNTS, D)
  state = update(head, state, backward(head, state, *batch(), KEY).grads, 0.5, 1.0)
  h_ND, _ = batch(1)
  rows_RD = head.class_rows(state, jnp.array([1, 6]))
  log_p_NV = dense_log_p(head, state, h_ND)
  odds_N = head.features(h_ND) @ (rows_RD[0] - rows_RD[1])
  np.testing.assert_allclose(odds_N, log_p_NV[:, 1] - log_p_NV[:, 6], atol=1e-5)
  np.testing.assert_allclose(
    rows_RD[0], state.clusters.w_VD[1] + state.model[1][1, 0], atol=1e-6
  )


@pytest.mark.parametrize(
  ("cluster_V", "says"),
  [
    (UNEVEN_V[:-1], r"shape \(11,\), but there are 12 classes"),
    (np.where(np.arange(V) == 7, -2, UNEVEN_V), "class 7 into cluster -2"),
    (UNEVEN_V.astype(float), "array of integers"),
  ],
)
def test_invalid_clusters_are_refused(cluster_V, says, tmp_path):
  np.save(tmp_path / "c.npy", cluster_V)
  head = Hierarchical(clusters=str(tmp_path / "c.npy"))
  with pytest.raises(UserError, match=f"head.clusters.*{says}"):
    head.init(KEY, COUNTS, D)


def test_clusters_of_very_uneven_size_are_refused(tmp_path):
  # The first `num` classes are together, the others alone.
  together = lambda num: np.maximum(np.arange(300) - num + 1, 0)
  head = Hierarchical(clusters=str(tmp_path / "c.npy"))
  np.save(tmp_path / "c.npy", together(91))  # 19,110 slots for 300 classes
  assert head.init(KEY, np.ones(300, int), D).members_KS.shape == (210, 91)
  np.save(tmp_path / "c.npy", together(92))
  with pytest.raises(UserError, match=r"209 clusters of up to 92 .*more than 64"):
    head.init(KEY, np.ones(300, int), D)


def test_missing_or_invalid_file_is_named(tmp_path):
  path = tmp_path / "c.npy"
  with pytest.raises(UserError, match=r"c\.npy is missing"):
    Hierarchical(clusters=str(path)).init(KEY, COUNTS, D)
  for content in ("0 1 2", ""):
    path.write_text(content)
    with pytest.raises(UserError, match=r"c\.npy is not a \.npy file"):
      Hierarchical(clusters=str(path)).init(KEY, COUNTS, D)


def test_conflicting_settings_are_refused():
  with pytest.raises(UserError, match=r"^Hierarchical\.num_clusters is -1; it must"):
    Hierarchical(num_clusters=-1)
  with pytest.raises(UserError, match="set only one of them"):
    Hierarchical(num_clusters=3, clusters="c.npy")
