"""Locality-sensitive hashing: the bucket of a vector in each of L tables.

Similar vectors share a bucket more often than others: with C codes a table, each of
collision probability p, they share one in p^C of the tables. The families differ in
what counts as similar: 'dwta', which coordinates are largest; 'simhash', the angle;
'mips', the inner product of a query and a row.

Here K is the number of buckets of a table.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from largevocab.ops.lsh import winner_take_all
from largevocab.ops.lsh.winner_take_all import WinnerTakeAll
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import product, wide

RADIX = 2


class SimHash(NamedTuple):
  """Hash functions of L tables with C codes each.

  Attributes:
    normal_LCD: f32, random projections.
  """

  normal_LCD: jax.Array


class MIPS(NamedTuple):
  """Asymmetric hash functions that collide for rows and queries of large inner product.

  Attributes:
    normal_LCD: f32, random projections.
    last_LC: f32, projection of the extra coordinate of rows.
    limit_L: f32, U, the norm of the longest row when the functions were made.
  """

  normal_LCD: jax.Array
  last_LC: jax.Array
  limit_L: jax.Array


def new_simhash(key: jax.Array, dim: int, codes: int, tables: int) -> SimHash:
  """SimHash functions: random normal projections.

  >>> new_simhash(jax.random.key(0), 5, 2, 3).normal_LCD.shape
  (3, 2, 5)
  """
  return SimHash(jax.random.normal(key, (tables, codes, dim)))


def new_mips(key: jax.Array, w_VD: jax.Array, codes: int, tables: int) -> MIPS:
  """MIPS functions: random normal projections, and the norm of the longest row.

  >>> new_mips(jax.random.key(0), jnp.array([[3.0, 4.0]]), 2, 1).limit_L.tolist()
  [5.0]
  """
  normal_LCF = jax.random.normal(key, (tables, codes, w_VD.shape[1] + 1))
  limit = jnp.sqrt(jnp.max(jnp.sum(jnp.square(wide(w_VD)), axis=1)))
  limit_L = jnp.full(tables, limit, jnp.float32)
  return MIPS(normal_LCF[:, :, :-1], normal_LCF[:, :, -1], limit_L)


def sign_digits(functions: SimHash | MIPS, x_ND: jax.Array) -> jax.Array:
  """Sign codes, 1 where a projection is not negative: u32[L, C, N].

  Two vectors agree in a code of SimHash with probability 1 - angle / pi. For MIPS, the
  result has the codes of queries, to match those of rows from `mips_row_digits`: query
  q is mapped to (q / |q|, 0), row w to (w / U, sqrt(1 - |w|^2 / U^2)). Both have norm
  1, and their inner product is that of q and w, divided by U |q|. Signs do not depend
  on |q|.

  Source: Charikar 2002; Neyshabur and Srebro 2015 (simple-LSH), after Shrivastava and
    Li 2014.
  Cost: one product of N L C D. Products of different shapes may round differently, so
    the code of a vector with a projection near 0 may depend on N.

  >>> functions = SimHash(jnp.array([[[1.0, 0.0], [0.0, 1.0]]]))
  >>> sign_digits(functions, jnp.array([[3.0, -1.0]]))[:, :, 0].tolist()
  [[1, 0]]
  """
  check_shapes(x_ND=x_ND, **functions._asdict())
  return _signs(_project(functions.normal_LCD, x_ND))


def mips_row_digits(functions: MIPS, w_RD: jax.Array) -> jax.Array:
  """Codes u32[L, C, R] of rows; see `sign_digits`.

  Rows that have become longer than U since the functions were made count as w / |w|.

  Cost: one product of R L C D; rounding as in `sign_digits`.

  >>> one = jnp.ones((1, 1))
  >>> functions = MIPS(one[None], -one, jnp.array([5.0]))
  >>> mips_row_digits(functions, jnp.array([[1.0], [4.0], [7.0]])).tolist()
  [[[0, 1, 1]]]
  """
  check_shapes(w_RD=w_RD, **functions._asdict())
  square_R = jnp.sum(jnp.square(w_RD), axis=1)
  limit_LR = jnp.square(functions.limit_L)[:, None] - square_R[None]
  last_LR = jnp.sqrt(jnp.maximum(limit_LR, 0))
  last_LCR = functions.last_LC[:, :, None] * last_LR[:, None]
  return _signs(_project(functions.normal_LCD, w_RD) + last_LCR)


def _project(normal_LCD: jax.Array, x_ND: jax.Array) -> jax.Array:
  return product("lcd,nd->lcn", normal_LCD, x_ND, jnp.float32)


def _signs(x_LCN: jax.Array) -> jax.Array:
  return (x_LCN >= 0).astype(jnp.uint32)


FAMILIES = ("dwta", "simhash", "mips")
Functions = WinnerTakeAll | SimHash | MIPS

_ODD = 0x9E3779B1
_WORDS = 1 << 32


def new_functions(
  family: str, key: jax.Array, w_VD: jax.Array, codes: int, tables: int
) -> Functions:
  """Random hash functions for the rows of a table; all arrays have L as first axis.

  >>> new_functions("simhash", jax.random.key(0), jnp.ones((9, 4)), 2, 3)[0].shape
  (3, 2, 4)
  """
  if family == "mips":
    return new_mips(key, w_VD, codes, tables)
  new = {"dwta": winner_take_all.new_functions, "simhash": new_simhash}
  return new[family](key, w_VD.shape[1], codes, tables)


def radix(family: str, dim: int) -> int:
  """Number of values of one code.

  >>> radix("dwta", 64), radix("mips", 64)
  (8, 2)
  """
  return winner_take_all.radix(dim) if family == "dwta" else RADIX


def num_buckets(radix: int, codes: int, at_least: int) -> int:
  """Number of buckets: a power of 2, or the number of combinations of codes.

  It is the least power of 2 that is >= at_least, or the number of combinations of codes
  if that is smaller.

  >>> num_buckets(8, 2, 1000), num_buckets(8, 6, 1000)
  (64, 1024)
  """
  return min(radix**codes, 1 << max(at_least - 1, 0).bit_length())


def row_buckets(
  functions: Functions, w_RD: jax.Array, codes: int, buckets: int
) -> jax.Array:
  """The bucket i32[L, R] of each row in each table.

  Args:
    functions: hash functions from `new_functions`.
    w_RD: float[R, D].
    codes: C.
    buckets: from `num_buckets`. If there are more combinations of codes, several of
      them share a bucket.

  Cost: that of the family's digits.

  >>> functions = SimHash(jnp.ones((1, 2, 1)))
  >>> row_buckets(functions, jnp.array([[1.0], [-1.0]]), 2, 4).tolist()
  [[3, 0]]
  """
  w_RD = wide(w_RD)
  if isinstance(functions, MIPS):
    digit_LCR = mips_row_digits(functions, w_RD)
    return _bucket(digit_LCR, RADIX, buckets)
  return query_buckets(functions, w_RD, codes, buckets)


def query_buckets(
  functions: Functions, h_ND: jax.Array, codes: int, buckets: int
) -> jax.Array:
  """The bucket i32[L, N] of each query in each table, which holds similar rows.

  >>> functions = SimHash(jnp.ones((1, 2, 1)))
  >>> query_buckets(functions, jnp.array([[1.0]]), 2, 4).tolist()
  [[3]]
  """
  if isinstance(functions, WinnerTakeAll):
    digit_LCN = winner_take_all.digits(functions, h_ND, codes)
    return _bucket(digit_LCN, functions.coord_LKE.shape[2], buckets)
  return _bucket(sign_digits(functions, h_ND), RADIX, buckets)


def _bucket(digit_LCN: jax.Array, radix: int, buckets: int) -> jax.Array:
  return fold(combine(digit_LCN, radix), radix ** digit_LCN.shape[1], buckets)


def combine(digit_LCN: jax.Array, radix: int) -> jax.Array:
  """Digits u32[L, C, N] as numbers in that radix, u32[L, N].

  If the numbers would need more than 32 bits, the result is a hash of all digits.

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
  """Codes as i32 buckets, hashed to a power of 2 if there are fewer buckets than codes.

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
