"""Files named by a setting."""

import gzip
import os

import pytest

from largevocab.data.files import find_file, find_files
from largevocab.data.lines import read_lines
from largevocab.errors import UserError


@pytest.mark.parametrize("suffix", ["", ".gz", ".GZ"])
def test_file_is_found_plain_or_compressed(tmp_path, suffix):
  path = tmp_path / f"a.txt{suffix}"
  path.write_bytes(gzip.compress(b"text") if suffix else b"text")
  found = find_file(str(tmp_path), "a.txt", "data.path")
  assert found == path
  assert list(read_lines(found)) == ["text"]


def test_pattern_finds_only_files(tmp_path):
  (tmp_path / "b").write_text("")
  (tmp_path / "a").write_text("")
  (tmp_path / "c").mkdir()
  assert find_files(f"{tmp_path}/*", "data.train") == [tmp_path / "a", tmp_path / "b"]
  (tmp_path / "[a]").write_text("")
  assert find_files(f"{tmp_path}/[a]", "data.train") == [tmp_path / "[a]"]


@pytest.mark.parametrize("find", [find_files, lambda path, s: find_file(path, "a", s)])
def test_missing_files_are_reported_in_one_line(tmp_path, find):
  with pytest.raises(UserError, match=r"^data\.train: no "):
    find(str(tmp_path / "no"), "data.train")
  with pytest.raises(UserError, match=r"^data\.train is empty: set it to"):
    find("", "data.train")
  with pytest.raises(UserError, match=r"^data\.train: a{80} cannot .* name too long"):
    find("a" * 5000, "data.train")


def test_directories_and_pipes_are_refused(tmp_path):
  with pytest.raises(UserError, match=rf"{tmp_path} is a directory: .*{tmp_path}/\*$"):
    find_files(str(tmp_path), "data.train")
  os.mkfifo(tmp_path / "pipe")
  with pytest.raises(UserError, match=r"pipe is not a regular file: copy it to one"):
    find_files(str(tmp_path / "pipe"), "data.train")
