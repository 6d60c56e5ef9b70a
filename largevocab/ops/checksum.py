"""Checksums of arrays, computed where the arrays are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any
_ODD = np.uint32(0x9E3779B9)  # so that no two of 2^32 places have the same multiple


def checksums(tree: PyTree) -> list[jax.Array]:
  """The checksum of each array of a tree, u32[2], in the order of its leaves.

  An array's bits are taken as words b_i of at most 32 bits, those of an entry each; of
  mix(b_i xor (i * odd)), over all places i, the checksum is the sum mod 2^32 and the
  xor. `mix` is a bijection. So other bits in one word always have another checksum;
  other bits in several words, or the same words in other places, but for a chance of
  about 2^-64.

  Neither depends on the order of the words: a sharded array is summed where its shards
  are, and has the checksum that it has on one device. Arrays may be of any dtype, and
  keys; 0.0 and -0.0 differ, and so do NaNs of other bits.

  Cost: reads each array once, and makes none of its size.

  >>> one, other = checksums([jnp.float32([0, 1]), jnp.float32([-0.0, 1])])
  >>> one.shape, bool((one == other).all())
  ((2,), False)
  """
  return _checksums([_narrow(leaf) for leaf in jax.tree.leaves(tree)])


@jax.jit
def _checksums(leaves: list[jax.Array]) -> list[jax.Array]:
  return [_checksum(_words(leaf)) for leaf in leaves]


def _narrow(x: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
  """NumPy's wide types in words of 32 bits, since jax may not have them."""
  is_wide = isinstance(x, np.ndarray) and x.dtype.itemsize > 4
  return np.ascontiguousarray(x)[..., None].view(np.uint32) if is_wide else x


def _checksum(words: jax.Array) -> jax.Array:
  place = jnp.zeros(words.shape, jnp.uint32)
  for axis, size in enumerate(words.shape):
    place *= np.uint32(size % 2**32)
    place += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
  mixed = _mix(words ^ (place * _ODD))
  # One reduction with two results: alone, the CPU's compiler writes `mixed` to memory.
  both = jax.lax.reduce(
    (mixed, mixed),
    (np.uint32(0), np.uint32(0)),
    lambda a, b: (a[0] + b[0], a[1] ^ b[1]),
    tuple(range(words.ndim)),
  )
  return jnp.stack(both)


def _mix(x: jax.Array) -> jax.Array:
  """The end of MurmurHash3: a bijection in which any bit changes half of all bits."""
  x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
  return x ^ (x >> 16)


def _words(x: jax.Array) -> jax.Array:
  """u32, the bits of each entry; of one with more than 32 along a new last axis."""
  if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
    x = jax.random.key_data(x)
  if jnp.iscomplexobj(x):
    x = jnp.stack([x.real, x.imag], -1)
  if x.dtype == jnp.bool_:
    return x.astype(jnp.uint32)
  word = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
  return jax.lax.bitcast_convert_type(x, word).astype(jnp.uint32)
