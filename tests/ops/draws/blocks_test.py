import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.draws import blocks
from tests.long import others_long

N, D = 3, 4
WAYS = [blocks.logits_by_pair, blocks.logits_by_example, blocks.block_logits]
# V and E: one class, blocks of one, one block, a last one that is shorter, or whole.
SIZES = [(1, 1), (7, 1), (7, 7), (7, 3), (12, 4), (13, 12), (50, 6)]


def problem(num_classes, size, num=N, width=D):
  """All blocks for the first example, random ones for the others, some beyond V."""
  rng = np.random.default_rng(0)
  num_blocks = -(-num_classes // size)
  block_NK = rng.integers(0, num_blocks + 3, (num, num_blocks + 2))
  block_NK[0] = np.arange(num_blocks + 2)
  x_ND = rng.standard_normal((num, width)).astype("f")
  w_VD = rng.standard_normal((num_classes, width)).astype("f")
  return jnp.asarray(x_ND), jnp.asarray(w_VD), jnp.asarray(block_NK, jnp.int32)


@pytest.mark.parametrize(("num_classes", "size"), SIZES)
def test_ids_equal_those_of_the_slice(num_classes, size):
  _, _, block_NK = problem(num_classes, size)
  ids_NKE, mask_NKE = blocks.block_ids(block_NK, size, num_classes)
  assert ids_NKE.shape == mask_NKE.shape == (*block_NK.shape, size)
  assert ids_NKE.dtype == jnp.int32
  for n, k in np.ndindex(block_NK.shape):
    first = int(block_NK[n, k]) * size
    own = list(range(num_classes))[first : first + size]
    ids_E, mask_E = np.asarray(ids_NKE[n, k]), np.asarray(mask_NKE[n, k])
    assert ids_E[mask_E].tolist() == own
    # What is masked are classes too, so that it can be read; each id stands once.
    assert ids_E.tolist() == list(range(ids_E[0], ids_E[0] + size))
    assert ids_E[0] >= 0
    assert ids_E[-1] < num_classes


@pytest.mark.parametrize("num_classes", others_long([1, 10, 11], [10]))
def test_every_class_is_in_one_block(num_classes):
  for size in range(1, num_classes + 1):
    block_NK = jnp.arange(-(-num_classes // size))[None]
    ids_NKE, mask_NKE = blocks.block_ids(block_NK, size, num_classes)
    own = np.asarray(ids_NKE)[np.asarray(mask_NKE)]
    assert sorted(own.tolist()) == list(range(num_classes))


@pytest.mark.parametrize(
  ("way", "num_classes", "size"),
  others_long(
    [(way, *of) for way in WAYS for of in SIZES],
    [(way, *of) for way in WAYS for of in SIZES[::3]],
  ),
)
def test_logits_equal_those_of_the_ids(way, num_classes, size):
  x_ND, w_VD, block_NK = problem(num_classes, size)
  o_NKE = jax.jit(way, static_argnums=3)(x_ND, w_VD, block_NK, size)
  assert o_NKE.shape == (*block_NK.shape, size)
  assert o_NKE.dtype == jnp.float32
  ids_NKE, _ = blocks.block_ids(block_NK, size, num_classes)
  for n, k, e in np.ndindex(o_NKE.shape):
    want = np.float64(x_ND[n]) @ np.float64(w_VD[ids_NKE[n, k, e]])
    np.testing.assert_allclose(o_NKE[n, k, e], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  ("at_once", "num", "width"),
  others_long(
    itertools.product([1, 2, 10**6], [3, 32, 33, 67], [D, 130]),
    [(1, 32, D), (1, 33, D), (2, 67, D), (10**6, 67, D), (2, 3, 130)],
  ),
)
def test_chunks_of_examples_give_the_same_logits(at_once, num, width, monkeypatch):
  lanes = -(-width // 128) * 128
  monkeypatch.setattr(blocks, "_AT_A_TIME", at_once * 5 * 6 * lanes)
  x_ND, w_VD, block_NK = problem(20, 6, num, width)
  way = lambda *args: blocks.logits_by_example(*args, 6)
  args = x_ND, w_VD, block_NK[:, :5]
  # Few groups of narrow rows are read without a loop.
  assert ("scan[" in str(jax.make_jaxpr(way)(*args))) == (
    (width > 128 and num > at_once) or num > 32 * at_once
  )
  got, want = way(*args), blocks.logits_by_pair(*args, 6)
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_zero_blocks_per_example_are_accepted(way):
  x_ND, w_VD, block_NK = problem(20, 6)
  assert way(x_ND, w_VD, block_NK[:, :0], 6).shape == (N, 0, 6)


@pytest.mark.parametrize("way", WAYS)
def test_neither_the_table_nor_all_blocks_are_copied(way):
  num_examples, k, size, num_classes = 4096, 16, 100, 10_000_000
  f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
  block_NK = jax.ShapeDtypeStruct((num_examples, k), jnp.int32)
  args = f32(num_examples, 64), f32(num_classes, 64), block_NK
  compiled = jax.jit(way, static_argnums=3).lower(*args, size).compile()
  temp_bytes = compiled.memory_analysis().temp_size_in_bytes
  # Twice the logits, as the loop makes them and in the shape that is returned; and what
  # the way that gathers may hold at once, a sixth of all rows.
  logits = 4 * num_examples * k * size
  gathered = 0 if way is blocks.logits_by_pair else 4 * 4 * blocks._AT_A_TIME
  assert temp_bytes < 2 * logits + gathered + 2**20
  assert 2 * logits + gathered < 64 * logits / 4  # all rows at once, D = 64
