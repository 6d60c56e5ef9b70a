"""Densified winner-take-all (DWTA) hashing: codes are the argmax of coordinate bins.

Here K is the number of bins of a table, and E the number of coordinates of a bin.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.shapes import check_shapes

WIDTH = 8  # coordinates in a bin
_AT_A_TIME = 512  # vectors in a chunk, so that their coordinates fit in a cache


class WinnerTakeAll(NamedTuple):
  """Hash functions of L tables.

  Attributes:
    coord_LKE: i32, K bins of E coordinates for each table; D: no coordinate.
  """

  coord_LKE: jax.Array


def radix(dim: int) -> int:
  """Number of values of a code: the number of coordinates of a bin.

  >>> radix(64), radix(5)
  (8, 5)
  """
  return min(WIDTH, dim)


def new_functions(key: jax.Array, dim: int, codes: int, tables: int) -> WinnerTakeAll:
  """Random permutations of the coordinates, cut into bins of eight.

  A table has as many permutations as its codes need: one, if codes <= D / 8. The rest
  of a permutation makes one shorter bin, after all others. For vectors of fewer than
  eight coordinates, a bin has all of them.

  Args:
    key: PRNG key.
    dim: D.
    codes: maximum number of codes per table.
    tables: L.

  >>> new_functions(jax.random.key(0), 20, 2, 3).coord_LKE.shape
  (3, 3, 8)
  """
  size = radix(dim)
  full, left = divmod(dim, size)
  num = -(-codes // full)
  keys = jax.random.split(key, tables * num)
  perm_LPD = jax.vmap(lambda key: jax.random.permutation(key, dim))(keys)
  perm_LPD = perm_LPD.reshape(tables, num, dim).astype(jnp.int32)
  cut = full * size
  bins = [perm_LPD[:, :, :cut].reshape(tables, -1, size)]
  if left:
    pad = ((0, 0), (0, 0), (0, size - left))
    bins.append(jnp.pad(perm_LPD[:, :, cut:], pad, constant_values=dim))
  return WinnerTakeAll(jnp.concatenate(bins, axis=1))


def digits(functions: WinnerTakeAll, x_ND: jax.Array, codes: int) -> jax.Array:
  """The first `codes` codes of every table: u32[L, C, N].

  Code k is the index in bin k of the largest coordinate that is not zero, or of the
  first one if several are equal. A bin that has only zeros is empty. It takes the code
  of the nearest non-empty bin in cyclic order; of two equally near bins, that of the
  one after it. The codes of the zero vector are 0.

  Two vectors a and b agree in the code of a bin of W coordinates that is empty for
  neither with probability

    p = sum over i with a_i, b_i != 0 of C(n_i, W - 1) / (C(D, W) P(neither is empty))

  where n_i coordinates lie below i in both; zeros lie below everything (Yagnik et al.
  2011).

  Args:
    functions: hash functions.
    x_ND: float[N, D].
    codes: C, at most the number that the functions were made for.

  Source: Chen and Shrivastava 2018 as in Daghaghi et al. 2021, appendix A. Deviation:
    in the paper, the bin to borrow from is found by hashing. In both cases, if a bin is
    empty for only one of two vectors, they agree in its code by chance alone.
  Cost: 8 L C comparisons a vector, as many again and twice for each step to the nearest
    bin; only steps that some vector of a chunk of 512 needs are taken.

  >>> functions = WinnerTakeAll(jnp.array([[[1, 0], [2, 3]]]))
  >>> digits(functions, jnp.array([[2.0, 5.0, 1.0, -1.0], [0, 0, 0, -1]]), 2).tolist()
  [[[0, 1], [0, 1]]]
  """
  num = check_shapes(x_ND=x_ND, **functions._asdict())["N"]
  tables = len(functions.coord_LKE)
  size = min(num, _AT_A_TIME)

  def some(i, digit_LCN):
    # The last chunk starts earlier, so that all chunks are of the same size.
    start = jnp.minimum(i * size, num - size)
    part_ND = lax.dynamic_slice_in_dim(x_ND, start, size)
    part_LCN = _digits(functions.coord_LKE, part_ND, codes)
    return lax.dynamic_update_slice_in_dim(digit_LCN, part_LCN, start, axis=2)

  none = jnp.zeros((tables, codes, num), jnp.uint32)
  return lax.fori_loop(0, -(-num // size), some, none)


def _digits(coord_LKE: jax.Array, x_ND: jax.Array, codes: int) -> jax.Array:
  x_DN = jnp.where(x_ND == 0, -jnp.inf, x_ND).T
  x_DN = jnp.pad(x_DN, ((0, 1), (0, 0)), constant_values=-jnp.inf)  # coordinate D
  best_LCN, digit_LCN = _winners(x_DN, coord_LKE[:, :codes])
  borrow = lambda: _borrowed(coord_LKE, x_DN, best_LCN, digit_LCN)
  return lax.cond(jnp.any(best_LCN == -jnp.inf), borrow, lambda: digit_LCN)


def _borrowed(coord_LKE, x_DN, best_LCN, digit_LCN):
  """The digits, with those of empty bins borrowed from the nearest non-empty bins."""
  bins, codes = coord_LKE.shape[1], best_LCN.shape[1]
  is_zero_N = jnp.max(x_DN, axis=0) == -jnp.inf

  def is_missing(carry):
    step, best_LCN, _ = carry
    empty_LCN = (best_LCN == -jnp.inf) & ~is_zero_N[None, None]
    return (step <= bins // 2) & jnp.any(empty_LCN)

  def borrow(carry):
    step, best_LCN, digit_LCN = carry
    for shift in (step, -step):
      at_C = (jnp.arange(codes, dtype=jnp.int32) + shift) % bins
      near_LCN, code_LCN = _winners(x_DN, coord_LKE[:, at_C])
      empty_LCN = best_LCN == -jnp.inf
      best_LCN = jnp.where(empty_LCN, near_LCN, best_LCN)
      digit_LCN = jnp.where(empty_LCN, code_LCN, digit_LCN)
    return step + 1, best_LCN, digit_LCN

  carry = jnp.int32(1), best_LCN, digit_LCN
  return lax.while_loop(is_missing, borrow, carry)[2]


def _winners(x_DN: jax.Array, coord_LCE: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The largest value of each bin, and its index."""
  return lax.platform_dependent(
    x_DN, coord_LCE, cpu=winners_by_bin, default=winners_at_once
  )


def winners_by_bin(x_DN, coord_LCE):
  """A loop over bins that reads whole rows: four times as fast as a gather on CPU."""

  def winner(coord_E):
    row_N = lambda e: lax.dynamic_index_in_dim(x_DN, coord_E[e], keepdims=False)
    best_N = row_N(0)
    at_N = jnp.zeros(best_N.shape, jnp.uint32)
    for e in range(1, len(coord_E)):
      x_N = row_N(e)
      at_N = jnp.where(x_N > best_N, jnp.uint32(e), at_N)
      best_N = jnp.maximum(best_N, x_N)
    return best_N, at_N

  L, C, E = coord_LCE.shape
  winners = lax.map(winner, coord_LCE.reshape(-1, E))
  best_LCN, at_LCN = (x.reshape(L, C, -1) for x in winners)
  return best_LCN, at_LCN


def winners_at_once(x_DN, coord_LCE):
  """A single gather."""
  x_LCEN = x_DN.at[coord_LCE].get(mode="promise_in_bounds")
  best_LCN = jnp.max(x_LCEN, axis=2)
  return best_LCN, jnp.argmax(x_LCEN, axis=2).astype(jnp.uint32)
