"""Counts of one block of classes, which also know the counts of the other blocks.

Devices need statistics of equal shapes, so a block must know how large those of other
blocks are. Here B is the number of blocks, and S the number of rows of a block.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from largevocab.labels import Counts
from largevocab.ops.class_blocks import Blocks


@dataclass(frozen=True, kw_only=True)
class BlockCounts(Counts):
  """Counts of a block's classes, 0 for an unused row.

  Attributes:
    whole: counts of all classes.
    blocks: blocks of the classes.
    number: number of this block.
    found: results of `for_all_blocks` and `for_each_block`.
  """

  whole: Counts
  blocks: Blocks
  number: int
  found: dict[Any, Any] = field(default_factory=dict, repr=False)


def block_counts(counts: Counts, blocks: Blocks) -> Callable[[int], BlockCounts]:
  """The counts of a block, as a function of its number.

  >>> block_counts(Counts(np.arange(5)), Blocks(5, 2))(1).unigram_V.tolist()
  [1, 3, 0]
  """
  found: dict[Any, Any] = {}

  def of_block(number):
    of_classes = counts.unigram_V[blocks.classes(number)]
    unigram_V = np.pad(of_classes, (0, blocks.size - len(of_classes)))
    return BlockCounts(
      unigram_V, whole=counts, blocks=blocks, number=number, found=found
    )

  return of_block


def whole_counts(counts: Counts) -> Counts:
  """The counts of all classes."""
  return counts.whole if isinstance(counts, BlockCounts) else counts


def for_each_block(
  counts: Counts, function: Callable[[Counts], Any], key: Hashable
) -> list[Any]:
  """`function` of the counts of every block.

  It is computed by the first block that asks for `key`. If the counts are not those of
  a block, the result is `function` of these counts alone.
  """
  if not isinstance(counts, BlockCounts):
    return [function(counts)]
  if key not in counts.found:
    each = map(block_counts(counts.whole, counts.blocks), range(counts.blocks.num))
    counts.found[key] = list(map(function, each))
  return counts.found[key]


def number_of(counts: Counts) -> int:
  """The number of this block; 0 if there is only one."""
  return counts.number if isinstance(counts, BlockCounts) else 0


def own_classes(counts: Counts, ids_T: np.ndarray) -> np.ndarray:
  """The given distinct classes that are in this block, padded to equal length.

  They are padded with V to the largest number of any block.

  >>> one = block_counts(Counts(np.arange(5)), Blocks(5, 2))(1)
  >>> own_classes(one, np.array([0, 2, 3])).tolist()
  [3, 5]
  """
  if not isinstance(counts, BlockCounts):
    return ids_T
  block_T = ids_T % counts.blocks.num
  most = np.bincount(block_T, minlength=1).max()
  own_T = ids_T[block_T == counts.number]
  padding = 0, most - len(own_T)
  return np.pad(own_T, padding, constant_values=counts.blocks.num_classes)


def for_all_blocks(counts: Counts, function: Callable[[Counts, Blocks], Any]) -> Any:
  """`function` of the counts of all classes and their blocks.

  It is computed by the first block that asks.
  """
  if not isinstance(counts, BlockCounts):
    return function(counts, Blocks(counts.num_classes))
  if function not in counts.found:
    counts.found[function] = function(counts.whole, counts.blocks)
  return counts.found[function]
