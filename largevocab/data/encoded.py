"""Directories of encoded data: an array per split, the classes, and a summary."""

import json
from pathlib import Path
from typing import TypeVar

import numpy as np

from largevocab.data.classes import Classes
from largevocab.errors import UserError

SPLITS = ("train", "valid", "test")
C = TypeVar("C", bound=Classes)


def write_summary(directory: Path, classes: Classes, lengths: dict[str, int]) -> None:
  """Writes the summary that `open_encoded` uses to validate the files."""
  summary = {"vocabulary": len(classes), "tokens": lengths}
  (directory / "corpus.json").write_text(json.dumps(summary, indent=1) + "\n")


def open_encoded(
  directory: Path, kind: type[C], padding: bool = False
) -> tuple[C, dict[str, np.ndarray]]:
  """Opens the classes, and i32[n] or i32[n, K] for each split, memory-mapped.

  All ids are read once for validation.

  Args:
    directory: a directory with `{train,valid,test}.npy`, `vocabulary.txt` and the
      summary.
    kind: type of the classes.
    padding: whether V, the number of classes, is a valid id, too.

  Raises:
    UserError: a file is missing, truncated or of another kind.
  """
  try:
    summary = json.loads((directory / "corpus.json").read_text())
    classes = kind.load(directory / "vocabulary.txt")
    splits = {s: np.load(directory / f"{s}.npy", mmap_mode="r") for s in SPLITS}
    lengths = {s: len(splits[s]) for s in SPLITS}
    sound = (
      len(classes) == summary["vocabulary"]
      and lengths == summary["tokens"]
      and int(classes.counts_V.sum()) == lengths["train"]
      and all(split.dtype == np.int32 for split in splits.values())
      and all(split.min() >= 0 for split in splits.values())
      and all(split.max() < len(classes) + padding for split in splits.values())
    )
  except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
    raise damaged(directory, str(error)) from error
  if not sound:
    raise damaged(directory, "sizes or class ids differ from those written")
  return classes, splits


def damaged(directory: Path, reason: str) -> UserError:
  """The error for encoded data that cannot be read."""
  reason = " ".join(reason.split())
  return UserError(
    f"the encoded corpus in {directory} is damaged ({reason}): delete that directory,"
    " and it will be made again"
  )
