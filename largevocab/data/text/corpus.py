"""A text as class ids: one memory-mapped array per split, and the vocabulary."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from largevocab.data.batches import EvaluationBatches, TokenBatches
from largevocab.data.encoded import open_encoded
from largevocab.data.text.vocabulary import Vocabulary
from largevocab.labels import Counts


@dataclass(frozen=True)
class Corpus:
  """An encoded text.

  Attributes:
    vocabulary: its words, with counts of the training split.
    train, valid, test: i32[tokens], class ids in document order.
  """

  vocabulary: Vocabulary
  train: np.ndarray
  valid: np.ndarray
  test: np.ndarray

  @property
  def counts(self) -> Counts:
    """Class counts and token stream of the training data."""
    return Counts(self.vocabulary.counts_V, self.train)

  @property
  def num_inputs(self) -> int:
    """One row per word."""
    return len(self.vocabulary)

  @property
  def inputs_are_classes(self) -> bool:
    """Ids of words are class ids."""
    return True

  @property
  def summary(self) -> str:
    """Number of tokens and words."""
    return f"{len(self.train)} training tokens, {len(self.vocabulary)} words"

  def training_batches(self, batch_size: int, unroll: int) -> TokenBatches:
    """The training text in B streams, T tokens at a time."""
    return TokenBatches(self.train, batch_size, unroll, self.vocabulary.eos)

  def evaluation_batches(
    self, split: str, batch_size: int, unroll: int
  ) -> EvaluationBatches:
    """Batches with every token of a split once."""
    tokens = getattr(self, split)
    return EvaluationBatches(tokens, batch_size, unroll, self.vocabulary.eos)


def open_corpus(directory: Path) -> Corpus:
  """The corpus encoded in a directory, memory-mapped; ids are read for validation.

  Raises:
    UserError: a file is missing, cut short or of another kind.
  """
  vocabulary, splits = open_encoded(directory, Vocabulary)
  return Corpus(vocabulary, **splits)
