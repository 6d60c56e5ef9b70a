"""Locality-sensitive hashing: the bucket of a vector in each of L tables.

Similar vectors share a bucket more often than others: with codes of collision
probability p, C of them to a table, p^C of the tables. What counts as similar is the
family: 'dwta', where the coordinates are largest; 'simhash', a small angle; 'mips', a
large inner product of a query and a row.
"""

import jax
import jax.numpy as jnp

from largevocab.ops import sign_hashing, winner_take_all
from largevocab.ops.sign_hashing import MIPS, SimHash
from largevocab.ops.winner_take_all import WinnerTakeAll

FAMILIES = ("dwta", "simhash", "mips")
Functions = WinnerTakeAll | SimHash | MIPS

_ODD = 0x9E3779B1
_WORDS = 1 << 32


def new_functions(
  family: str, key: jax.Array, w_VD: jax.Array, codes: int, tables: int
) -> Functions:
  """Random hash functions for the rows of a table; the first axis of all arrays is L.

  >>> new_functions("simhash", jax.random.key(0), jnp.ones((9, 4)), 2, 3)[0].shape
  (3, 2, 4)
  """
  if family == "mips":
    return sign_hashing.new_mips(key, w_VD, codes, tables)
  new = {"dwta": winner_take_all.new_functions, "simhash": sign_hashing.new_simhash}
  return new[family](key, w_VD.shape[1], codes, tables)


def radix(family: str, dim: int) -> int:
  """How many values one code has.

  >>> radix("dwta", 64), radix("mips", 64)
  (8, 2)
  """
  return winner_take_all.radix(dim) if family == "dwta" else sign_hashing.RADIX


def num_buckets(radix: int, codes: int, at_least: int) -> int:
  """As many as there are combinations of codes, if these are fewer than the power of 2
  that is `at_least` or more; else that power of 2.

  >>> num_buckets(8, 2, 1000), num_buckets(8, 6, 1000)
  (64, 1024)
  """
  return min(radix**codes, 1 << max(at_least - 1, 0).bit_length())


def row_buckets(
  functions: Functions, w_RD: jax.Array, codes: int, buckets: int
) -> jax.Array:
  """The bucket i32[L, R] of each row in each table.

  Args:
    functions: of `new_functions`.
    w_RD: float[R, D].
    codes: C.
    buckets: of `num_buckets`. If there are more combinations of codes, several of them
      share a bucket.

  Cost: that of the family's digits.

  >>> functions = SimHash(jnp.ones((1, 2, 1)))
  >>> row_buckets(functions, jnp.array([[1.0], [-1.0]]), 2, 4).tolist()
  [[3, 0]]
  """
  if isinstance(functions, MIPS):
    digit_LCR = sign_hashing.mips_row_digits(functions, w_RD)
    return _bucket(digit_LCR, sign_hashing.RADIX, buckets)
  return query_buckets(functions, w_RD, codes, buckets)


def query_buckets(
  functions: Functions, h_ND: jax.Array, codes: int, buckets: int
) -> jax.Array:
  """The bucket i32[L, N] in which each query finds its like, in each table.

  >>> functions = SimHash(jnp.ones((1, 2, 1)))
  >>> query_buckets(functions, jnp.array([[1.0]]), 2, 4).tolist()
  [[3]]
  """
  if isinstance(functions, WinnerTakeAll):
    digit_LCN = winner_take_all.digits(functions, h_ND, codes)
    return _bucket(digit_LCN, functions.coord_LKE.shape[2], buckets)
  if isinstance(functions, SimHash):
    digit_LCN = sign_hashing.simhash_digits(functions, h_ND)
  else:
    digit_LCN = sign_hashing.mips_query_digits(functions, h_ND)
  return _bucket(digit_LCN, sign_hashing.RADIX, buckets)


def _bucket(digit_LCN: jax.Array, radix: int, buckets: int) -> jax.Array:
  return fold(combine(digit_LCN, radix), radix ** digit_LCN.shape[1], buckets)


def combine(digit_LCN: jax.Array, radix: int) -> jax.Array:
  """Digits u32[L, C, N] as numbers of that radix, u32[L, N]; where these would need
  more than 32 bits, as a hash of all digits.

  >>> combine(jnp.array([[[1], [7]]], jnp.uint32), 8).tolist()
  [[15]]
  """
  codes = digit_LCN.shape[1]
  factor = jnp.uint32(radix if radix**codes <= _WORDS else _ODD)
  code_LN = digit_LCN[:, 0]
  for c in range(1, codes):
    code_LN = code_LN * factor + digit_LCN[:, c]
  return code_LN


def fold(code_LN: jax.Array, num_codes: int, buckets: int) -> jax.Array:
  """Codes as they are, i32, or hashed to a power of 2 of buckets if there are fewer.

  >>> fold(jnp.array([[3, 7]], jnp.uint32), 8, 8).tolist()
  [[3, 7]]
  """
  if num_codes <= buckets:
    return code_LN.astype(jnp.int32)
  if buckets == 1:
    return jnp.zeros(code_LN.shape, jnp.int32)
  mixed_LN = code_LN * jnp.uint32(_ODD)
  mixed_LN = (mixed_LN ^ (mixed_LN >> 15)) * jnp.uint32(0x2C1B3C6D)
  bits = buckets.bit_length() - 1
  return (mixed_LN >> (32 - bits)).astype(jnp.int32)
