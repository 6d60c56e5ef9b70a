"""Gradients of blocks of rows, kept as factors; blocks are made when needed.

Here K is the number of blocks, and S the number of rows of a block.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import product
from largevocab.ops.tag import TAG, joined, valid
from largevocab.ops.tree.tiles import TILE, Tiles, blocks_at_once, over_tiles, tiles

_LONG = 2**14  # numbers of a row that counts as long


class BlockGrads(NamedTuple):
  """Gradient of blocks: for block k, the sum of d_m x_m^T over all m with ids_m = k.

  The factors are M (S + D) numbers, and the blocks min(M, K) S D.

  Attributes:
    ids_M: i32[M], the block of each term; ids >= K are padding.
    d_MS: f32[M, S], gradients with respect to logits.
    x_MD: [M, D], features, of the type of the products' operands.
    tag: i32[], see `largevocab.ops.tag`. `a + b` is the gradient of the sum.
  """

  ids_M: jax.Array
  d_MS: jax.Array
  x_MD: jax.Array
  tag: ArrayLike = TAG

  def __add__(self, other: "BlockGrads") -> "BlockGrads":  # pyrefly: ignore
    return joined_blocks([self, other], [1.0, 1.0])


def rows_at(x_KE: jax.Array, ids_R: jax.Array) -> jax.Array:
  """Rows of a table, or numbers of a vector; the last one for ids >= K.

  On a TPU, long rows are read one after the other: for rows whose width is no multiple
  of 128, its compiler gathers from copies of parts of the whole table.

  >>> rows_at(jnp.eye(2), jnp.array([1, 2])).tolist()
  [[0.0, 1.0], [0.0, 1.0]]
  """
  if x_KE.ndim == 1 or x_KE.shape[1] < _LONG:
    return gathered(x_KE, ids_R)
  return lax.platform_dependent(x_KE, ids_R, tpu=one_by_one, default=gathered)


def gathered(x_KE, ids_R):
  """`rows_at`, all at once."""
  return x_KE.at[ids_R].get(mode="clip")


def one_by_one(x_KE, ids_R):
  """`rows_at`, in a loop."""
  row = lambda i: lax.dynamic_index_in_dim(x_KE, i, keepdims=False)
  return lax.map(row, ids_R)


def rows_within(
  x_KE: jax.Array, ids_R: jax.Array, slot_R: jax.Array, dim: int
) -> jax.Array:
  """Rows [R, dim] of blocks, by block and slot; zeros for blocks >= K.

  >>> x_KE = jnp.array([[1.0, 2.0, 3.0, 4.0]])
  >>> rows_within(x_KE, jnp.array([0, 1]), jnp.array([1, 0]), 2).tolist()
  [[3.0, 4.0], [0.0, 0.0]]
  """
  # No view [K, S, D] of the blocks, since on a TPU it would be a copy.
  row = lambda k, slot: lax.dynamic_slice(x_KE, (k, slot * dim), (1, dim))[0]
  return jnp.where((ids_R < len(x_KE))[:, None], jax.vmap(row)(ids_R, slot_R), 0)


def joined_blocks(
  parts: Sequence[BlockGrads], weights: Sequence[ArrayLike]
) -> BlockGrads:
  """The weighted sum of gradients, by concatenating all terms.

  >>> a = BlockGrads(jnp.array([2]), jnp.ones((1, 1)), jnp.ones((1, 3)))
  >>> joined_blocks([a, a], [1.0, 0.5]).d_MS.tolist()
  [[1.0], [0.5]]
  """
  tag = joined(*zip(*((g.ids_M, g.tag, g.d_MS) for g in parts), strict=True))
  scaled = [w * g.d_MS for w, g in zip(weights, parts, strict=True)]
  above = np.iinfo(np.int32).max - sum(len(g.ids_M) for g in parts)
  return BlockGrads(
    jnp.concatenate([valid(g.ids_M, g.tag, g.d_MS, above)[0] for g in parts]),
    jnp.concatenate(scaled).astype(parts[0].d_MS.dtype),
    jnp.concatenate([g.x_MD for g in parts]),
    tag,
  )


def fold_blocks(
  body: Callable[[Any, jax.Array, jax.Array], Any],
  init: Any,
  grads: BlockGrads,
  num_blocks: int,
) -> Any:
  """body(carry, ids_C, blocks_CE) over the blocks with terms, some MiB at a time.

  `ids_C` are distinct; ids >= K are padding, with blocks of zeros. Blocks are
  concatenated rows, E = S D.

  Raises:
    UserError: ids were changed, see `tag`; if they are traced, blocks are NaN instead.

  Cost: a product of M S D, and up to 8 times as much if few terms share a block.

  >>> ids_M = jnp.array([2, 0, 2])
  >>> g = BlockGrads(ids_M, jnp.array([[1.0], [2.0], [3.0]]), jnp.ones((3, 2)))
  >>> put = lambda w_KE, *rows: w_KE.at[rows[0]].set(rows[1], mode="drop")
  >>> fold_blocks(put, jnp.zeros((3, 2)), g, 3).tolist()
  [[2.0, 2.0], [0.0, 0.0], [4.0, 4.0]]
  """
  ids_M, d_MS, x_MD, tag = grads
  check_shapes(ids_M=ids_M, d_MS=d_MS, x_MD=x_MD)
  ids_M, d_MS = valid(ids_M, tag, d_MS, num_blocks)
  shape = d_MS.shape[1], x_MD.shape[1]
  cut = tiles(ids_M, num_blocks, TILE)
  R = len(cut.ids_R)
  size = min(blocks_at_once(*shape), R)

  def turn(i, carry):
    first = i * size
    row_C = first + jnp.arange(size, dtype=jnp.int32)
    ids_C = jnp.where(
      row_C < R, cut.ids_R.at[row_C].get(mode="clip"), num_blocks + row_C
    )
    begin, end = jnp.searchsorted(cut.row_A, jnp.array([first, first + size]))

    def add(blocks_CSD, part: Tiles):
      d_ATS = d_MS.at[part.at_AT].get(mode="fill", fill_value=0)
      x_ATD = x_MD.at[part.at_AT].get(mode="fill", fill_value=0)
      sums_ASD = product("ats,atd->asd", d_ATS, x_ATD, x_MD.dtype)
      return blocks_CSD.at[part.row_A - first].add(sums_ASD, mode="drop")

    blocks_CSD = jnp.zeros((size, *shape), d_MS.dtype)
    of_these = cut._replace(num=jnp.minimum(end, cut.num))
    blocks_CSD = over_tiles(add, blocks_CSD, of_these, size, begin)
    return body(carry, ids_C, blocks_CSD.reshape(size, -1))

  num = jnp.sum(cut.ids_R < num_blocks)
  return lax.fori_loop(0, -(-num // size), turn, init)


def sq_norm(grads: BlockGrads, num_blocks: int) -> jax.Array:
  """Sum of squares of all blocks, f32[].

  >>> g = BlockGrads(jnp.array([2, 2]), jnp.ones((2, 1)), jnp.ones((2, 3)))
  >>> float(sq_norm(g, 3))
  12.0
  """
  add = lambda total, _, blocks_CE: total + jnp.sum(jnp.square(blocks_CE))
  return fold_blocks(add, jnp.zeros((), grads.d_MS.dtype), grads, num_blocks)
