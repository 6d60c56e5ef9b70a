"""Files that a setting names."""

import gzip
import os

import pytest

from largevocab.data.files import find_file, find_files
from largevocab.data.lines import read_lines
from largevocab.errors import UserError


@pytest.mark.parametrize("suffix", ["", ".gz", ".GZ"])
def test_a_file_is_found_plain_or_compressed(tmp_path, suffix):
  path = tmp_path / f"a.txt{suffix}"
  path.write_bytes(gzip.compress(b"text") if suffix else b"text")
  found = find_file(str(tmp_path), "a.txt", "data.path")
  assert found == path
  assert list(read_lines(found)) == ["text"]


def test_a_pattern_finds_files_only(tmp_path):
  (tmp_path / "b").write_text("")
  (tmp_path / "a").write_text("")
  (tmp_path / "c").mkdir()
  assert find_files(f"{tmp_path}/*", "data.train") == [tmp_path / "a", tmp_path / "b"]
  (tmp_path / "[a]").write_text("")
  assert find_files(f"{tmp_path}/[a]", "data.train") == [tmp_path / "[a]"]


@pytest.mark.parametrize("find", [find_files, lambda path, s: find_file(path, "a", s)])
def test_what_is_not_there_is_one_line(tmp_path, find):
  with pytest.raises(UserError, match=r"^data\.train: no "):
    find(str(tmp_path / "no"), "data.train")
  with pytest.raises(UserError, match=r"^data\.train is empty: set it to"):
    find("", "data.train")
  with pytest.raises(UserError, match=r"^data\.train: a{80} cannot .* name too long"):
    find("a" * 5000, "data.train")


def test_a_directory_is_not_read_and_a_pipe_not_waited_for(tmp_path):
  with pytest.raises(UserError, match=rf"{tmp_path} is a directory: .*{tmp_path}/\*$"):
    find_files(str(tmp_path), "data.train")
  os.mkfifo(tmp_path / "pipe")
  with pytest.raises(UserError, match=r"pipe is no file on disk: copy it to one"):
    find_files(str(tmp_path / "pipe"), "data.train")
