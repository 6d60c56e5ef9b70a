"""Base of data sets whose inputs and classes are items."""

from dataclasses import dataclass

from largevocab.data.classes import Classes
from largevocab.labels import Counts


@dataclass(frozen=True, eq=False)
class ItemData:
  """Base of data whose inputs and classes are items.

  Attributes:
    vocabulary: all items, with counts as labels in the training split.
  """

  inputs_are_classes = True

  vocabulary: Classes

  @property
  def counts(self) -> Counts:
    """Class counts of the training labels, without a token stream."""
    return Counts(self.vocabulary.counts_V)

  @property
  def num_inputs(self) -> int:
    """Number of input rows, one per item."""
    return len(self.vocabulary)
