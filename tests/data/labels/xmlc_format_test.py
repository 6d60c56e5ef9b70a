"""The text format of the Extreme Classification Repository: valid and invalid files."""

import gzip
import lzma
import re

import numpy as np
import pytest

from largevocab.data.labels import xmlc_format
from largevocab.data.labels.xmlc_format import read_xmlc
from largevocab.errors import UserError

SOUND = "4 9 5\n0,4 8:1 3:-2.5e-1\n 0:2\n2\n3,1,0 1:.5 2:7.\n"


def rows(ptr, ids):
  return [part.tolist() for part in np.split(ids, ptr[1:-1])]


@pytest.fixture
def path(tmp_path):
  return tmp_path / "train.txt"


@pytest.mark.parametrize("block", [1, 2, 2000])
@pytest.mark.parametrize(
  "text",
  [
    SOUND,
    SOUND.removesuffix("\n"),
    SOUND + "\n \n",
    SOUND.replace("\n", "\r\n"),
    SOUND.replace("2\n3", "2 \n3").replace(" 3:", "\t 3:").replace("4 9 5", " 4  9 5"),
  ],
)
def test_documents_equal_those_of_the_file(path, text, block, monkeypatch):
  monkeypatch.setattr(xmlc_format, "_BLOCK", block)
  path.write_bytes(text.encode())
  documents, num_features, num_labels = read_xmlc(path)
  assert (num_features, num_labels) == (9, 5)
  assert rows(documents.feature_ptr, documents.feature_ids) == [[8, 3], [0], [], [1, 2]]
  assert rows(documents.feature_ptr, documents.values) == [
    [1, -0.25], [2], [], [0.5, 7]
  ]  # fmt: skip
  assert rows(documents.label_ptr, documents.label_ids) == [[0, 4], [], [2], [3, 1, 0]]


@pytest.mark.parametrize(
  ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_compressed_files_are_read(tmp_path, suffix, compress):
  path = tmp_path / f"train.txt{suffix}"
  path.write_bytes(compress(SOUND.encode()))
  assert read_xmlc(path).documents.number == 4


NO_HEADER = "is not a header; give three whole numbers: those of documents, features "
NO_HEADER += "and labels"
NO_FEATURE = (
  "is not a feature; give id:value, a whole number from 0 and a finite number"
)
NO_LABELS = "are not labels; give whole numbers from 0, separated by commas without "
NO_LABELS += "blanks"
IN_HEADER = "in line 1: correct the id or the header; ids count from 0"
AGAIN = "copy or download it again"


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("", f", line 1: '' {NO_HEADER}"),
    ("2 9\n0 1:1\n", f", line 1: '2 9' {NO_HEADER}"),
    ("2 9 5 1\n0 1:1\n", f", line 1: '2 9 5 1' {NO_HEADER}"),
    ("2 9 5.0\n0 1:1\n", f", line 1: '2 9 5.0' {NO_HEADER}"),
    ("-2 9 5\n0 1:1\n", f", line 1: '-2 9 5' {NO_HEADER}"),
    ("0,1 4:1 5:1\n", f", line 1: '0,1 4:1 5:1' {NO_HEADER}"),
    ("2 9 0\n0 1:1\n", ", line 1: '2 9 0' has a number below 1 or above 2147483647; "
     "give the numbers of documents, features and labels"),
    ("1 9 2000000000\n0 1:1\n", ", line 1: '1 9 2000000000' says 2000000000 labels, "
     "but at most 16777216 can be classes: correct the header, or renumber the labels"),
    ("3 9 5\n0 1:1\n1 1:1\n", ", line 3: the file ends after 2 documents, but the "
     f"header in line 1 says 3: {AGAIN}"),
    ("3 9 5\n", ", line 1: the file ends after 0 documents, but the header in line 1 "
     f"says 3: {AGAIN}"),
    ("1 9 5\n0 1:1\n\n1 1:1\n", ", line 4: the header in line 1 says 1 documents, but "
     "this is one more: correct the header, or copy or download the file again"),
    ("2 9 5\n0 1:1\n5 1:1\n", f", line 3: label 5 is not below 5, the number of labels "
     f"{IN_HEADER}"),
    ("2 9 5\n0 1:1\n1 1:1 9:1\n", f", line 3: feature 9 is not below 9, the number of "
     f"features {IN_HEADER}"),
    ("1 9 5\n0 1:1 123456789012345678:1\n", ", line 2: feature 123456789012345680 is "
     f"not below 9, the number of features {IN_HEADER}"),
    ("1 9 5\n-1 1:1\n", f", line 2: '-1' {NO_LABELS}"),
    ("1 9 5\n1,,2 1:1\n", f", line 2: '1,,2' {NO_LABELS}"),
    ("1 9 5\n1, 2 1:1\n", f", line 2: '1,' {NO_LABELS}"),
    ("1 9 5\ncat 1:1\n", f", line 2: 'cat' {NO_LABELS}"),
    ("1 9 5\n1:1 2:1\n", ", line 2: '1:1' is in the place of the labels; begin the "
     "line of a document without labels with a blank"),
    ("2 9 5\n0 1:1\n0 1:x\n", f", line 3: '1:x' {NO_FEATURE}"),
    ("1 9 5\n0 1:1 -1:1\n", f", line 2: '-1:1' {NO_FEATURE}"),
    ("1 9 5\n0 1.0:1\n", f", line 2: '1.0:1' {NO_FEATURE}"),
    ("1 9 5\n0 1\n", f", line 2: '1' {NO_FEATURE}"),
    ("1 9 5\n0 1: 2\n", f", line 2: '1:' {NO_FEATURE}"),
    ("1 9 5\n0 1:2:3 4\n", f", line 2: '1:2:3' {NO_FEATURE}"),
    ("1 9 5\n0 1:1_0\n", f", line 2: '1:1_0' {NO_FEATURE}"),
    ("1 9 5\n0 1:nan\n", f", line 2: '1:nan' {NO_FEATURE}"),
    ("1 9 5\n0 1:inf\n", f", line 2: '1:inf' {NO_FEATURE}"),
    ("1 9 5\n0 1:1e999\n", ", line 2: the value of feature 1 is too large: give finite "
     "numbers"),
    ("2 9 5\n0 1:1\n0 4:1e39\n", ", line 3: the value of feature 4 is too large: give "
     "finite numbers"),
    ("1 9 5\n3,1,3 1:1\n", ", line 2: label 3 is repeated: give it once"),
    ("2 9 5\n3 1:1\n3 1:1 2:2 1:1\n", ", line 3: feature 1 is repeated: give it once"),
    ("2 9 5\n1,2\n3\n", ", lines 2 to 3: no document has features: give the file "
     "whose lines have labels and features"),
    ("2 9 5\n 1:1\n 2:1\n", ", lines 2 to 3: no document has labels: give the file "
     "whose lines have labels and features"),
  ],
)  # fmt: skip
def test_invalid_line_is_reported_with_file_and_line(path, text, message):
  path.write_text(text)
  with pytest.raises(UserError, match=rf"^{re.escape(f'{path}{message}')}$"):
    read_xmlc(path)


@pytest.mark.parametrize("block", [1, 2, 3, 2000])
def test_invalid_line_in_any_block_is_named(path, block, monkeypatch):
  monkeypatch.setattr(xmlc_format, "_BLOCK", block)
  lines = ["5 9 5", *["0 1:1"] * 5]
  for number in range(2, 7):
    for fault, message in (("7 1:1", "label 7"), ("1 1:1 1:1", "feature 1 is repeated"),
                           ("1 9:1", "feature 9"),
                           ("1 x", "'x' is not a")):  # fmt: skip
      path.write_text("\n".join([*lines[: number - 1], fault, *lines[number:]]))
      with pytest.raises(UserError, match=f"line {number}: {message}"):
        read_xmlc(path)


def test_missing_and_truncated_files_are_reported(path, tmp_path):
  with pytest.raises(UserError, match=r"train\.txt cannot be read"):
    read_xmlc(path)
  cut = tmp_path / "train.txt.gz"
  cut.write_bytes(gzip.compress(SOUND.encode())[:-10])
  with pytest.raises(UserError, match="is cut short: copy or download it again"):
    read_xmlc(cut)
