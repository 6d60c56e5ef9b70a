"""What the trainer asks of data; it knows no more of any."""

from collections.abc import Iterator
from typing import Protocol

from largevocab.data.batches import Batch
from largevocab.data.classes import Classes
from largevocab.labels import Counts


class TrainingBatches(Protocol):
  """Batches without end: pure functions of the step, so that resuming is exact."""

  @property
  def steps_per_epoch(self) -> int: ...

  def batch(self, step: int) -> Batch:
    """The batch of a global step."""
    ...


class HeldOutBatches(Protocol):
  """Batches in which every example of a split has its weight once."""

  @property
  def batch_size(self) -> int:
    """B, the rows of the recurrent state."""
    ...

  @property
  def num_examples(self) -> int:
    """How many examples there are, also without a label."""
    ...

  def __len__(self) -> int: ...

  def __iter__(self) -> Iterator[Batch]: ...

  def one_of_each_shape(self) -> Iterator[Batch]:
    """One of these batches for each shape that there is."""
    ...


class DataSet(Protocol):
  """The settings of a data set: a frozen dataclass in `largevocab.data.DATASETS`."""

  def load(self) -> "Data":
    """The data, read or made."""
    ...

  def tiny(self) -> "DataSet":
    """A synthetic data set of the same kind that takes no files and no time."""
    ...


class Data(Protocol):
  """Loaded data: what `load()` of every data set returns."""

  @property
  def vocabulary(self) -> Classes:
    """Names of the classes."""
    ...

  @property
  def counts(self) -> Counts:
    """What a head is told of the training data."""
    ...

  @property
  def num_inputs(self) -> int:
    """Rows of the table of inputs, which `Batch.x` names; 0: x holds the features."""
    ...

  @property
  def summary(self) -> str:
    """How much of what there is to learn from."""
    ...

  def training_batches(self, batch_size: int, unroll: int) -> TrainingBatches: ...

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> HeldOutBatches:
    """All of a split, 'train', 'valid' or 'test'."""
    ...
