"""Data sets of a user's project are encoded again when their code changes."""

import importlib
import sys

import pytest

from largevocab.data import DATASETS
from largevocab.data.cache import class_key
from largevocab.errors import UserError

TEXT = """
from largevocab.data.text.plain import TextFiles as Base
class Own(Base):
  def split(self, line):
    return [word + "{}" for word in line.split()]
"""
DOCUMENTS = """
from largevocab.data.labels.xmlc import Xmlc as Base
class Own(Base):
  def read(self, files):
    labels = super().read(files)
    return labels._replace(names=[name + "{}" for name in labels.names])
"""
HISTORIES = """
from largevocab.data.items.video_games import VideoGames as Base
class Own(Base):
  def read(self, files):
    found = super().read(files)
    return found._replace(items_I=found.items_I * 10 + {})
"""
FILES = {
  "text.txt": "a b\nc d\n" * 50,
  "train.txt": "4 2 3\n0 0:1\n1 1:1\n2 0:1\n0,1 0:1\n",
  "test.txt": "2 2 3\n0 0:1\n1 1:1\n",
  "sasrec_Video.txt": "1 6\n1 8\n1 6\n1 4\n2 6\n2 8\n2 4\n",
}


@pytest.fixture
def own(tmp_path, monkeypatch):
  """Imports a class of a module with this code."""
  monkeypatch.setattr(sys, "dont_write_bytecode", True)
  monkeypatch.syspath_prepend(tmp_path)

  def own(code, module="own_data"):
    (tmp_path / f"{module}.py").write_text(code)
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module(module).Own

  yield own
  for module in ("own_data", "other_data"):
    sys.modules.pop(module, None)


@pytest.mark.parametrize(
  ("code", "settings"),
  [
    (TEXT, {"train": "text.txt"}),
    (DOCUMENTS, {"path": "", "valid_share": 0.3}),
    (HISTORIES, {"path": ""}),
  ],
  ids=["text", "documents", "histories"],
)
def test_changed_code_encodes_data_again(own, tmp_path, code, settings):
  for name, content in FILES.items():
    (tmp_path / name).write_text(content)
  settings = {
    key: str(tmp_path / value) if isinstance(value, str) else value
    for key, value in settings.items()
  }
  words = []
  for number in (1, 2):
    data = own(code.format(number))(cache_dir=str(tmp_path / "cache"), **settings)
    words.append({*data.load().vocabulary.words} - {"<eos>", "<unk>"})
  assert all(word.endswith("1") for word in words[0])
  assert all(word.endswith("2") for word in words[1])


def test_label_with_a_blank_is_named(own, tmp_path):
  for name, content in FILES.items():
    (tmp_path / name).write_text(content)
  data = own(DOCUMENTS.format(" x"))(
    path=str(tmp_path), valid_share=0.3, cache_dir=str(tmp_path / "cache")
  )
  message = r"^'0 x' cannot be a class: give names that are not empty"
  with pytest.raises(UserError, match=message):
    data.load()


def test_key_of_packaged_classes_is_their_name():
  """A change of these keys makes all users encode their data again."""
  for name in ("ptb", "xmlc", "video_games"):
    assert class_key(DATASETS[name]) == DATASETS[name].__name__


def test_key_includes_the_code_of_bases_and_the_module(own):
  code = TEXT.replace("Own", "Middle") + "class Own(Middle):\n  pass\n"
  keys = [class_key(own(code.format(number))) for number in (1, 2)]
  assert keys[0] != keys[1]
  assert class_key(own(code.format(2))) == keys[1]
  assert class_key(own(code.format(2), "other_data")) != keys[1]


def test_code_without_a_source_has_a_key():
  names = {"__name__": "no_such_module"}
  exec(TEXT, names)
  assert class_key(names["Own"]) == ["Own", "no_such_module", ""]
