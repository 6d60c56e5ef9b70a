"""A text as class ids, with one memory-mapped array per split and the vocabulary."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from largevocab.data.batches import EvaluationBatches, TextSize, TokenBatches
from largevocab.data.encoded import damaged, open_encoded
from largevocab.data.text.vocabulary import Vocabulary
from largevocab.labels import Counts

_SIZES = "sizes.json"  # stored next to the arrays if tokens are subwords


@dataclass(frozen=True)
class Corpus:
  """An encoded text.

  Attributes:
    vocabulary: the words of the text, with counts of the training split.
    train, valid, test: i32[tokens], class ids in document order.
    sizes: sizes of the splits, if tokens are subwords.
  """

  inputs_are_classes = True

  vocabulary: Vocabulary
  train: np.ndarray
  valid: np.ndarray
  test: np.ndarray
  sizes: Mapping[str, TextSize] = field(default_factory=dict, kw_only=True)

  @property
  def counts(self) -> Counts:
    """Class counts and token stream of the training data."""
    return Counts(self.vocabulary.counts_V, self.train)

  @property
  def num_inputs(self) -> int:
    """Number of input rows, one per word."""
    return len(self.vocabulary)

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
    size = self.sizes.get(split)
    return EvaluationBatches(tokens, batch_size, unroll, self.vocabulary.eos, size)


def open_corpus(directory: Path) -> Corpus:
  """Opens the corpus encoded in a directory, memory-mapped; all ids are validated.

  Raises:
    UserError: a file is missing, truncated or of another kind.
  """
  vocabulary, splits = open_encoded(directory, Vocabulary)
  try:
    sizes = json.loads((directory / _SIZES).read_text())
    sizes = {split: TextSize(**size) for split, size in sizes.items()}
  except FileNotFoundError:
    sizes = {}
  except (OSError, ValueError, TypeError, AttributeError) as error:
    raise damaged(directory, str(error)) from error
  return Corpus(vocabulary, **splits, sizes=sizes)


def write_sizes(directory: Path, size_of: Callable[[list[str]], TextSize]) -> None:
  """Writes the sizes of an encoded corpus's held-out texts, measured on their words."""
  corpus = open_corpus(directory)
  decode = corpus.vocabulary.decode
  sizes = {s: size_of(decode(getattr(corpus, s)))._asdict() for s in ("valid", "test")}
  (directory / _SIZES).write_text(json.dumps(sizes, indent=1) + "\n")
