"""A sampler within each block of classes, so that several devices draw on their own.

Here B is the number of blocks on this device, L the number of its rows, and S = L / B
the number of rows of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.labels import Counts, Targets
from largevocab.ops import shards
from largevocab.samplers.base import (
  Draw,
  FixedLaw,
  Sampler,
  counts_rows,
  has_fixed_law,
  keeps_up,
  log_expected_in_range,
  rebuilds,
)

PyTree = Any


@dataclass(frozen=True)
class InBlocks:
  """Draws of one sampler in every block of classes (`largevocab.ops.class_blocks`).

  A draw is the union of the blocks' draws, which have equal size and a key each. The
  expected count of a class is exactly that of its block's sampler, so estimates of sums
  over all classes stay unbiased. Nothing is sent between devices, except the rows that
  a sampler with `queries` looks up examples by.

  An unused row may be drawn, and is masked.

  Attributes:
    sampler: sampler of a block's classes.

  Cost: that of the sampler, for each block. A sampler whose statistics follow the rows
    costs least with one block on a device. Otherwise a step copies its statistics and,
    for a sampler that reads them, the rows, one block after the other: O(V D).
  """

  sampler: Sampler

  @property
  def weighable(self) -> bool:
    return getattr(self.sampler, "weighable", True)

  @property
  def independent(self) -> bool:
    return getattr(self.sampler, "independent", False)

  @property
  def distinct(self) -> bool:
    return getattr(self.sampler, "distinct", False)

  @property
  def counts_rows(self) -> bool:
    return counts_rows(self.sampler)

  @property
  def keeps_up(self) -> bool:
    return keeps_up(self.sampler)

  @property
  def rebuilds(self) -> bool:
    return rebuilds(self.sampler)

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> PyTree:
    """Statistics of one block, for its share of m draws."""
    m = shards.per_block(m)
    with shards.one_block():
      return self.sampler.init(counts, w_VD, m)

  def sample(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    """The draws of all blocks on this device, as rows of its table."""
    h_ND, blocks = self._queries(w_VD, h_ND, y), _blocks(w_VD)
    S = blocks[0].shape[1]

    def one(block):
      stats, w_SD, start, number = block
      key_of_block = jax.random.fold_in(key, number)
      in_block = y._replace(ids_NP=_within(y.ids_NP, start, S))
      with shards.one_block():
        draw = self.sampler.sample(stats, w_SD, key_of_block, h_ND, in_block)
      exact = draw.exact_ids
      if exact is not None:
        is_class = shards.used(exact + start, len(w_VD), exact < S)
        exact = jnp.where(is_class, exact + start, len(w_VD))
      return draw._replace(ids=draw.ids + start, exact_ids=exact)

    draw = self._for_blocks(one, (stats, *blocks))
    draw = jax.tree.map(_side_by_side, draw)
    return draw._replace(mask=shards.used(draw.ids, len(w_VD), draw.mask))

  def log_expected(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    h_ND, blocks = self._queries(w_VD, h_ND, y), _blocks(w_VD)
    S = blocks[0].shape[1]

    def one(block):
      stats, w_SD, start, _ = block
      in_block = y._replace(ids_NP=_within(y.ids_NP, start, S))
      at = _within(ids, start, S)
      with shards.one_block():
        return self.sampler.log_expected(stats, w_SD, h_ND, in_block, at)

    return jnp.max(self._for_blocks(one, (stats, *blocks)), axis=0)

  def log_expected_in_range(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    first: jax.Array,
    num: int,
  ) -> jax.Array:
    """As `log_expected`; uses the sampler's method if the device has one block."""
    if len(shards.blocks_here()) > 1:
      ids_M = first + jnp.arange(num, dtype=jnp.int32)
      return self.log_expected(stats, w_VD, h_ND, y, ids_M)
    h_ND = self._queries(w_VD, h_ND, y)
    y = y._replace(ids_NP=_within(y.ids_NP, jnp.int32(0), len(w_VD)))
    stats = jax.tree.map(lambda x: x[0], stats)
    with shards.one_block():
      args = self.sampler, stats, w_VD, h_ND, y, first, num
      return log_expected_in_range(*args)

  def update(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> PyTree:
    if not keeps_up(self.sampler):
      return stats
    blocks = _blocks(w_VD)
    S = blocks[0].shape[1]

    def one(block):
      stats, w_SD, start, _ = block
      at_R = _within(ids_R, start, S)
      with shards.one_block():
        return self.sampler.update(stats, w_SD, at_R, old_RD, new_RD)

    return self._for_blocks(one, (stats, *blocks))

  def refresh(self, stats: PyTree, w_VD: jax.Array, key: jax.Array) -> PyTree:
    if not self.rebuilds:
      return stats
    blocks = _blocks(w_VD)

    def one(block):
      stats, w_SD, _, number = block
      key_of_block = jax.random.fold_in(key, number)
      with shards.one_block():
        return self.sampler.refresh(stats, w_SD, key_of_block)

    return self._for_blocks(one, (stats, *blocks))

  def _for_blocks(self, one: Callable[[Any], PyTree], blocks: PyTree) -> PyTree:
    """Calls `one` for each block in turn: it may need room for all classes of one."""
    return lax.map(one, blocks)

  def _queries(self, w_VD: jax.Array, h_ND: jax.Array, y: Targets) -> jax.Array:
    queries = getattr(self.sampler, "queries", None)
    return h_ND if queries is None else queries(w_VD, h_ND, y)


@dataclass(frozen=True)
class FixedInBlocks(InBlocks):
  """`InBlocks` of a sampler whose distribution is the same for all examples."""

  sampler: FixedLaw

  def log_expected(self, stats, w_VD, h_ND, y, ids):
    if len(shards.blocks_here()) * ids.size <= len(w_VD):
      return super().log_expected(stats, w_VD, h_ND, y, ids)
    # One pass over all rows costs less than looking up all ids in each block.
    at = (
      self.log_expected_of_all(stats)
      .at[ids]
      .get(mode="fill", fill_value=-jnp.inf, wrap_negative_indices=False)
    )
    per_example = getattr(self.sampler, "per_example", False)
    return jnp.broadcast_to(at, (len(h_ND), ids.shape[-1])) if per_example else at

  def log_expected_of_all(self, stats: PyTree) -> jax.Array:
    """`log_expected` of every row of this device, f32[L]."""
    return jax.vmap(self.sampler.log_expected_of_all)(stats).ravel()

  def _for_blocks(self, one, blocks):
    # All at once: one after another, each block's statistics would be copied.
    return jax.vmap(one)(blocks)


def in_blocks(sampler: Sampler) -> InBlocks:
  """The sampler in every block.

  >>> from largevocab.samplers import PPS, TopK
  >>> [type(in_blocks(s)).__name__ for s in (PPS(), TopK())]
  ['FixedInBlocks', 'InBlocks']
  """
  return FixedInBlocks(sampler) if has_fixed_law(sampler) else InBlocks(sampler)


def _blocks(w_VD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The blocks of this device: their rows, first rows and numbers.

  The rows are [B, S, D], and numbers are among all blocks.
  """
  number_B = shards.blocks_here()
  w_BSD = w_VD.reshape(len(number_B), -1, w_VD.shape[1])
  start_B = jnp.arange(len(number_B), dtype=jnp.int32) * w_BSD.shape[1]
  return w_BSD, start_B, number_B


def _within(rows: jax.Array, start: jax.Array, size: int) -> jax.Array:
  """Rows as those of a block; `size` for rows of other blocks."""
  at = rows - start
  return jnp.where((at >= 0) & (at < size), at, size)


def _side_by_side(x: jax.Array) -> jax.Array:
  """[B, M] as [B M], [B, N, M] as [N, B M]."""
  x = jnp.moveaxis(x, 0, -2)
  return x.reshape(*x.shape[:-2], -1)
