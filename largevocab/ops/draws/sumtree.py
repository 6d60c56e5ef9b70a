"""Sum trees over blocks: a forest of perfect binary trees.

Each of C top nodes is the root of a perfect binary tree of depth k, so C 2^k blocks
have a balanced forest in which every level is an array. Nodes of a level are numbered
from left to right: node i has the children 2 i and 2 i + 1.

Here F is the number of sums per node, B the number of blocks, and K = k the number of
levels.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops.softmax.chunks import fold_rows

_NUMBERS = 1 << 20  # number of sums computed at once by `rebuilt`
UNIT = 1 << 24  # a random integer below it is exact in f32

# From a node's sums [..., F] to its non-negative weight [...].
Mass = Callable[[jax.Array], jax.Array]


class SumTree(NamedTuple):
  """F sums for every node.

  Attributes:
    top_CF: f32[C, F], the top nodes; these are the blocks if there are no levels below.
    below_SF: f32[C (2^(k+1) - 2), F], the k levels below, concatenated; None if there
      are none.
  """

  top_CF: jax.Array
  below_SF: jax.Array | None


def depth(tree: SumTree) -> int:
  """k, the number of levels below the top.

  >>> depth(build(jnp.ones((12, 1)), 3))
  2
  """
  if tree.below_SF is None:
    return 0
  return (len(tree.below_SF) // len(tree.top_CF) + 2).bit_length() - 2


def num_blocks(tree: SumTree) -> int:
  """C 2^k.

  >>> num_blocks(build(jnp.ones((12, 1)), 3))
  12
  """
  return tree.top_CF.shape[0] << depth(tree)


def build(block_BF: jax.Array, num_top: int) -> SumTree:
  """The forest over B = num_top * 2^k blocks with these sums.

  Cost: O(B F).

  >>> tree = build(jnp.array([[1.0], [2.0], [4.0], [8.0]]), 1)
  >>> tree.top_CF.ravel().tolist(), tree.below_SF.ravel().tolist()
  ([15.0], [3.0, 12.0, 1.0, 2.0, 4.0, 8.0])
  """
  num, width = block_BF.shape
  each, left = divmod(num, num_top)
  if left or each.bit_count() != 1:
    raise ValueError(f"{num} blocks are not {num_top} times a power of two")
  levels = [block_BF]
  while levels[0].shape[0] > num_top:
    levels.insert(0, levels[0].reshape(-1, 2, width).sum(axis=1))
  top_CF, *below = levels
  return SumTree(top_CF, jnp.concatenate(below) if below else None)


def rebuilt(tree: SumTree, sums: Callable[[jax.Array], jax.Array]) -> SumTree:
  """The tree with new sums for all blocks and for the nodes above them.

  Args:
    tree: tree with any sums; donate it to avoid a copy.
    sums: function from blocks i32[A] to their sums f32[A, F].

  Cost: O(B F); holds some MiB of sums, and the sums of at least one block and of the
    roots of subtrees.

  >>> powers = lambda block_A: 2.0 ** block_A[:, None]
  >>> tree = rebuilt(build(jnp.zeros((4, 1)), 1), powers)
  >>> tree.top_CF.ravel().tolist(), tree.below_SF.ravel().tolist()
  ([15.0], [3.0, 12.0, 1.0, 2.0, 4.0, 8.0])
  """
  (num_top, width), levels = tree.top_CF.shape, depth(tree)
  at_once = max(_NUMBERS // width, 1)
  height = min(levels, at_once.bit_length() - 1)  # of subtrees of 2^height blocks

  def put(so_far, chunk):
    root_RF, below_SF = so_far
    first, num = chunk.start << height, len(chunk.ids_C) << height
    sums_AF = sums(first + jnp.arange(num, dtype=jnp.int32))
    for up in range(height):
      at = _start(tree, levels - up) + (first >> up)
      below_SF = jax.lax.dynamic_update_slice_in_dim(below_SF, sums_AF, at, axis=0)
      sums_AF = sums_AF.reshape(-1, 2, width).sum(axis=1)
    return chunk.put(root_RF, sums_AF), below_SF

  roots = num_top << levels - height
  empty_RF = tree.top_CF
  if height < levels:
    empty_RF = jnp.zeros((roots, width), tree.top_CF.dtype)
  start = empty_RF, tree.below_SF
  root_RF, below_SF = fold_rows(put, start, roots, max(at_once >> height, 1))
  above = build(root_RF, num_top)
  if above.below_SF is not None:
    below_SF = jax.lax.dynamic_update_slice_in_dim(below_SF, above.below_SF, 0, axis=0)
  return SumTree(above.top_CF, below_SF)


def add(tree: SumTree, block_R: jax.Array, delta_RF: jax.Array) -> SumTree:
  """Adds to the sums of blocks and of all their ancestors.

  Args:
    tree: C 2^k blocks; donate it to avoid a copy.
    block_R: i32[R], blocks; may repeat. Blocks >= C 2^k are padding.
    delta_RF: f32[R, F].

  Cost: O(R F k), independent of the number of blocks.

  >>> add(build(jnp.zeros((2, 1)), 1), jnp.array([1, 9]), jnp.ones((2, 1))).top_CF
  Array([[1.]], dtype=float32)
  """
  levels, below_SF = depth(tree), tree.below_SF
  is_block_R = block_R < num_blocks(tree)

  def put(sums, node_R):
    node_R = jnp.where(is_block_R, node_R, len(sums))
    return sums.at[node_R].add(delta_RF, mode="drop")

  for level in range(1, levels + 1):
    below_SF = put(below_SF, _start(tree, level) + (block_R >> (levels - level)))
  return SumTree(put(tree.top_CF, block_R >> levels), below_SF)


def descend(
  tree: SumTree, mass: Mass, node_M: jax.Array, u_KM: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Descends from top nodes to blocks, choosing children in proportion to their mass.

  Args:
    tree: the tree; its `top_CF` is not read.
    mass: function from sums [M, 2, F] to weights f32[M, 2].
    node_M: i32[M], top nodes.
    u_KM: i32[K, M], random integers in 0..UNIT-1 for each of the k levels.

  Returns:
    i32[M], blocks, and f32[M], log-probability of the path from the top in nats. It is
    exact: weights are compared as integers of sum UNIT, as in `inverse_cdf`.

  Cost: O(M F k): two nodes are read for each draw and level.
  """
  turn = lambda length_M2, u_M: (u_M >= length_M2[:, 0]).astype(jnp.int32)
  return _walk(tree, mass, node_M, u_KM, turn)


def log_path(tree: SumTree, mass: Mass, block_M: jax.Array) -> jax.Array:
  """Log-probability f32[M] of the path of `descend` from a block's top node to it."""
  levels = depth(tree)
  turns_KM = block_M[None] >> np.arange(levels - 1, -1, -1)[:, None] & 1
  turn = lambda length_M2, turn_M: turn_M
  return _walk(tree, mass, block_M >> levels, turns_KM, turn)[1]


def _walk(tree, mass, node_M, way_KM, turn):
  """Descends; `turn` maps an entry of `way_KM` to left (0) or right (1)."""
  if tree.below_SF is None:
    return node_M, jnp.zeros(node_M.shape)

  def step(carry, level):
    node_M, log_q_M = carry
    start, way_M = level
    child_M2 = 2 * node_M[:, None] + jnp.arange(2)[None]
    weight_M2 = mass(tree.below_SF.at[start + child_M2].get(mode="clip"))
    length_M2, is_law_M = _lengths(weight_M2), jnp.isfinite(weight_M2.sum(axis=-1))
    turn_M = turn(length_M2, way_M)
    length_M = jnp.take_along_axis(length_M2, turn_M[:, None], -1)[:, 0]
    log_q_M += jnp.where(is_law_M, jnp.log(length_M / UNIT), jnp.nan)
    return (2 * node_M + turn_M, log_q_M), None

  starts_K = jnp.array([_start(tree, k) for k in range(1, depth(tree) + 1)], jnp.int32)
  begin = node_M, jnp.zeros(node_M.shape)
  return jax.lax.scan(step, begin, (starts_K, way_KM))[0]


def _lengths(weight_M2: jax.Array) -> jax.Array:
  """Integers of sum UNIT proportional to two weights, positive where these are."""
  left, right = weight_M2[..., 0], weight_M2[..., 1]
  total = left + right
  share = left / jnp.where(total > 0, total, 1.0)
  length = jnp.rint(share * UNIT).astype(jnp.int32)
  least, most = (left > 0).astype(jnp.int32), UNIT - (right > 0).astype(jnp.int32)
  length = jnp.clip(length, least, most)
  return jnp.stack([length, UNIT - length], axis=-1)


def _start(tree: SumTree, level: int) -> int:
  """Index of the first node of a level in `below_SF`."""
  return tree.top_CF.shape[0] * ((1 << level) - 2)
