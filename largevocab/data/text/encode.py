"""Encodes text as class ids on disk, in one pass over the text and bounded memory.

Words are first numbered in order of appearance, and the numbers are written to disk.
After the pass, when the counts of words are known, class ids replace these numbers.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from tqdm import tqdm

from largevocab.data.encoded import SPLITS, write_summary
from largevocab.data.text.vocabulary import EOS, build_vocabulary, in_order
from largevocab.errors import UserError

_BLOCK = 1 << 20  # tokens held in memory


def encode(
  directory: Path,
  texts: Mapping[str, Iterable[list[str]] | float],
  min_count: int = 1,
  max_vocab: int = 0,
  names: Iterable[str] = (),
) -> None:
  """Writes `{train,valid,test}.npy` i32[tokens], `vocabulary.txt` and a summary.

  Args:
    directory: output directory, which exists.
    texts: the words of each split, in lists of any length; `<eos>` ends a line. A
      number for valid and test is the share to cut off the end of the training text, at
      the end of a line if it has lines.
    min_count, max_vocab: see `build_vocabulary`. Only training words count.
    names: all classes, if they are known in advance; `min_count` and `max_vocab` are
      then not used.

  Raises:
    UserError: a split has no tokens, or the vocabulary has fewer than two words, or a
      word that is empty or has blanks.
  """
  numbers: defaultdict[str, int] = defaultdict()
  numbers.default_factory = numbers.__len__
  parts: dict[str, np.ndarray] = {}
  shares: dict[str, float] = {}
  for split in SPLITS:
    text = texts[split]
    if isinstance(text, float):
      shares[split] = text
    else:
      parts[split] = _write_numbers(text, numbers, directory / f"{split}.raw")
  parts |= _cut(parts["train"], shares, numbers.get(EOS))
  for split, part in parts.items():
    if not len(part):
      is_cut_short = split in shares and EOS in numbers
      more = ", or set data.line_ends=False if its last line is long"
      raise UserError(
        f"the {split} text has no words: give more text or raise its share"
        f"{more if is_cut_short else ''}"
      )

  counts = np.zeros(len(numbers), np.int64)
  for block in _blocks(parts["train"]):
    counts += np.bincount(block, minlength=len(numbers))
  count_of = dict(zip(numbers, counts.tolist(), strict=True))
  if known := dict.fromkeys(names, 0):
    vocabulary = in_order(known | count_of)
  else:
    vocabulary = build_vocabulary(count_of, min_count, max_vocab)
  class_ids = np.array(vocabulary.encode(numbers), np.int32)
  vocabulary.check_words()
  for split, part in parts.items():
    _write_ids(part, class_ids, directory / f"{split}.npy")
  vocabulary.save(directory / "vocabulary.txt")
  write_summary(directory, vocabulary, {s: len(part) for s, part in parts.items()})
  for file in directory.glob("*.raw"):
    file.unlink()


def _write_numbers(
  text: Iterable[list[str]], numbers: defaultdict[str, int], path: Path
) -> np.ndarray:
  """Writes the numbers of words to a file, and memory-maps it."""
  block = array("i")
  with (
    path.open("wb") as file,
    tqdm(desc=path.stem, unit=" tokens", unit_scale=True, disable=None) as progress,
  ):
    for words in text:
      block.extend(map(numbers.__getitem__, words))
      if len(block) >= _BLOCK:
        file.write(block)
        progress.update(len(block))
        del block[:]
    file.write(block)
    progress.update(len(block))
  empty = np.zeros(0, np.int32)  # empty files cannot be mapped
  return np.memmap(path, np.int32, "r") if path.stat().st_size else empty


def _cut(
  train: np.ndarray, shares: Mapping[str, float], eos: int | None
) -> dict[str, np.ndarray]:
  """Cuts shares off the end of `train`; returns the rest and each share."""
  if sum(shares.values()) >= 1 or any(share <= 0 for share in shares.values()):
    raise UserError(
      f"the shares of the training text for {', '.join(shares)} are "
      f"{list(shares.values())}: each must be above 0, and their sum below 1"
    )
  parts = {}
  end, left = len(train), 1.0
  for split, share in reversed(list(shares.items())):
    left -= share
    start = min(_next_line(train, round(left * len(train)), eos), end)
    parts[split] = train[start:end]
    end = start
  return parts | {"train": train[:end]}


def _next_line(tokens: np.ndarray, start: int, eos: int | None) -> int:
  """The first position, from `start` on, at which a line begins."""
  if eos is None:
    return start
  for block_start in range(max(start - 1, 0), len(tokens), _BLOCK):
    ends = np.flatnonzero(tokens[block_start : block_start + _BLOCK] == eos)
    if len(ends):
      return block_start + int(ends[0]) + 1
  return len(tokens)


def _blocks(tokens) -> Iterator[np.ndarray]:
  for start in range(0, len(tokens), _BLOCK):
    yield tokens[start : start + _BLOCK]


def _write_ids(numbers, class_ids: np.ndarray, path: Path) -> None:
  header = {"descr": "<i4", "fortran_order": False, "shape": (len(numbers),)}
  with path.open("wb") as file:
    np.lib.format.write_array_header_1_0(file, header)
    for block in _blocks(numbers):
      file.write(class_ids[block].astype("<i4", copy=False).tobytes())
