"""What heads share whose classes are in clusters by frequency, with narrower rows."""

from dataclasses import dataclass

import numpy as np

from largevocab.errors import UserError
from largevocab.heads.linear import LinearHead
from largevocab.labels import Counts
from largevocab.ops.clusters import Clusters, cut, widths


@dataclass(frozen=True)
class Partitioned(LinearHead):
  """Classes sorted by count and cut: a short list, and tails whose rows are narrower.

  Attributes:
    cutoffs: ends of the short list and of each tail but the last, in classes.
    factor: rows of each tail are by this factor narrower than those before.
    align: widths of tails are rounded up to a multiple of this.
  """

  cutoffs: tuple[int, ...] = ()
  factor: int = 4
  align: int = 8

  def clusters(self, counts: Counts, dim: int) -> Clusters:
    """The clusters of these classes."""
    try:
      all_widths = widths(dim, len(self.cutoffs) + 1, self.factor, self.align)
      return cut(counts.unigram_V, self.cutoffs, all_widths)
    except ValueError as e:
      raise UserError(f"head.cutoffs: {e}") from None

  def sorted_ids(self, counts: Counts) -> np.ndarray:
    """Classes by decreasing count, i32[V]; equally frequent ones by id."""
    return np.argsort(-counts.unigram_V, kind="stable").astype(np.int32)
