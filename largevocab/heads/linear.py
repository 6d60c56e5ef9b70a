"""Base of heads with one linear score per row: features, initial rows."""

from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp

from largevocab.fields import InitScale, settings
from largevocab.heads.base import BLOCKS, ROWS, WHOLE, Head, PyTree
from largevocab.labels import Counts, Targets
from largevocab.ops.block_counts import block_counts
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.softmax.bias import extend, extended_width
from largevocab.rows import Table


@settings
class LinearHead:
  """Base of heads with scores <w, h> + b; `refresh` and `monitor` do nothing.

  Attributes:
    bias: learn a bias per row, as the weight of a constant feature of h.
    init_scale: rows are initialised uniformly in [-init_scale, init_scale], biases to
      0.
  """

  bias: bool = True
  init_scale: InitScale = 0.05

  def features(self, h_ND: jax.Array) -> jax.Array:
    """h with a constant feature appended if there is a bias."""
    return extend(h_ND) if self.bias else h_ND

  def random_rows(self, key: jax.Array, num: int, dim: int) -> jax.Array:
    """Initial rows; the columns of constant features start at 0."""
    width = extended_width(dim) if self.bias else dim
    limit = self.init_scale
    w_VD = jax.random.uniform(key, (num, dim), minval=-limit, maxval=limit)
    return jnp.pad(w_VD, ((0, 0), (0, width - dim)))

  def init_blocks(
    self: Head, key: jax.Array, counts: Counts, dim: int, blocks: Blocks
  ) -> Callable[[int], PyTree]:
    """Each block is initialised from the counts of its classes."""

    counts_of = block_counts(counts, blocks)

    def of_block(number: int) -> PyTree:
      return self.init(jax.random.fold_in(key, number), counts_of(number), dim)

    return of_block

  def sharding(self, state: PyTree) -> PyTree:
    """Rows of tables are sharded over devices; other parts are sharded by block."""
    is_table = lambda x: isinstance(x, Table)

    def of_part(part):
      if not is_table(part):
        return BLOCKS
      return jax.tree.map(lambda leaf: ROWS if jnp.ndim(leaf) else WHOLE, part)

    return jax.tree.map(of_part, state, is_leaf=is_table)

  def in_blocks(self) -> Self:
    return self

  def refreshes(self, step: int) -> bool:
    return False

  def refresh(self, state: PyTree, key: jax.Array) -> PyTree:
    return state

  def monitor(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    return {}
