"""Reads the text format of the Extreme Classification Repository."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from tqdm import tqdm

from largevocab.data.labels.documents import Documents, pointers
from largevocab.data.lines import read_lines
from largevocab.errors import UserError

# A valid line. All repeats are possessive, to avoid backtracking.
_ID = r"[0-9]{1,18}+"
_VALUE = r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?"
_PAIR = re.compile(f"{_ID}:{_VALUE}")
_LINE = re.compile(rf"({_ID}(?:,{_ID})*+)?((?:[ \t]++{_ID}:{_VALUE})*+)\s*+")
_BLOCK = 2000  # lines parsed at a time
# Each label has a name and rows, even without documents, so that a bad header alone
# could use up all memory. The largest published set has 2.8 million labels.
_MOST_LABELS = 1 << 24


class XmlcFile(NamedTuple):
  """A file of the repository.

  Attributes:
    documents: the documents, with ids as in the file.
    num_features: D in the header.
    num_labels: L in the header.
  """

  documents: Documents
  num_features: int
  num_labels: int


class _Block(NamedTuple):
  heads: list[str]  # the labels of each line
  tails: list[str]  # the features of each line
  first: int  # the number of the first line


def read_xmlc(path: Path) -> XmlcFile:
  """Reads documents with their features and labels.

  The header is `N D L`, the numbers of documents, features and labels. Each other line
  is a document, `label,label feature:value feature:value`. Ids start from 0. The line
  of a document without labels begins with a blank. Blank lines after the last document
  are ignored.

  Raises:
    UserError: the file is invalid; the message has the line. Repeated labels or
      features in a document are invalid, since the format does not specify whether
      their values should be added.

  Cost: about 1 us for each non-zero; a minute for the 41 million of Amazon-670K.
  """
  lines = enumerate(read_lines(path), 1)
  num_documents, num_features, num_labels = _header(path, lines)
  blocks = []
  with tqdm(
    desc=path.name, total=num_documents, unit=" documents", disable=None
  ) as progress:
    for block in _blocks(path, lines, num_documents):
      blocks.append(_parse(path, block, num_features, num_labels))
      progress.update(len(block.heads))
  lengths, features, values, label_lengths, labels = map(
    np.concatenate, zip(*blocks, strict=True)
  )
  for present, kind in ((features, "features"), (labels, "labels")):
    if not len(present):
      raise UserError(
        f"{path}, lines 2 to {num_documents + 1}: no document has {kind}: give the "
        "file whose lines have labels and features"
      )
  documents = Documents(
    pointers(lengths), features, values, pointers(label_lengths), labels
  )
  return XmlcFile(documents, num_features, num_labels)


def read_train_and_test(train: Path, test: Path) -> tuple[XmlcFile, XmlcFile]:
  """Reads the two files of a data set.

  Raises:
    UserError: as in `read_xmlc`, or if the numbers of features or labels differ.
  """
  files = read_xmlc(train), read_xmlc(test)
  (_, *sizes), (_, *other_sizes) = files
  if sizes != other_sizes:
    raise UserError(
      f"{test}, line 1: {other_sizes[0]} features and {other_sizes[1]} labels, but in "
      f"{train} there are {sizes[0]} and {sizes[1]}: give two files of the same data "
      "set"
    )
  return files


def _header(path: Path, lines: Iterator[tuple[int, str]]) -> tuple[int, int, int]:
  _, line = next(lines, (1, ""))
  words = line.split()
  if len(words) != 3 or not all(re.fullmatch(_ID, word) for word in words):
    raise UserError(
      f"{path}, line 1: {line.strip()[:40]!r} is not a header; give three whole "
      "numbers: those of documents, features and labels"
    )
  num_documents, num_features, num_labels = numbers = [int(word) for word in words]
  if min(numbers) < 1 or max(numbers) >= 2**31:
    raise UserError(
      f"{path}, line 1: {line.strip()!r} has a number below 1 or above 2147483647; "
      "give the numbers of documents, features and labels"
    )
  if num_labels > _MOST_LABELS:
    raise UserError(
      f"{path}, line 1: {line.strip()!r} says {num_labels} labels, but at most "
      f"{_MOST_LABELS} can be classes: correct the header, or renumber the labels"
    )
  return num_documents, num_features, num_labels


def _blocks(
  path: Path, lines: Iterator[tuple[int, str]], num_documents: int
) -> Iterator[_Block]:
  """Reads as many lines as the header says, split into labels and features."""
  block, number = _Block([], [], 2), 1
  for number, line in lines:
    if number > num_documents + 1:
      if line.strip():
        raise UserError(
          f"{path}, line {number}: the header in line 1 says {num_documents} documents,"
          " but this is one more: correct the header, or copy or download the file "
          "again"
        )
      continue
    match = _LINE.fullmatch(line)
    if not match:
      _raise_fault(path, number, line)
    block.heads.append(match[1] or "")
    block.tails.append(match[2])
    if len(block.heads) == _BLOCK:
      yield block
      block = _Block([], [], number + 1)
  if number < num_documents + 1:
    raise UserError(
      f"{path}, line {number}: the file ends after {number - 1} documents, but the "
      f"header in line 1 says {num_documents}: copy or download it again"
    )
  if block.heads:
    yield block


def _parse(
  path: Path, block: _Block, num_features: int, num_labels: int
) -> tuple[np.ndarray, ...]:
  """Numbers of features, features, values, numbers of labels, labels."""
  lengths = np.array([tail.count(":") for tail in block.tails])
  pairs = np.fromstring("".join(block.tails).replace(":", " "), sep=" ")
  label_lengths = np.array([head.count(",") + 1 if head else 0 for head in block.heads])
  labels = np.fromstring(",".join(filter(None, block.heads)), np.int64, sep=",")
  features = pairs[::2].astype(np.int64)  # exact, except for ids that are out of range
  with np.errstate(over="ignore"):
    values = pairs[1::2].astype(np.float32)

  line_of_feature = block.first + np.repeat(np.arange(len(lengths)), lengths)
  line_of_label = block.first + np.repeat(np.arange(len(lengths)), label_lengths)
  for kind, ids, line_of, limit in (
    ("label", labels, line_of_label, num_labels),
    ("feature", features, line_of_feature, num_features),
  ):
    (wrong,) = np.nonzero(ids >= limit)
    if len(wrong):
      raise UserError(
        f"{path}, line {line_of[wrong[0]]}: {kind} {ids[wrong[0]]} is not below "
        f"{limit}, the number of {kind}s in line 1: correct the id or the header; ids "
        "count from 0"
      )
    key = np.sort(line_of * limit + ids)
    (wrong,) = np.nonzero(key[1:] == key[:-1])
    if len(wrong):
      line, id = divmod(int(key[wrong[0]]), limit)
      raise UserError(f"{path}, line {line}: {kind} {id} is repeated: give it once")
  (wrong,) = np.nonzero(~np.isfinite(values))
  if len(wrong):
    raise UserError(
      f"{path}, line {line_of_feature[wrong[0]]}: the value of feature "
      f"{features[wrong[0]]} is too large: give finite numbers"
    )
  return (
    lengths,
    features.astype(np.int32),
    values,
    label_lengths,
    labels.astype(np.int32),
  )


def _raise_fault(path: Path, number: int, line: str) -> NoReturn:
  """Raises an error that describes what is wrong with an invalid line."""
  labels, *pairs = re.split(r"[ \t]+", line.rstrip())
  if ":" in labels:
    raise UserError(
      f"{path}, line {number}: {labels[:40]!r} is in the place of the labels; begin "
      "the line of a document without labels with a blank"
    )
  if labels and not re.fullmatch(f"{_ID}(?:,{_ID})*", labels):
    raise UserError(
      f"{path}, line {number}: {labels[:40]!r} are not labels; give whole numbers "
      "from 0, separated by commas without blanks"
    )
  wrong = next(pair for pair in pairs if not _PAIR.fullmatch(pair))
  raise UserError(
    f"{path}, line {number}: {wrong[:40]!r} is not a feature; give id:value, a "
    "whole number from 0 and a finite number"
  )


def features_of(line: str, num_features: int) -> tuple[np.ndarray, np.ndarray]:
  """Feature ids, i32[n], and values, f32[n], of a document, given as a line of a file.

  The line need not begin with a blank. Labels, if there are any, are ignored.

  Raises:
    UserError: the line has no features, or an invalid or repeated feature.

  >>> features_of("12,7 0:0.5 3:2", num_features=4)[0].tolist()
  [0, 3]
  """
  first, *others = line.split() or [""]
  pairs = others if re.fullmatch(f"{_ID}(?:,{_ID})*", first) else line.split()
  if not pairs:
    raise UserError("no features; give id:value, separated by blanks")
  found: dict[int, float] = {}
  for pair in pairs:
    if not _PAIR.fullmatch(pair):
      raise UserError(
        f"{pair[:40]!r} is not a feature; give id:value, a whole number from 0 and a "
        "finite number"
      )
    id, value = pair.split(":")
    if int(id) >= num_features:
      raise UserError(
        f"feature {id} is not below {num_features}, the number of features; ids count "
        "from 0"
      )
    if int(id) in found:
      raise UserError(f"feature {int(id)} is repeated; give it once")
    found[int(id)] = float(value)
    if abs(float(value)) > float(np.finfo(np.float32).max):
      raise UserError(f"the value of feature {id} is too large; give finite numbers")
  return np.array(list(found), np.int32), np.array(list(found.values()), np.float32)
