"""Hashing by the signs of random projections: of angles, and of inner products."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from largevocab.ops.class_chunks import product
from largevocab.ops.shapes import check_shapes

RADIX = 2


class SimHash(NamedTuple):
  """Hash functions of L tables with C codes each.

  Attributes:
    normal_LCD: f32, what vectors are projected on.
  """

  normal_LCD: jax.Array


class MIPS(NamedTuple):
  """Hash functions by which rows and queries of a large inner product agree.

  Attributes:
    normal_LCD: f32, what vectors are projected on.
    last_LC: f32, the projection of the coordinate that rows have more.
    limit_L: f32, U, the norm of the longest row when the functions were made.
  """

  normal_LCD: jax.Array
  last_LC: jax.Array
  limit_L: jax.Array


def new_simhash(key: jax.Array, dim: int, codes: int, tables: int) -> SimHash:
  """Normal projections.

  >>> new_simhash(jax.random.key(0), 5, 2, 3).normal_LCD.shape
  (3, 2, 5)
  """
  return SimHash(jax.random.normal(key, (tables, codes, dim)))


def new_mips(key: jax.Array, w_VD: jax.Array, codes: int, tables: int) -> MIPS:
  """Normal projections, and the norm of the longest row.

  >>> new_mips(jax.random.key(0), jnp.array([[3.0, 4.0]]), 2, 1).limit_L.tolist()
  [5.0]
  """
  normal_LCF = jax.random.normal(key, (tables, codes, w_VD.shape[1] + 1))
  limit = jnp.sqrt(jnp.max(jnp.sum(jnp.square(w_VD), axis=1)))
  limit_L = jnp.full(tables, limit, jnp.float32)
  return MIPS(normal_LCF[:, :, :-1], normal_LCF[:, :, -1], limit_L)


def simhash_digits(functions: SimHash, x_ND: jax.Array) -> jax.Array:
  """1 where a projection is not negative: u32[L, C, N].

  Two vectors agree in a code with probability 1 - angle / pi.

  Source: Charikar 2002.
  Cost: one product of N L C D. Products of other shapes may round otherwise, so that
    the code of a vector whose projection is all but 0 depends on N.

  >>> functions = SimHash(jnp.array([[[1.0, 0.0], [0.0, 1.0]]]))
  >>> simhash_digits(functions, jnp.array([[3.0, -1.0]]))[:, :, 0].tolist()
  [[1, 0]]
  """
  check_shapes(x_ND=x_ND, **functions._asdict())
  return _signs(_project(functions.normal_LCD, x_ND))


def mips_query_digits(functions: MIPS, x_ND: jax.Array) -> jax.Array:
  """Codes u32[L, C, N] of queries, for `mips_row_digits` of rows.

  Query q stands for (q / |q|, 0), row w for (w / U, sqrt(1 - |w|^2 / U^2)): both of
  length 1, and their inner product is that of q and w, divided by U |q|.

  Source: Neyshabur and Srebro 2015 (simple-LSH), after Shrivastava and Li 2014.
  Cost: one product of N L C D.
  """
  check_shapes(x_ND=x_ND, **functions._asdict())
  return _signs(_project(functions.normal_LCD, x_ND))  # |q| changes no sign


def mips_row_digits(functions: MIPS, w_RD: jax.Array) -> jax.Array:
  """Codes u32[L, C, R] of rows; see `mips_query_digits`.

  A row that has grown longer than U since the functions were made counts as w / |w|.

  Cost: one product of R L C D; rounding as of `simhash_digits`.

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
