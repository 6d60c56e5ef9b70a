"""The data interface that the trainer uses."""

from collections.abc import Iterator
from typing import Protocol

from largevocab.data.batches import ALL, Batch
from largevocab.data.classes import Classes
from largevocab.labels import Counts


class TrainingBatches(Protocol):
  """Endless batches as pure functions of the step, so that resuming is exact."""

  @property
  def steps_per_epoch(self) -> int: ...

  def batch(self, step: int, rows: slice = ALL) -> Batch:
    """The batch of a global step, or only some rows of it.

    Rows are the B streams or examples of a batch. No other rows are read.
    """
    ...


class HeldOutBatches(Protocol):
  """Batches of a split in which the weight of each example counts once."""

  @property
  def batch_size(self) -> int:
    """B, the number of rows of the recurrent state."""
    ...

  @property
  def num_examples(self) -> int:
    """Number of examples, including those without a label."""
    ...

  def __len__(self) -> int: ...

  def __iter__(self) -> Iterator[Batch]: ...

  def read(self, rows: slice = ALL) -> Iterator[Batch]:
    """All batches, or only some of their B streams or examples; no others are read."""
    ...

  def one_of_each_shape(self, rows: slice = ALL) -> Iterator[Batch]:
    """One batch for each distinct shape."""
    ...


class DataSet(Protocol):
  """The settings of a data set: a frozen dataclass in `largevocab.data.DATASETS`."""

  def load(self) -> "Data":
    """Reads or makes the data."""
    ...

  def tiny(self) -> "DataSet":
    """A synthetic data set of the same kind that needs no files and almost no time."""
    ...


class Data(Protocol):
  """Loaded data: the result of `load()` of every data set."""

  @property
  def vocabulary(self) -> Classes:
    """Names of the classes."""
    ...

  @property
  def counts(self) -> Counts:
    """Class counts of the training data, for heads."""
    ...

  @property
  def num_inputs(self) -> int:
    """Number of rows in the table of inputs, indexed by `Batch.x`.

    0 if `Batch.x` itself holds the features.
    """
    ...

  @property
  def inputs_are_classes(self) -> bool:
    """Whether input ids are class ids, so that one table can serve both."""
    ...

  @property
  def summary(self) -> str:
    """A description of the amount of data."""
    ...

  def training_batches(self, batch_size: int, unroll: int) -> TrainingBatches: ...

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> HeldOutBatches:
    """All examples of a split, 'train', 'valid' or 'test'."""
    ...
