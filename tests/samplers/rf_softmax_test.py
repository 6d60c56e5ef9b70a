"""Random features: what they are the mean of, and negative sums in the tree."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, single_targets
from largevocab.ops.draws import feature_tree, sumtree
from largevocab.samplers import RFSoftmax
from tests.long import others_long

V, N, D, M = 40, 6, 5, 8
RNG = np.random.default_rng(0)
W_VD = jnp.asarray(RNG.normal(size=(V, D)), jnp.float32)
H_ND = jnp.asarray(RNG.normal(size=(N, D)), jnp.float32)
Y = single_targets(np.zeros(N, int))
COUNTS = Counts(np.ones(V, int))
KINDS = ["fourier", "positive"]
TREE = {"leaf_size": 5, "dense_levels": 0}


def law_of(sampler, stats):
  log = jax.jit(sampler.log_expected)(stats, W_VD, H_ND, Y, jnp.arange(V))
  return np.exp(np.float64(log)) / stats.size.m


def cosines():
  unit = lambda x: np.float64(x) / np.linalg.norm(np.float64(x), axis=1, keepdims=True)
  return unit(H_ND) @ unit(W_VD).T


@pytest.mark.parametrize(
  ("kind", "absolute"),
  others_long(
    itertools.product(KINDS, [False, True]), [(KINDS[0], True), (KINDS[1], False)]
  ),
)
def test_mean_of_the_features_is_the_gaussian_kernel(kind, absolute):
  sampler = RFSoftmax(nu=0.5, kind=kind, num_features=1 << 15, absolute=absolute)
  stats = sampler.init(COUNTS, W_VD, M)
  phi_NF = np.float64(sampler.nodes(stats, H_ND).query_NF)[:, :-1]
  got_NV = phi_NF @ np.float64(sampler.features(stats).of_rows(W_VD)).T
  cos_NV = cosines()
  want_NV = np.exp(0.5 * (cos_NV - 1))
  if absolute:
    want_NV += np.exp(0.5 * (-cos_NV - 1))
  # A product of two positive features has a variance of e^2 - 1 if cos = 1.
  error = 6 * np.sqrt((np.exp(2) if kind == "positive" else 1) / (1 << 14))
  assert np.abs(got_NV - want_NV).max() < error
  assert np.abs(got_NV - np.exp(2 * (cos_NV - 1))).max() > 2 * error


@pytest.mark.parametrize("kind", others_long(KINDS, KINDS[1:]))
def test_law_with_many_features_is_the_softmax_of_cosines(kind):
  """It is further away with few features; without normalisation it differs."""
  p_NV = np.exp(2 * cosines())
  p_NV /= p_NV.sum(axis=1, keepdims=True)
  far = []
  for num in (4, 1 << 13):
    sampler = RFSoftmax(nu=2.0, kind=kind, num_features=num, **TREE)
    law_NV = law_of(sampler, sampler.init(COUNTS, W_VD, M))
    np.testing.assert_allclose(law_NV.sum(axis=1), 1, rtol=1e-5)
    far.append(np.abs(law_NV - p_NV).sum(axis=1).mean() / 2)
  assert far[1] < 0.05 < far[0]
  other_NV = np.exp(2 * np.float64(H_ND @ W_VD.T))
  other_NV /= other_NV.sum(axis=1, keepdims=True)
  assert np.abs(other_NV - p_NV).sum(axis=1).mean() / 2 > 0.3


def test_negative_sums_are_clipped_and_estimates_are_unbiased(chi_square):
  """With few features, branches of negative sums are taken as often as reported."""
  sampler = RFSoftmax(nu=4.0, num_features=4, **TREE)
  m = 20_000
  stats = sampler.init(COUNTS, W_VD, m)
  nodes = np.concatenate([stats.tree.top_CF, stats.tree.below_SF])
  of_batch = sampler.nodes(stats, H_ND)
  dot = np.float64(of_batch.query_NF) @ nodes.T
  least, most = np.exp(-8) * nodes[:, -1], nodes[:, -1]
  assert (dot < 0).any()
  weight = jnp.broadcast_to(nodes[:, -1], dot.shape)
  mass = of_batch.mass(jnp.asarray(dot), weight)
  np.testing.assert_allclose(mass, np.clip(dot, least, most), rtol=1e-5)
  law_NV = law_of(sampler, stats)
  assert (law_NV > 0).all()
  draw = jax.jit(sampler.sample)(stats, W_VD, jax.random.key(1), H_ND, Y)
  shifted_NV = np.roll(law_NV, 1, axis=1)
  for n in range(N):
    assert chi_square(draw.ids[n], law_NV[n]) > 1e-4
    assert chi_square(draw.ids[n], shifted_NV[n]) < 1e-4


def test_many_updates_equal_a_rebuild_and_rows_of_zeros_are_drawn():
  sampler = RFSoftmax(num_features=6, **TREE)
  start = W_VD.at[3].set(0)
  stats = sampler.init(COUNTS, start, M)
  ids_R = jnp.array([4, V, 3, 17])
  features = sampler.features(stats)
  update = jax.jit(
    lambda tree, *rows: feature_tree.corrected(tree, features, V, ids_R, *rows)
  )
  old_RD = start[jnp.minimum(ids_R, V - 1)]
  for i in range(50):
    new_RD = jax.random.normal(jax.random.key(i), (4, D))
    stats = stats._replace(tree=update(stats.tree, old_RD, new_RD))
    old_RD = new_RD
  now = start.at[ids_R].set(old_RD, mode="drop")
  stats = stats._replace(norm_V=sampler.refresh(stats, now, None).norm_V)
  want = sampler.refresh(stats, now, None)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), stats.tree, want.tree
  )
  assert sumtree.depth(stats.tree) == 3
  zeros = sampler.init(COUNTS, jnp.zeros((V, D)), M)
  np.testing.assert_allclose(law_of(sampler, zeros).sum(axis=1), 1, rtol=1e-5)


def test_invalid_settings_are_refused():
  with pytest.raises(UserError, match=r"head\.absolute"):
    Sampled(sampler=RFSoftmax(absolute=True))
  with pytest.raises(UserError, match="kind is 'sine'; it must be one of fourier, pos"):
    RFSoftmax(kind="sine")
  assert RFSoftmax(num_features=5).init(COUNTS, W_VD, M).direction_DK.shape == (D, 3)
