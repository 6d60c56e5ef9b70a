"""Checksums of arrays: only damage changes them."""

import itertools
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.training.checkpoint_note import checksums
from tests.long import others_long

DTYPES = (
  *("float32", "bfloat16", "float16", "float8_e4m3fn", "complex64"),
  *("int32", "uint32", "int16", "int8", "uint8"),
)
SHAPES = ((), (1,), (1000,), (7, 13), (3, 4, 5))


def bytes_of(rng, dtype, shape):
  dtype = jnp.dtype(dtype)
  return rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)


def checksum(x):
  (found,) = checksums([x])
  return tuple(np.asarray(found).tolist())


@pytest.mark.parametrize(
  ("shape", "dtype"),
  others_long(
    itertools.product(SHAPES, DTYPES),
    [(SHAPES[i % len(SHAPES)], dtype) for i, dtype in enumerate(DTYPES)],
  ),
)
def test_flipped_bit_changes_the_checksum(dtype, shape):
  rng = np.random.default_rng(len(shape))
  whole = bytes_of(rng, dtype, shape)
  array = lambda raw: raw.view(jnp.dtype(dtype)).reshape(shape)
  expected = checksum(array(whole))
  assert checksum(array(whole.copy())) == expected
  bits = rng.permutation(whole.size * 8)[:60]
  for bit in bits:
    damaged = whole.reshape(-1).copy()
    damaged[bit // 8] ^= 1 << (bit % 8)
    assert checksum(array(damaged.reshape(whole.shape))) != expected


def test_flipped_bit_of_keys_and_booleans_changes_the_checksum():
  data = jax.random.key_data(jax.random.key(3))
  expected = checksum(jax.random.wrap_key_data(data))
  for word in range(2):
    for bit in range(32):
      other = data.at[word].set(data[word] ^ np.uint32(1 << bit))
      assert checksum(jax.random.wrap_key_data(other)) != expected
  truth = np.arange(10) % 3 == 0
  for i in range(10):
    other = truth.copy()
    other[i] = not other[i]
    assert checksum(other) != checksum(truth)


def test_two_flipped_signs_change_the_checksum():
  """A sum of odd multiples of the words would miss these, as 2^31 * even is 0."""
  x = np.random.default_rng(0).standard_normal(100).astype(np.float32)
  for i in range(1, 100):
    other = x.copy()
    other[[0, i]] *= -1
    assert checksum(other) != checksum(x)


def test_reordered_rows_change_the_checksum():
  x = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
  seen = {checksum(x), checksum(x.T), checksum(x[::-1])}
  for i in range(1, 20):
    order = np.arange(20)
    order[[0, i]] = i, 0
    seen.add(checksum(x[order]))
    seen.add(checksum(np.roll(x, i, axis=0)))
  assert len(seen) == 3 + 19 + 19


def test_zeroed_parts_change_the_checksum():
  """For example, if the end or a block of a file was never written."""
  x = np.random.default_rng(0).integers(-5, 5, 4096).astype(np.int32)
  seen = {checksum(x)}
  for size in (1, 16, 512, 2048):
    for start in range(0, 4096, max(size, 512)):
      other = x.copy()
      other[start : start + size] = 0
      if (other != x).any():
        assert checksum(other) not in seen


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex128])
@pytest.mark.parametrize("has_64_bits", [False, True])
def test_64_bit_types_are_supported(dtype, has_64_bits):
  """NumPy arrays, whether or not jax has 64-bit types, and jax arrays."""
  with jax.enable_x64(has_64_bits):
    x = (1e6 * np.random.default_rng(0).standard_normal(30)).astype(dtype)
    for bit in range(64):
      other = x.copy()
      other.view(np.uint64)[11] ^= np.uint64(1) << np.uint64(bit)
      assert checksum(other) != checksum(x)
    if has_64_bits:
      assert checksum(jnp.asarray(x)) == checksum(x)


def test_no_array_of_the_size_of_the_input_is_made():
  x = jax.ShapeDtypeStruct((100_000, 16), jnp.float32)
  compiled = jax.jit(checksums).lower([x, x]).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < 100_000


SHARDED = textwrap.dedent("""
  import jax, jax.numpy as jnp, numpy as np
  from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
  from largevocab.training.checkpoint_note import checksums

  mesh = Mesh(np.array(jax.devices()), ("v",))
  tree = [
    jax.random.normal(jax.random.key(0), (64, 12)),
    jnp.arange(32, dtype=jnp.int32),
    jax.random.normal(jax.random.key(1), (8, 4, 2)).astype(jnp.bfloat16),
  ]
  expected = np.array(checksums(tree))
  for spec in (P("v"), P(None, "v"), P()):
    spec_of = lambda x: P(*tuple(spec)[: x.ndim])
    put = lambda x: jax.device_put(x, NamedSharding(mesh, spec_of(x)))
    sharded = jax.tree.map(put, tree)
    np.testing.assert_array_equal(np.array(checksums(sharded)), expected)
    program = jax.jit(checksums).lower(sharded).compile().as_text()
    assert "f32[64,12]" not in program or spec == P(), "a table was gathered"
""")


@pytest.mark.long
def test_sharded_table_has_the_same_checksum(on_four_devices):
  on_four_devices(SHARDED)
