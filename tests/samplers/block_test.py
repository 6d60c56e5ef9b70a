"""Shares of blocks, estimated from moments of rows, and their updates."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.labels import Counts, single_targets
from largevocab.samplers import Block
from tests.long import others_long
from tests.samplers.changes import change_rows
from tests.samplers.compiled import log_expected, sample

N, D, M = 4, 8, 50
KEY = jax.random.key(0)
Y = single_targets(jnp.zeros(N, int))


log_blocks = jax.jit(lambda s, *args: s.log_blocks(*args), static_argnums=0)


def normal_blocks(num_blocks, size, seed=0):
  """Normal rows, with a mean and deviations for each block."""
  rng = np.random.default_rng(seed)
  mean_B1D = 0.6 * rng.normal(size=(num_blocks, 1, D))
  deviation_B1D = rng.uniform(0.05, 0.6, (num_blocks, 1, D))
  rows_BED = mean_B1D + deviation_B1D * rng.normal(size=(num_blocks, size, D))
  h_ND = rng.normal(size=(N, D))
  return jnp.asarray(rows_BED.reshape(-1, D), jnp.float32), jnp.asarray(h_ND, "f")


def counts(num_classes, seed=3):
  return Counts(np.random.default_rng(seed).integers(0, 1000, num_classes))


def shares_of_blocks(sampler, stats, h_ND):
  num_blocks = sampler.num_blocks(stats)
  block_NB = jnp.broadcast_to(jnp.arange(num_blocks), (len(h_ND), num_blocks))
  return np.exp(np.float64(log_blocks(sampler, stats, h_ND, block_NB)))


def exact_shares(w_VD, h_ND, num_blocks, absolute=False):
  o_NV = np.float64(h_ND) @ np.float64(w_VD).T
  e_NV = np.exp(np.abs(o_NV) if absolute else o_NV)
  p_NV = e_NV / e_NV.sum(-1, keepdims=True)
  return p_NV.reshape(len(h_ND), num_blocks, -1).sum(-1)


def law(sampler, stats, w_VD, h_ND):
  ids_V = jnp.arange(len(w_VD))
  log_expected_NV = log_expected(sampler, stats, w_VD, h_ND, Y, ids_V)
  return np.exp(np.float64(log_expected_NV)) / stats.size.m


@pytest.mark.parametrize("absolute", [False, True])
def test_shares_equal_those_of_the_softmax_for_normal_blocks(absolute):
  num_blocks, size = 12, 4000
  w_VD, h_ND = normal_blocks(num_blocks, size)
  sampler = Block(leaf_size=size, absolute=absolute)
  stats = sampler.init(counts(len(w_VD)), w_VD, M)
  assert sampler.num_blocks(stats) == num_blocks
  want_NB = exact_shares(w_VD, h_ND, num_blocks, absolute)
  assert want_NB.max(-1).min() > 2 * want_NB.min(-1).max()  # they are told apart
  error = lambda stats: np.abs(
    np.log(shares_of_blocks(sampler, stats, h_ND) / want_NB)
  ).max()
  # Neither the mean nor the variance alone would do.
  means_only = stats._replace(square_BD=jnp.zeros_like(stats.square_BD))
  centred = stats.square_BD - jnp.square(stats.sum_BD) / size
  variances_only = stats._replace(sum_BD=0 * stats.sum_BD, square_BD=centred)
  assert error(stats) < 0.05 < min(error(means_only), error(variances_only))


@pytest.mark.parametrize("num_classes", others_long([37, 120, 121], [121]))
def test_moments_equal_those_of_the_rows_after_200_updates(num_classes):
  sampler = Block(leaf_size=10)
  w_VD, h_ND = normal_blocks(num_classes, 1)
  first = sampler.init(counts(num_classes), w_VD, M)
  stats, w_VD, _ = change_rows(sampler, first, w_VD, steps=200, rows=5, keep=1.0)
  refreshed = sampler.refresh(stats, w_VD, KEY)
  moments = lambda stats: (stats.sum_BD, stats.square_BD)
  for kept, anew, old in zip(*map(moments, (stats, refreshed, first)), strict=True):
    np.testing.assert_allclose(kept, anew, rtol=2e-5, atol=2e-4)
    assert np.abs(anew - old).max() > 1
  np.testing.assert_allclose(
    law(sampler, stats, w_VD, h_ND), law(sampler, refreshed, w_VD, h_ND), rtol=5e-3
  )
  size = -(-num_classes // sampler.num_blocks(stats))
  for b in range(sampler.num_blocks(stats)):
    rows = np.float64(w_VD[b * size : (b + 1) * size])
    assert float(refreshed.weight_B[b]) == len(rows)
    np.testing.assert_allclose(refreshed.sum_BD[b], rows.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(refreshed.square_BD[b], (rows**2).sum(0), rtol=1e-4)


def test_padding_alone_changes_nothing():
  sampler = Block(leaf_size=10)
  w_VD, _ = normal_blocks(37, 1)
  stats = sampler.init(counts(37), w_VD, M)
  ids_R = jnp.array([37, 38, np.iinfo(np.int32).max])
  rows_RD = jnp.ones((3, D))
  updated = sampler.update(stats, w_VD, ids_R, rows_RD, 7 * rows_RD)
  jax.tree.map(np.testing.assert_array_equal, updated, stats)


def test_counts_do_not_depend_on_the_rows():
  sampler = Block(leaf_size=10, mass="unigram", smoothing=0.5)
  w_VD, h_ND = normal_blocks(37, 1)
  occurrences = counts(37)
  first = sampler.init(occurrences, w_VD, M)
  stats, w_VD, _ = change_rows(sampler, first, w_VD, steps=5, rows=5, keep=1.0)
  stats = sampler.refresh(stats, w_VD, KEY)
  assert stats.sum_BD is stats.square_BD is None
  np.testing.assert_array_equal(stats.weight_B, first.weight_B)
  smooth_V = occurrences.unigram_V + 0.5
  want_B = np.array([smooth_V[i : i + 10].sum() for i in range(0, 37, 10)])
  want_NB = np.broadcast_to(want_B / want_B.sum(), (N, 4))
  np.testing.assert_allclose(shares_of_blocks(sampler, stats, h_ND), want_NB, rtol=1e-5)


@pytest.mark.parametrize(
  ("mass", "absolute"),
  others_long(
    itertools.product(["gaussian", "unigram"], [False, True]),
    [("gaussian", True), ("unigram", False)],
  ),
)
def test_classes_in_a_block_are_drawn_by_the_current_rows(mass, absolute, chi_square):
  sampler = Block(leaf_size=10, mass=mass, absolute=absolute)
  w_VD, h_ND = normal_blocks(37, 1)
  m = 20_000
  stats = sampler.init(counts(37), w_VD, m)
  new_VD = w_VD + normal_blocks(37, 1, seed=5)[0]  # and the moments are not told
  q_NV = law(sampler, stats, new_VD, h_ND)
  np.testing.assert_allclose(q_NV.sum(-1), 1, rtol=2e-6)
  blocks_NB = shares_of_blocks(sampler, stats, h_ND)
  o_NV = np.float64(h_ND) @ np.float64(new_VD).T
  e_NV = np.exp(np.abs(o_NV) if absolute else o_NV)
  for b in range(4):
    own = slice(10 * b, 10 * b + 10)
    want_NE = e_NV[:, own] / e_NV[:, own].sum(-1, keepdims=True)
    got_NE = q_NV[:, own] / blocks_NB[:, b : b + 1]
    np.testing.assert_allclose(got_NE, want_NE, rtol=1e-5, atol=1e-9)  # parts of 2^31
  draw = sample(sampler, stats, new_VD, KEY, h_ND, Y)
  old_NV = law(sampler, stats, w_VD, h_ND)
  for ids_M, q_V, old_V in zip(draw.ids, q_NV, old_NV, strict=True):
    assert chi_square(ids_M, q_V) > 1e-4
    assert chi_square(ids_M, old_V) < 1e-4


def test_empty_blocks_are_never_drawn():
  """17 classes in 12 blocks of 2: the last three hold none."""
  w_VD, h_ND = normal_blocks(17, 1)
  for mass in ("gaussian", "unigram"):
    sampler = Block(mass=mass)
    stats = sampler.init(counts(17), w_VD, M)
    weight_B = jnp.array([2.0] * 8 + [1.0] + [0.0] * 3)
    stats = sampler.refresh(stats._replace(weight_B=weight_B), w_VD, KEY)
    share_NB = shares_of_blocks(sampler, stats, h_ND)
    np.testing.assert_array_equal(share_NB > 0, np.tile(weight_B > 0, (N, 1)))
    np.testing.assert_allclose(law(sampler, stats, w_VD, h_ND).sum(-1), 1, rtol=2e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_refresh_sums_blocks_and_makes_no_table(dtype):
  """There are more rows than in one chunk, and the last chunk overlaps another."""
  V, width = 50_001, 16
  w_VD = jax.random.normal(KEY, (V, width), dtype)
  sampler = Block(leaf_size=500)
  stats = sampler.init(counts(V), w_VD, M)
  refresh = jax.jit(sampler.refresh).lower(stats, w_VD, KEY).compile()
  if dtype == "float32":  # of shorter rows XLA makes a table of float32 on a CPU
    assert refresh.memory_analysis().temp_size_in_bytes < 4 * V * width / 2
  stats = refresh(stats, w_VD, KEY)
  blocks = sampler.num_blocks(stats)
  rows_BED = np.zeros((blocks * -(-V // blocks), width))
  rows_BED[:V] = np.asarray(w_VD, np.float64)
  rows_BED = rows_BED.reshape(blocks, -1, width)
  np.testing.assert_allclose(stats.sum_BD, rows_BED.sum(1), rtol=1e-5, atol=2e-4)
  np.testing.assert_allclose(stats.square_BD, (rows_BED**2).sum(1), rtol=1e-5)


def test_activations_of_any_size_give_a_finite_law():
  sampler = Block(leaf_size=10)
  w_VD, h_ND = normal_blocks(37, 1)
  stats = sampler.init(counts(37), w_VD, M)
  for scale in (0.0, 1e-20, 1e4, 1e8):
    draw = sample(sampler, stats, w_VD, KEY, scale * h_ND, Y)
    assert np.isfinite(draw.log_expected).all()
    q_NV = law(sampler, stats, w_VD, scale * h_ND)
    np.testing.assert_allclose(q_NV.sum(-1), 1, rtol=2e-6)


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    (
      {"mass": "normal"},
      "^Block.mass is 'normal'; it must be one of gaussian, uni",
    ),
    ({"leaf_size": -1}, "^Block.leaf_size is -1; it must"),
  ],
)
def test_bad_fields_are_named(fields, message):
  with pytest.raises(UserError, match=message):
    Block(**fields)
