"""JSON files of a workdir that are not files, or have unexpected content."""

import os
import pathlib

import pytest

from largevocab.errors import UserError
from largevocab.training.json_files import read_json, read_numbers, write_json


@pytest.mark.parametrize("make", [pathlib.Path.mkdir, os.mkfifo])
def test_path_that_is_not_a_file_is_reported_in_one_line(tmp_path, make):
  make(tmp_path / "a.json")
  with pytest.raises(UserError, match=r"a\.json is damaged"):
    read_json(str(tmp_path / "a.json"))


def test_too_large_file_is_not_read(tmp_path):
  with (tmp_path / "a.json").open("wb") as file:
    file.truncate(10**12)
  with pytest.raises(UserError, match=r"a\.json is damaged"):
    read_json(str(tmp_path / "a.json"))


def test_only_numbers_are_read_as_numbers(tmp_path):
  path = str(tmp_path / "a.json")
  write_json(path, {"a": 1, "b": float("inf")})
  assert read_numbers(path) == {"a": 1, "b": float("inf")}
  for odd in ("1", None, [1], True, 10**400):
    write_json(path, {"a": odd})
    with pytest.raises(UserError, match=r"'a' is .*, not a number"):
      read_numbers(path)
