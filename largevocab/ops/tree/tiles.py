"""Sorts examples into tiles of one group each, which read what the group shares."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

TILE = 8  # examples that read a block together
_BLOCK_BYTES = 2**20
_NONE = jnp.iinfo(jnp.int32).max


class Tiles(NamedTuple):
  """A tiles, each with T places for examples of one group.

  Attributes:
    group_A: i32[A], the group of each tile; `num_groups` on padding, which comes last.
    row_A: i32[A], index of the group in `ids_R`; R on padding.
    at_AT: i32[A, T], indices of the examples in each tile; out of range in free places.
    ids_R: i32[R], the groups that have examples, R = min(N, num_groups); padding is
      >= num_groups, and all are distinct.
    num: i32[], number of tiles without padding.
  """

  group_A: jax.Array
  row_A: jax.Array
  at_AT: jax.Array
  ids_R: jax.Array
  num: jax.Array


def tiles(group_N: jax.Array, num_groups: int, size: int) -> Tiles:
  """Sorts examples into tiles of `size` places, each for one group.

  Args:
    group_N: i32[N], the group of each example; groups >= num_groups are ignored.
    num_groups: K.
    size: T, places in a tile.

  Returns:
    At most N / T + min(N, K) tiles, and padding up to min(N, N / T + K).

  Cost: O(K + N log N).

  >>> cut = tiles(jnp.array([2, 0, 2, 2]), 3, 2)
  >>> cut.group_A.tolist(), cut.ids_R.tolist()
  ([0, 2, 2, 3], [0, 2, 5])
  >>> (cut.at_AT < 4).sum(axis=1).tolist(), cut.at_AT[1].tolist()
  ([1, 2, 1, 0], [0, 2])
  """
  (N,), K = group_N.shape, num_groups
  count_K = jnp.zeros(K, jnp.int32).at[group_N].add(1, mode="drop")
  tiles_K = -(-count_K // size)
  end_K = jnp.cumsum(tiles_K)
  at_A = jnp.arange(min(N, N // size + K), dtype=jnp.int32)
  group_A = jnp.searchsorted(end_K, at_A, side="right").astype(jnp.int32)

  # Examples are sorted by group: those of tile A start at first_A.
  order_N = jnp.argsort(group_N).astype(jnp.int32)
  stop_K = jnp.cumsum(count_K)
  of_tile = lambda x_K: x_K.at[group_A].get(mode="fill", fill_value=0)
  first_A = of_tile(stop_K - count_K) + size * (at_A - of_tile(end_K - tiles_K))
  number_AT = first_A[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
  is_taken_AT = number_AT < of_tile(stop_K)[:, None]
  at_AT = jnp.where(is_taken_AT, order_N.at[number_AT].get(mode="clip"), _NONE)

  R = min(N, K)
  row_K = jnp.where(count_K > 0, jnp.cumsum(count_K > 0) - 1, R).astype(jnp.int32)
  ids_R = K + jnp.arange(R, dtype=jnp.int32)
  ids_R = ids_R.at[row_K].set(jnp.arange(K, dtype=jnp.int32), mode="drop")
  row_A = row_K.at[group_A].get(mode="fill", fill_value=R)
  return Tiles(group_A, row_A, at_AT, ids_R, end_K[-1])


def over_tiles(
  body: Callable[[Any, Tiles], Any],
  init: Any,
  tiles: Tiles,
  at_once: int,
  begin: ArrayLike = 0,
) -> Any:
  """`lax.fori_loop` over chunks of tiles: body(carry, tiles) -> carry.

  Begins at tile `begin`. Padding tiles are skipped, except those that fill up the last
  chunk.

  >>> cut = tiles(jnp.array([2, 0, 2, 2]), 3, 2)
  >>> int(over_tiles(lambda n, part: n + (part.at_AT < 4).sum(), 0, cut, 2))
  4
  """
  at_once = min(at_once, len(tiles.group_A))

  def turn(i, carry):
    at_A = begin + i * at_once + jnp.arange(at_once)
    take = lambda x: x.at[at_A].get(mode="fill", fill_value=_NONE)
    group_A, row_A, at_AT, *rest = tiles
    return body(carry, Tiles(take(group_A), take(row_A), take(at_AT), *rest))

  return lax.fori_loop(0, -(-(tiles.num - begin) // at_once), turn, init)


def blocks_at_once(num_slots: int, dim: int) -> int:
  """Blocks of [S, D] that are read or made together.

  >>> blocks_at_once(512, 128), blocks_at_once(4096, 128)
  (4, 1)
  """
  return max(_BLOCK_BYTES // (4 * num_slots * dim), 1)
