from largevocab.data import DATASETS
from largevocab.data.text import stdlib
from largevocab.data.text.vocabulary import EOS


def library(tmp_path, monkeypatch, files):
  for name, content in files.items():
    path = tmp_path / "lib" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
  paths = {"stdlib": str(tmp_path / "lib")}
  monkeypatch.setattr(stdlib.sysconfig, "get_paths", lambda: paths)
  return DATASETS["stdlib"](cache_dir=str(tmp_path / "cache"), min_count=1)


def test_source_is_split_into_words(tmp_path, monkeypatch):
  source = "def naïve_x1(a):\n  return a**2.5\n".encode()
  files = {f"m{n}.py": source for n in range(60)}
  corpus = library(tmp_path, monkeypatch, files).load()
  words = corpus.vocabulary.decode(corpus.train[:17])
  assert " ".join(words) == (
    "def naïve_x1 ( a ) : <eos> return a * * 2 . 5 <eos> def naïve_x1"
  )


def test_tests_and_other_files_are_left_out(tmp_path, monkeypatch):
  files = {f"pkg/m{n}.py": b"good good2\n" for n in range(60)}
  for name in ("test/t.py", "pkg/tests/t.py", "site-packages/p.py", "__pycache__/c.py"):
    files[name] = b"bad\n"
  files["notes.txt"] = b"bad\n"
  files["latin.py"] = b"bad \xe9\n"
  (tmp_path / "lib").mkdir()
  (tmp_path / "lib" / "gone.py").symlink_to(tmp_path / "nowhere")
  corpus = library(tmp_path, monkeypatch, files).load()
  assert set(corpus.vocabulary.words) == {"good", "good2", EOS, "<unk>"}
  assert sum(map(len, (corpus.train, corpus.valid, corpus.test))) == 60 * 3


def test_path_of_a_file_decides_its_split(tmp_path, monkeypatch):
  files = {f"m{n}.py": b"name%d\n" % n for n in range(200)}
  texts = library(tmp_path, monkeypatch, files).texts()
  names = {split: {p.name for p in text.files} for split, text in texts.items()}
  assert len(set.union(*names.values())) == sum(map(len, names.values())) == 200
  assert all(2 <= len(names[split]) <= 25 for split in ("valid", "test"))
  del files["m0.py"]
  (tmp_path / "lib" / "m0.py").unlink()
  fewer = library(tmp_path, monkeypatch, files).texts()
  for split, text in fewer.items():
    assert {p.name for p in text.files} == names[split] - {"m0.py"}
    assert list(text.files) == sorted(text.files)


def test_installed_library_is_large():
  texts = DATASETS["stdlib"]().texts()
  assert all(len(text.files) >= 10 for text in texts.values())
  assert sum(len(text.files) for text in texts.values()) > 300
