"""Splits that are published as line numbers."""

import pathlib

import pytest

from largevocab.data import sources
from largevocab.data.labels.xmlc_format import read_train_and_test
from largevocab.errors import UserError
from largevocab.tools import fetch
from tests.tools.fetching.packing import zip_of

SPLIT = {
  "D/D_data.txt": b"3 5 2\n0 1:1\n1 2:1 3:1\n0,1 4:1\n",
  "D/d_trSplit.txt": b"3 1\n1 2\n",
  "D/d_tstSplit.txt": b"2 3",
}


def test_loader_reads_splits_by_line_numbers(tmp_path):
  assert with_splits(zip_of(SPLIT), tmp_path) == 0
  assert (tmp_path / "d_train.txt").read_text() == "2 5 2\n0,1 4:1\n0 1:1\n"
  assert (tmp_path / "d_test.txt").read_text() == "1 5 2\n1 2:1 3:1\n"
  train, test = read_train_and_test(tmp_path / "d_train.txt", tmp_path / "d_test.txt")
  assert (train.documents.number, test.documents.number) == (2, 1)
  assert (train.num_features, train.num_labels) == (5, 2)
  recorded = (tmp_path / "d.sha256").read_text().split()[1::2]
  assert recorded[-2:] == ["d_train.txt", "d_test.txt"]


@pytest.mark.parametrize(
  ("name", "content", "says"),
  [
    ("D/d_trSplit.txt", b"1 1\n4 1\n", r"trSplit.txt, line 2: '4' is not a .* to 3"),
    ("D/d_tstSplit.txt", b"x", r"line 1: 'x' is not a number"),
    ("D/d_tstSplit.txt", b"", "tstSplit.txt is empty"),
    ("D/D_data.txt", b"", "0 lines below the header ''"),
    ("D/D_data.txt", b"9 5 2\n0 1:1\n", "1 lines below the header '9 5 2'"),
  ],
)
def test_invalid_splits_are_refused(name, content, says, tmp_path):
  with pytest.raises(UserError, match=says):
    with_splits(zip_of(SPLIT | {name: content}), tmp_path)
  assert not (tmp_path / "d.sha256").exists()


def with_splits(content: bytes, directory: pathlib.Path):
  row = sources._xmlc_with_splits("D")
  (directory / "D.zip").write_bytes(content)
  return fetch.main(["d", str(directory)], {"d": row})
