"""The layout of the blocks of a two-stage sampler, chosen by predicted time of a draw.

A layout says how many blocks there are, and how one is found.

D is the width of the class rows, F the number of sums kept per block, and M the number
of draws of an example.
"""

import math
from typing import NamedTuple

from largevocab.errors import UserError


class BlockLayout(NamedTuple):
  """C 2^k blocks: C nodes in one matrix product, then k levels of a binary tree each.

  Attributes:
    num_top: C; 1 if there are no levels: a single block, whose classes are drawn from
      all logits.
    levels: k.
  """

  num_top: int
  levels: int

  @property
  def num_blocks(self) -> int:
    return self.num_top << self.levels

  def size(self, num_classes: int) -> int:
    """E, the number of classes in a block.

    >>> BlockLayout(3, 1).size(100)
    17
    """
    return -(-num_classes // self.num_blocks)


class Rates(NamedTuple):
  """Times of the parts of a draw on a device.

  Attributes:
    product: seconds per floating point operation of a matrix product.
    number: seconds per logit, to turn it into a weight and sum it.
    feature: seconds per feature of a query.
    byte: seconds per byte read, block by block or node by node.
    pair: seconds per draw, independent of the block.
  """

  product: float
  number: float
  feature: float
  byte: float
  pair: float


# 'cpu' was fitted to draws with 62 layouts on one core of an Intel Xeon (AVX-512): most
# are predicted within a factor of 1.5. 'accelerator' is derived from bandwidths and not
# yet measured. The layout of the sums in checkpoints depends on these numbers: changing
# them makes checkpoints unreadable.
RATES = {
  "cpu": Rates(product=1e-11, number=5e-9, feature=1e-9, byte=1.6e-10, pair=5e-8),
  "accelerator": Rates(
    product=5e-14, number=3e-12, feature=3e-12, byte=1e-12, pair=5e-9
  ),
}
MEMORY = 1.5  # limit for the size of all sums, relative to the table


def make_layout(num_classes: int, leaf_size: int, dense_levels: int) -> BlockLayout:
  """The layout with blocks of at most `leaf_size` and a cut below `dense_levels`.

  A binary tree over the blocks has ceil(log2(blocks)) levels. If `dense_levels` is at
  least this number, there is nothing left to descend.

  >>> make_layout(1000, 100, 0), make_layout(1000, 100, 9)
  (BlockLayout(num_top=1, levels=4), BlockLayout(num_top=10, levels=0))
  """
  blocks = -(-num_classes // leaf_size)
  levels = max(math.ceil(math.log2(blocks)) - dense_levels, 0)
  return BlockLayout(-(-blocks >> levels) or 1, levels)


def seconds(
  layout: BlockLayout, rates: Rates, num_classes: int, dim: int, width: int, m: int
) -> float:
  """Predicted seconds for m draws of one example.

  Args:
    dim: D, width of the class rows.
    width: F, sums per node.
  """
  if layout.num_blocks == 1:
    return num_classes * (2 * dim * rates.product + rates.number)
  top = layout.num_top * (2 * width * rates.product + rates.number)
  descent = layout.levels * 2 * 4 * width * rates.byte
  size = layout.size(num_classes)
  leaf = rates.pair + size * (4 * dim * rates.byte + rates.number)
  return width * rates.feature + top + m * (descent + leaf)


def choose_layout(
  num_classes: int,
  dim: int,
  width: int,
  m: int,
  leaf_size: int = 0,
  dense_levels: int = -1,
  rates: str = "cpu",
  largest: int = 0,
) -> BlockLayout:
  """The layout with the shortest predicted time of a draw.

  Args:
    num_classes, dim, width, m: V, D, F, M.
    leaf_size: maximum number of classes in a block, whatever the memory; 0: free, with
      sums of at most MEMORY times the table.
    dense_levels: levels above the cut; -1: free.
    rates: key of RATES.
    largest: maximum number of classes in a block if `leaf_size` is free; 0: any number.

  Raises:
    UserError: no layout fits in the memory.

  >>> choose_layout(1000, 64, 2080, 16)
  BlockLayout(num_top=1, levels=0)
  >>> choose_layout(1_000_000, 16, 136, 32).levels > 0
  True
  """
  deepest = math.ceil(math.log2(max(num_classes, 2)))
  largest = largest or num_classes
  sizes = [s for s in (num_classes, *(2**i for i in range(deepest))) if s <= largest]
  sizes = [leaf_size] if leaf_size else sizes
  cuts = [dense_levels] if dense_levels >= 0 else range(deepest + 1)
  layouts = {
    make_layout(num_classes, min(s, num_classes), c) for s in sizes for c in cuts
  }
  stored = lambda layout: (2 * layout.num_blocks - layout.num_top) * width
  fits = lambda layout: (
    layout.num_blocks == 1 or stored(layout) <= MEMORY * num_classes * dim
  )
  if not leaf_size:
    least = min(map(stored, layouts))
    layouts = {layout for layout in layouts if fits(layout)}
    if not layouts:
      raise UserError(
        f"sums over blocks of at most {largest} classes take {4 * least / 1e9:.2g} GB, "
        f"more than {MEMORY} times the table: raise head.num_samples, or set "
        "head.sampler.leaf_size"
      )
  cost = lambda layout: seconds(layout, RATES[rates], num_classes, dim, width, m)
  return min(sorted(layouts), key=cost)
