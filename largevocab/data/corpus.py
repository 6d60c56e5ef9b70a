"""A text as class ids: one memory-mapped array per split, and the vocabulary."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from largevocab.data.vocabulary import Vocabulary
from largevocab.errors import UserError
from largevocab.labels import Counts

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
  """An encoded text.

  Attributes:
    vocabulary: its words; counts are those of the training split.
    train, valid, test: i32[tokens], class ids in document order.
  """

  vocabulary: Vocabulary
  train: np.ndarray
  valid: np.ndarray
  test: np.ndarray

  @property
  def counts(self) -> Counts:
    """What a head is told of the training data."""
    return Counts(self.vocabulary.counts_V, self.train)


def write_summary(directory: Path, vocabulary: Vocabulary, lengths: dict[str, int]):
  """Writes what `open_corpus` checks the files of `directory` against."""
  summary = {"vocabulary": len(vocabulary), "tokens": lengths}
  (directory / "corpus.json").write_text(json.dumps(summary, indent=1) + "\n")


def open_corpus(directory: Path) -> Corpus:
  """The corpus encoded in a directory, memory-mapped; its ids are read once to check.

  Raises:
    UserError: a file is missing, cut short or of another kind.
  """
  try:
    summary = json.loads((directory / "corpus.json").read_text())
    vocabulary = Vocabulary.load(directory / "vocabulary.txt")
    splits = {s: np.load(directory / f"{s}.npy", mmap_mode="r") for s in SPLITS}
    lengths = {s: len(splits[s]) for s in SPLITS}
    sound = (
      len(vocabulary) == summary["vocabulary"]
      and lengths == summary["tokens"]
      and int(vocabulary.counts_V.sum()) == lengths["train"]
      and all(split.dtype == np.int32 for split in splits.values())
      and all(split.min() >= 0 for split in splits.values())
      and all(split.max() < len(vocabulary) for split in splits.values())
    )
  except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
    raise _damaged(directory, str(error)) from error
  if not sound:
    raise _damaged(directory, "sizes or class ids are not those written")
  return Corpus(vocabulary, **splits)


def _damaged(directory: Path, reason: str) -> UserError:
  reason = " ".join(reason.split())
  return UserError(
    f"the encoded corpus in {directory} is damaged ({reason}): delete that directory,"
    " it will be made again"
  )
