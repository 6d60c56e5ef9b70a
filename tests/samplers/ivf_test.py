"""Exact sets from an index: any set is unbiased, and a good one has little variance."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.heads.sampled_state import SampledState
from largevocab.labels import Counts, single_targets
from largevocab.samplers import IVF, PPS
from tests.samplers.compiled import sample

KEY = jax.random.key(0)
D = 16


def clustered(num_blobs, size, n, seed=0, scale=8.0):
  """Rows around as many directions; activations each near one row, so that its logits
  are peaked; counts that tell nothing."""
  rng = np.random.default_rng(seed)
  V = num_blobs * size
  unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
  centre_BD = unit(rng.normal(size=(num_blobs, D)))
  blob_V = rng.permutation(np.repeat(np.arange(num_blobs), size))
  w_VD = unit(centre_BD[blob_V] + 0.08 * rng.normal(size=(V, D)))
  true_N = rng.integers(0, V, n)
  h_ND = scale * unit(w_VD[true_N] + 0.08 * rng.normal(size=(n, D)))
  as_f32 = lambda x: jnp.asarray(x, jnp.float32)
  return Counts(np.full(V, 5)), as_f32(w_VD), as_f32(h_ND), single_targets(true_N)


@functools.partial(jax.jit, static_argnames="sampler")
def z_of_draws(sampler, stats, w_VD, keys, h_ND, y):
  """Z~ / Z of each example alone in each draw, from the loss of a head: f32[R, N]."""
  m = getattr(stats, "tail", stats).size.m
  head = Sampled(sampler=sampler, num_samples=m, bias=False)
  state = SampledState(head.optimizer.init(w_VD), stats, None, None)

  def of_example(key, h_D, y):
    h_1D, y = jax.tree.map(lambda a: a[None], (h_D, y))
    o_V = w_VD @ h_D
    loss = head.backward(state, h_1D, y, key).loss
    return jnp.exp(loss + o_V[y.ids_NP[0, 0]] - jax.nn.logsumexp(o_V))

  of_all = lambda key: jax.vmap(of_example, (None, 0, 0))(key, h_ND, y)
  return jax.lax.map(of_all, keys, batch_size=64)


@functools.partial(jax.jit, static_argnames="sampler")
def unmasked_z_of_draws(sampler, stats, w_VD, keys, h_ND, y):
  """The same if exact classes count again when they are drawn."""

  def of_example(key, h_D, y):
    h_1D, y = jax.tree.map(lambda a: a[None], (h_D, y))
    draw, e_V = sampler.sample(stats, w_VD, key, h_1D, y), jnp.exp(w_VD @ h_D)
    is_exact_V = jnp.zeros(len(w_VD)).at[draw.exact_ids].set(1, mode="drop")
    is_exact_V = is_exact_V.at[y.ids_NP[0, 0]].set(1)
    drawn_M = jnp.where(draw.mask, e_V[draw.ids] * jnp.exp(-draw.log_expected), 0)
    return (is_exact_V @ e_V + drawn_M.sum()) / e_V.sum()

  of_all = lambda key: jax.vmap(of_example, (None, 0, 0))(key, h_ND, y)
  return jax.lax.map(of_all, keys, batch_size=64)


def is_unbiased(z_RN):
  """Whether the estimate of each example is unbiased."""
  z_RN = np.float64(z_RN)
  error_N = z_RN.std(0) / np.sqrt(len(z_RN))
  return np.abs(z_RN.mean(0) - 1) < 4.5 * error_N + 1e-5


def keys(num):
  return jax.random.split(jax.random.key(7), num)


def test_exact_set_is_that_of_the_most_promising_clusters():
  sampler = IVF(clusters=10, probes=3)
  counts, w_VD, h_ND, y = clustered(10, 20, 6)
  y = y._replace(w_NP=y.w_NP.at[3:].set(0))  # only three examples have a say
  stats = sampler.init(counts, w_VD, 12)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  exact_S = np.asarray(draw.exact_ids)
  assert len(set(exact_S.tolist())) == len(exact_S) == 3 * 20

  square_VK = ((np.asarray(w_VD)[:, None] - np.asarray(stats.centroids_KD)) ** 2).sum(
    -1
  )
  cluster_V = square_VK.argmin(1)
  size_K = np.bincount(cluster_V, minlength=10)
  e_NK = np.exp(np.float64(h_ND) @ np.float64(stats.centroids_KD).T)
  promise_K = np.asarray(y.w_NP)[:, 0] @ (e_NK / (e_NK @ size_K)[:, None])
  by_promise = np.argsort(-promise_K)
  whole = np.cumsum(size_K[by_promise]) <= len(exact_S)
  assert 1 <= whole.sum() < 9
  last = by_promise[whole.sum()]
  in_K = np.bincount(cluster_V[exact_S], minlength=10)
  assert (in_K[by_promise[whole]] == size_K[by_promise[whole]]).all()
  assert in_K[last] == len(exact_S) - size_K[by_promise[whole]].sum()
  # What these examples find likely is in it; 60 of 200 classes by chance have 0.3.
  p_NV = np.asarray(jax.nn.softmax(h_ND @ w_VD.T))
  assert p_NV[:3, exact_S].sum(1).mean() > 0.7


def test_examples_of_negative_weight_affect_the_ranking():
  sampler = IVF(clusters=10, probes=3)
  counts, w_VD, h_ND, y = clustered(10, 20, 6)
  stats = sampler.init(counts, w_VD, 12)
  first, second = (
    sampler.ranking(stats, h_ND, y._replace(w_NP=sign * y.w_NP)) for sign in (1, -1)
  )
  np.testing.assert_array_equal(first, second)


def test_ranking_by_absolute_logits_ignores_the_sign():
  counts, w_VD, h_ND, y = clustered(10, 20, 1)
  for absolute in (False, True):
    sampler = IVF(clusters=10, probes=1, absolute=absolute)
    stats = sampler.init(counts, w_VD, 12)
    probe = lambda h_ND, s=sampler, stats=stats: int(s.ranking(stats, h_ND, y)[0])
    assert (probe(h_ND) == probe(-h_ND)) == absolute


@pytest.mark.parametrize(
  "sampler",
  [
    pytest.param(IVF(clusters=6, probes=2), marks=pytest.mark.long),
    IVF(clusters=6, probes=5),
    pytest.param(IVF(clusters=30, probes=1), marks=pytest.mark.long),
    pytest.param(IVF(probes=2, power=0.5), marks=pytest.mark.long),
  ],
)
def test_estimate_is_unbiased_for_any_clusters(sampler):
  counts, w_VD, h_ND, y = clustered(6, 10, 4, scale=4.0)
  counts = Counts(np.random.default_rng(2).integers(0, 50, len(w_VD)))
  stats = sampler.init(counts, w_VD, 10)
  for table in (w_VD, w_VD[::-1]):  # also with an index that is out of date
    z_RN = z_of_draws(sampler, stats, table, keys(4000), h_ND, y)
    assert is_unbiased(z_RN).all()
    other_RN = unmasked_z_of_draws(sampler, stats, table, keys(4000), h_ND, y)
    assert not is_unbiased(other_RN).all()
  assert np.std(z_RN, axis=0).max() > 0.06  # there was something to estimate


def test_rest_of_a_cluster_without_room_is_left_to_the_sample():
  """All rows alike: one cluster of all classes."""
  counts, _, h_ND, y = clustered(5, 10, 2)
  counts = Counts(np.arange(50))
  sampler = IVF(clusters=5, probes=2)
  w_VD = jnp.ones((50, D))
  stats = sampler.init(counts, w_VD, 10)
  assert np.diff(stats.members.first_K).max() == 50
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  assert sorted(draw.exact_ids.tolist()) == list(range(20))
  assert is_unbiased(z_of_draws(sampler, stats, w_VD, keys(4000), h_ND, y)).all()


def test_refresh_follows_the_rows_but_update_does_not():
  sampler = IVF(clusters=8, probes=1)
  counts, w_VD, _, _ = clustered(8, 20, 5)
  stats = sampler.init(counts, w_VD, 10)
  new_VD = clustered(8, 20, 5, seed=1)[1]
  ids_V = jnp.arange(len(w_VD))
  assert sampler.update(stats, new_VD, ids_V, w_VD, new_VD) is stats
  for _ in range(4):
    stats = sampler.refresh(stats, new_VD, KEY)

  def error(stats):
    """Mean square distance of the rows from the centroids of their clusters."""
    class_V, first_K = map(np.asarray, stats.members)
    centroids_KD = np.asarray(stats.centroids_KD)
    of_V = np.repeat(centroids_KD, np.diff(first_K), axis=0)
    return ((np.asarray(new_VD)[class_V] - of_V) ** 2).sum(-1).mean()

  stale = sampler.init(counts, w_VD, 10)
  assert error(stats) < 0.3 * error(stale)


def test_peaked_logits_unrelated_to_counts_have_less_variance():
  """With the same number of classes, far less variance than a sample alone."""
  V, m = 2000, 64
  counts, w_VD, h_ND, y = clustered(50, V // 50, 32, scale=25.0)
  y = single_targets((y.ids_NP[:, 0] + 1) % V)  # not the likely one
  sampler, tail = IVF(probes=4), PPS()
  stats = sampler.init(counts, w_VD, m)
  exact_S = sample(sampler, stats, w_VD, KEY, h_ND, y).exact_ids
  budget = m + len(exact_S)
  assert budget < V / 8

  def relvar(sampler, stats):
    """The mean over batches of one example each."""
    batch = lambda h_D, id: z_of_draws(
      sampler, stats, w_VD, keys(64), h_D[None], single_targets(id[None])
    )
    z_NR1 = np.float64(jax.jit(jax.vmap(batch))(h_ND, y.ids_NP[:, 0]))
    return np.mean((z_NR1 - 1) ** 2)

  alone = relvar(tail, tail.init(counts, w_VD, budget))
  assert relvar(sampler, stats) < 0.05 * alone


@pytest.mark.parametrize(
  ("field", "value"),
  [("clusters", -1), ("probes", 0), ("iterations", 0)],
)
def test_invalid_values_are_refused(field, value):
  with pytest.raises(UserError, match=rf"^IVF\.{field} is {value}; it must"):
    IVF(**{field: value})


def test_more_clusters_than_classes_are_accepted():
  counts, w_VD, h_ND, y = clustered(2, 3, 2)
  sampler = IVF(clusters=100, probes=100)
  stats = sampler.init(counts, w_VD, 2)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  assert stats.centroids_KD.shape == (6, D)
  assert sorted(draw.exact_ids.tolist()) == list(range(6))
