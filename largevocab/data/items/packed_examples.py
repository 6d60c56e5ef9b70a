"""Packs several short sequences into a row, instead of padding."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from largevocab.data.batches import Batch
from largevocab.data.items.sequence_examples import SequenceExamples
from largevocab.errors import UserError
from largevocab.labels import Targets


@dataclass(frozen=True, eq=False)
class PackedExamples:
  """Rows of T inputs, each with as many sequences as fit, one after another.

  A missing input stands between two sequences, and networks do not look across it. The
  sequences of a row are neighbours in one random order. A row is therefore a random
  sample of the sequences, which is the same in all epochs.

  Attributes:
    examples: examples with a label at each input.
    seed: seed of the order.

  Raises:
    UserError: the examples have only one label each.

  >>> at, to = np.array([0, 3, 5]), np.array([2, 4, 7])
  >>> examples = SequenceExamples(np.arange(8), at, to, 6, 9, every=True)
  >>> packed = PackedExamples(examples, seed=0)
  >>> len(packed)
  2
  >>> batch = packed.batch(np.array([0]), np.ones(1))
  >>> batch.x.tolist(), batch.y.ids_NP[:, 0].tolist()
  ([[5, 6, 9, 0, 1, 9]], [6, 7, 9, 1, 2, 9])

  Source: Raffel et al. 2020, section 3.1.2 (several sequences in an entry of a batch).
  """

  examples: SequenceExamples
  seed: int

  def __post_init__(self):
    if not self.examples.every:
      raise UserError(
        "data.packed is for sequences with a label at each input: set "
        "data.one_label=False, or data.packed=False"
      )

  def __len__(self) -> int:
    return len(self._begin) - 1

  @cached_property
  def _order(self) -> np.ndarray:
    return np.random.default_rng(self.seed).permutation(len(self.examples))

  @cached_property
  def _begin(self) -> np.ndarray:
    """i64[rows + 1], the first sequence of each row, as its position in the order."""
    # A missing input follows each sequence; the last one of a row needs no room.
    end = np.cumsum(self.examples.num_inputs[self._order] + 1)
    begin, room = [0], self.examples.steps + 1
    while begin[-1] < len(end):
      before = end[begin[-1] - 1] if begin[-1] else 0
      begin.append(int(np.searchsorted(end, before + room, side="right")))
    return np.array(begin)

  def batch(self, at_B: np.ndarray, weight_B: np.ndarray) -> Batch:
    """The rows with the numbers `at_B`, with the weights `weight_B`."""
    begin_B, num_B = self._begin[at_B], self._begin[at_B + 1] - self._begin[at_B]
    row_E = np.repeat(np.arange(len(at_B)), num_B)
    nth_E = np.arange(len(row_E)) - np.repeat(np.cumsum(num_B) - num_B, num_B)
    example_E = self._order[begin_B[row_E] + nth_E]
    inputs_E = self.examples.num_inputs[example_E]
    # The places of all sequences one after another, minus the length of earlier rows.
    end_E = np.cumsum(inputs_E + 1)
    place_E = end_E - inputs_E - 1
    place_E -= place_E[np.cumsum(num_B) - num_B][row_E]
    source = self.examples.batch(example_E, np.asarray(weight_B)[row_E])
    steps, missing = self.examples.steps, self.examples.num_items
    is_input_ET = np.arange(steps) < inputs_E[:, None]
    to = (row_E[:, None] * steps + place_E[:, None] + np.arange(steps))[is_input_ET]

    def packed(of_source: np.ndarray, fill: float) -> np.ndarray:
      rows = np.full(len(at_B) * steps, fill, of_source.dtype)
      rows[to] = of_source.reshape(is_input_ET.shape)[is_input_ET]
      return rows

    y = source.y
    targets = Targets(
      packed(y.ids_NP, missing)[:, None],  # pyrefly: ignore
      packed(y.w_NP, 0)[:, None],  # pyrefly: ignore
      packed(y.context_N, 0),  # pyrefly: ignore
    )
    x_BT = packed(source.x, missing).reshape(-1, steps)  # pyrefly: ignore
    return Batch(x_BT, targets, source.start)
