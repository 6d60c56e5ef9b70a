"""Blocks of consecutive classes: their ids and their logits.

V classes are in blocks of `size`; the last block may be shorter. It is read from the
last start where a whole block fits into the table. All slices then have the same shape
without copying the table; classes of the neighbouring block are masked.

Here K is the number of blocks per example, and E the number of classes in a block.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.placement import LANES

_AT_A_TIME = 1 << 24  # numbers gathered at once, counting those that fill lanes
_UNROLLED = 32  # maximum number of groups of examples


def block_ids(
  block_NK: jax.Array, size: int, num_classes: int
) -> tuple[jax.Array, jax.Array]:
  """The classes of blocks.

  Args:
    block_NK: i32[N, K]; blocks beyond the last class are empty.
    size: E, classes in a block, at most num_classes.
    num_classes: V.

  Returns:
    ids_NKE: i32[N, K, E], the ids in the slice of each block.
    mask_NKE: bool[N, K, E], which of them belong to the block.

  >>> ids, mask = block_ids(jnp.array([[0, 1]]), 2, 3)
  >>> ids.tolist(), mask.tolist()
  ([[[0, 1], [1, 2]]], [[[True, True], [False, True]]])
  """
  first_NK = jnp.minimum(block_NK * size, num_classes - size)
  ids_NKE = first_NK[:, :, None] + jnp.arange(size)[None, None, :]
  return ids_NKE, ids_NKE // size == block_NK[:, :, None]


def block_logits(
  x_ND: jax.Array, w_VD: jax.Array, block_NK: jax.Array, size: int
) -> jax.Array:
  """o_nke = <x_n, w_c> for the classes c = ids_nke of `block_ids`: f32[N, K, E].

  Cost: O(N K E D), bound by memory bandwidth. On a CPU this is a loop over the pairs,
  which reads every block in place; elsewhere a gather of [K, E, D] for some examples at
  once. For a narrow table, up to 32 such groups are unrolled: for TPU, a loop would be
  compiled to copy the table.

  >>> w_VD = jnp.array([[1.0], [2.0], [3.0]])
  >>> block_logits(jnp.ones((1, 1)), w_VD, jnp.array([[1]]), 2).tolist()
  [[[2.0, 3.0]]]
  """
  return lax.platform_dependent(
    x_ND,
    w_VD,
    block_NK,
    cpu=partial(logits_by_pair, size=size),
    default=partial(logits_by_example, size=size),
  )


def logits_by_pair(x_ND, w_VD, block_NK, size):
  """`block_logits`, one block of one example at a time."""
  one = lambda pair: _dot(_rows(w_VD, pair[1], size), x_ND[pair[0]])
  n, k = block_NK.shape
  example_P = jnp.repeat(jnp.arange(n), k)
  return lax.map(one, (example_P, block_NK.ravel())).reshape(n, k, size)


def logits_by_example(x_ND, w_VD, block_NK, size):
  """`block_logits`, all blocks of some examples at once."""
  (N, D), (V, K) = x_ND.shape, (len(w_VD), block_NK.shape[1])

  def one(pair):
    x_D, block_K = pair
    ids_KE = block_ids(block_K[None], size, V)[0][0]
    return _dot(w_VD[ids_KE], x_D)

  lanes = -(-D // LANES) * LANES
  at_once = max(_AT_A_TIME // max(K * size * lanes, 1), 1)
  if D >= LANES or _UNROLLED * at_once < N:
    return lax.map(one, (x_ND, block_NK), batch_size=at_once)
  parts = [slice(start, start + at_once) for start in range(0, N, at_once)]
  return jnp.concatenate([jax.vmap(one)((x_ND[p], block_NK[p])) for p in parts])


def _rows(w_VD: jax.Array, block: jax.Array, size: int) -> jax.Array:
  """The rows [E, D] in the slice of a block."""
  first = jnp.minimum(block * size, len(w_VD) - size)
  return lax.dynamic_slice_in_dim(w_VD, first, size)


def _dot(rows: jax.Array, x_D: jax.Array) -> jax.Array:
  return jnp.matmul(rows, x_D, precision=lax.Precision.HIGHEST)
