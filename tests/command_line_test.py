"""Config files: what they can import."""

import importlib
import sys

import pytest

from largevocab import command_line
from largevocab.tools.sweeps.launch import REPOSITORY

CONFIG = """
from largevocab import command_line
from beside_a_config import HEAD

def get_config(arg):
  return command_line.load(f"quickstart:{HEAD},{arg}")
"""


@pytest.fixture
def path(monkeypatch):
  """sys.path before a config is loaded."""
  before = [*sys.path]
  monkeypatch.setattr(sys, "path", [*before])
  return before


def test_config_file_can_import_neighbouring_modules(tmp_path, path, monkeypatch):
  folder = tmp_path / "sub"
  folder.mkdir()
  (folder / "mine.py").write_text(CONFIG)
  (folder / "beside_a_config.py").write_text("HEAD = 'huffman'\n")
  (folder / "imported_later.py").touch()
  monkeypatch.chdir(tmp_path)
  try:
    for argument in ("sub/mine.py:runlocal", f"{folder}/mine.py:runlocal"):
      assert command_line.load(argument).head.name == "huffman"
      assert sys.path == [str(folder), *path]
    monkeypatch.chdir("/")
    assert importlib.import_module("imported_later")
  finally:
    for name in ("beside_a_config", "imported_later"):
      sys.modules.pop(name, None)


def test_packaged_configs_do_not_shadow_modules(path):
  """A config can have the name of a module that others import, such as `text`."""
  (file,) = (REPOSITORY / "configs").glob("quickstart.py")
  for argument in ("quickstart", str(file)):
    command_line.load(argument)
    assert sys.path == path
