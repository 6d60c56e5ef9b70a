"""Gradients of blocks as factors, against all blocks at once in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.ops.tree import blocks, tiles
from largevocab.ops.tree.blocks import BlockGrads, fold_blocks, joined_blocks, sq_norm
from largevocab.rows import accumulate

K, S, D = 7, 3, 4


def factors(seed=0, num=40):
  """Of 40 terms most are of block 2, which takes several tiles; 4 and 6 have none."""
  rng = np.random.default_rng(seed)
  ids_M = rng.choice([0, 1, 2, 2, 2, 2, 3, 5, K, K + 3], num)
  d_MS, x_MD = rng.standard_normal((num, S)), rng.standard_normal((num, D))
  return BlockGrads(*map(jnp.asarray, (ids_M, np.float32(d_MS), np.float32(x_MD))))


def dense(grads):
  """All blocks, f64[K, S D]."""
  blocks_KSD = np.zeros((K, S, D))
  for k, d_S, x_D in zip(*map(np.asarray, grads[:3]), strict=True):
    if k < K:
      blocks_KSD[k] += np.outer(np.float64(d_S), x_D)
  return blocks_KSD.reshape(K, -1)


@pytest.fixture(params=[1, 2, 100], autouse=True)
def blocks_at_a_time(request, monkeypatch):
  monkeypatch.setattr(tiles, "_BLOCK_BYTES", request.param * 4 * S * D)


def test_every_block_with_terms_occurs_once():
  def put(carry, ids_C, blocks_CE):
    w_KE, seen_K = carry
    w_KE = w_KE.at[ids_C].set(blocks_CE, mode="drop", unique_indices=True)
    return w_KE, seen_K.at[ids_C].add(1, mode="drop")

  start = jnp.zeros((K, S * D)), jnp.zeros(K, int)
  w_KE, seen_K = jax.jit(lambda g: fold_blocks(put, start, g, K))(factors())
  np.testing.assert_allclose(w_KE, dense(factors()), rtol=1e-5, atol=1e-6)
  assert seen_K.tolist() == [1, 1, 1, 1, 0, 1, 0]


@pytest.mark.parametrize("way", [blocks.rows_at, blocks.gathered, blocks.one_by_one])
def test_rows_of_ids_beyond_the_table_are_the_last(way):
  width = blocks._LONG  # from which `rows_at` depends on the device
  x_KE = np.arange(3 * width, dtype=np.float32).reshape(3, width)
  got_RE = jax.jit(way)(x_KE, jnp.array([2, 0, 0, 1, 3, 9]))
  np.testing.assert_array_equal(got_RE, x_KE[[2, 0, 0, 1, 2, 2]])


def test_norm_is_that_of_sums_over_terms():
  want = np.sum(dense(factors()) ** 2)
  np.testing.assert_allclose(
    jax.jit(sq_norm, static_argnums=1)(factors(), K), want, 1e-5
  )


def test_gradients_of_blocks_can_be_summed():
  a, b = factors(0), factors(1, num=9)
  np.testing.assert_allclose(dense(a + b), dense(a) + dense(b), rtol=1e-5, atol=1e-6)
  want_KE = 0.25 * dense(a) + 2 * dense(b)
  for got in (joined_blocks([a, b], [0.25, 2.0]), accumulate([a, b], [0.25, 2.0])):
    np.testing.assert_allclose(dense(got), want_KE, rtol=1e-5, atol=1e-6)
  with pytest.raises(UserError, match="changed leaf by leaf"):
    fold_blocks(lambda carry, *_: carry, 0, jax.tree.map(jnp.add, a, a), K)
