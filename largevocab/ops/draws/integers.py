"""Random integers below numbers that differ between draws."""

import jax
import jax.numpy as jnp

_LOW = 0xFFFF


def below(key: jax.Array, bound: jax.Array) -> jax.Array:
  """Independent integers i32, each uniform on 0 ... bound - 1, of the shape of `bound`.

  The result is the integer part of bound times a random fraction of 64 bits.
  Probabilities are off by at most bound / 2^64 of themselves. (`jax.random.randint` is
  off by bound / 2^32, since it uses only 32 bits for a bound above 2^16.)

  Args:
    key: PRNG key.
    bound: i32[...], positive.

  >>> below(jax.random.key(0), jnp.array([1, 1, 1])).tolist()
  [0, 0, 0]
  """
  words = jax.random.bits(key, (2, *bound.shape), jnp.uint32)
  bound = bound.astype(jnp.uint32)
  # (first 2^32 + second) bound / 2^64, in parts of 32 bits.
  high, low = _product(words[0], bound)
  carry, _ = _product(words[1], bound)
  return (high + (low + carry < low).astype(jnp.uint32)).astype(jnp.int32)


def _product(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
  """a b of u32 as two words u32, the higher first."""
  a1, a0, b1, b0 = a >> 16, a & _LOW, b >> 16, b & _LOW
  middle = a1 * b0 + (a0 * b0 >> 16)
  other = a0 * b1 + (middle & _LOW)
  return a1 * b1 + (middle >> 16) + (other >> 16), a * b
