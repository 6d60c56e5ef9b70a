import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from largevocab.data import cache
from largevocab.data.cache import cache_root, cached, content_key
from largevocab.errors import UserError


def write(directory):
  (directory / "file").write_text("whole")


def never(directory):
  raise AssertionError("built again")


def visible(root):
  """All entries except locks and the memo of digests."""
  names = {p.name for p in root.iterdir() if p.suffix != ".lock"} - {"digests.json"}
  return sorted(name.partition("-")[0] for name in names)


def test_entry_is_built_once(tmp_path):
  path = cached(tmp_path / "new", "name", write)
  assert (path / "file").read_text() == "whole"
  assert cached(tmp_path / "new", "name", never) == path
  assert visible(tmp_path / "new") == ["name"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupted_build_leaves_nothing(tmp_path, error):
  def build(directory):
    write(directory)
    raise error

  with pytest.raises(error):
    cached(tmp_path, "name", build)
  assert visible(tmp_path) == []
  assert (cached(tmp_path, "name", write) / "file").exists()


def test_killed_build_is_not_used(tmp_path):
  script = f"""
    import time
    from pathlib import Path
    from largevocab.data.cache import cached

    def build(directory):
      (directory / "half").write_text("ha")
      print("building", flush=True)
      time.sleep(60)

    cached(Path({str(tmp_path)!r}), "name", build)
  """
  with subprocess.Popen(
    [sys.executable, "-c", textwrap.dedent(script)],
    stdout=subprocess.PIPE,
    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
  ) as process:
    assert process.stdout is not None
    assert process.stdout.readline() == b"building\n"
    process.send_signal(signal.SIGKILL)
  assert visible(tmp_path) == ["name.partial"]
  assert (cached(tmp_path, "name", write) / "file").read_text() == "whole"
  assert not (tmp_path / "name" / "half").exists()
  assert visible(tmp_path) == ["name"]


def test_only_one_of_simultaneous_callers_builds(tmp_path):
  builds = []

  def build(directory):
    builds.append(directory)
    time.sleep(0.2)
    write(directory)

  with ThreadPoolExecutor(4) as pool:
    paths = set(pool.map(lambda _: cached(tmp_path, "name", build), range(4)))
  assert len(builds) == len(paths) == 1


def test_full_disk_is_reported(tmp_path):
  def build(directory):
    write(directory)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with pytest.raises(UserError, match=r"No space left on device\): make room") as error:
    cached(tmp_path, "name", build)
  assert str(tmp_path) in str(error.value)
  assert visible(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_while_writing_is_reported(tmp_path):
  def build(directory):
    (directory / "train.raw").symlink_to("/dev/full")
    with (directory / "train.raw").open("wb") as file:
      file.write(b"0" * 100_000)

  with pytest.raises(UserError, match="No space left"):
    cached(tmp_path, "name", build)


def test_file_as_cache_directory_is_refused(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(UserError, match="cannot write to the cache directory"):
    cached(tmp_path / "file", "name", write)


def test_root_is_the_argument_the_variable_or_the_default(monkeypatch):
  monkeypatch.setenv("LARGEVOCAB_CACHE", "/b")
  assert str(cache_root("/a")) == "/a"
  assert str(cache_root()) == "/b"
  monkeypatch.delenv("LARGEVOCAB_CACHE")
  monkeypatch.setenv("HOME", "/home/h")
  assert str(cache_root()) == "/home/h/.cache/largevocab"


@pytest.fixture
def no_home(monkeypatch, tmp_path):
  """No HOME and an unknown user id, as in a container."""
  monkeypatch.delenv("HOME")
  monkeypatch.delenv("LARGEVOCAB_CACHE", raising=False)
  monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  return tmp_path


def test_cache_without_a_home_directory_is_temporary_with_a_warning(
  no_home, caplog, monkeypatch
):
  root = cache_root()
  assert root.parent == no_home
  assert root.stat().st_mode & 0o777 == 0o700
  assert f"encoded data is kept in {root}; set LARGEVOCAB_CACHE" in caplog.text
  assert cache_root() == root
  caplog.clear()
  assert str(cache_root("/a")) == "/a"
  monkeypatch.setenv("LARGEVOCAB_CACHE", "/b")
  assert str(cache_root()) == "/b"
  assert caplog.text == ""


def test_temporary_cache_of_another_user_is_refused(no_home):
  root = cache_root()
  root.rmdir()
  (no_home / "elsewhere").mkdir()
  root.symlink_to(no_home / "elsewhere")
  with pytest.raises(UserError, match="cannot be used: set LARGEVOCAB_CACHE"):
    cache_root()


def test_unknown_home_directory_is_refused(monkeypatch):
  with pytest.raises(
    UserError, match=r"^data\.cache_dir is '~nosuch/a', but '~nosuch'"
  ):
    cache_root("~nosuch/a")
  monkeypatch.setenv("LARGEVOCAB_CACHE", "~nosuch/a")
  with pytest.raises(UserError, match=r"^LARGEVOCAB_CACHE is '~nosuch/a'"):
    cache_root()


def test_key_depends_on_content_order_and_options_but_not_on_paths(tmp_path):
  cache, one, two, copy = (tmp_path / name for name in ("cache", "1", "2", "copy"))
  one.write_text("one")
  two.write_text("two")
  copy.write_text("one")
  key = content_key(cache, [one, two], {"a": 1})
  assert key == content_key(cache, [copy, two], {"a": 1})
  assert key == content_key(tmp_path / "other", [one, two], {"a": 1})
  assert key != content_key(cache, [two, one], {"a": 1})
  assert key != content_key(cache, [one, two], {"a": 2})
  one.write_text("One")
  os.utime(one, ns=(1, 1))
  assert key != content_key(cache, [one, two], {"a": 1})


def test_unchanged_file_is_read_once(tmp_path):
  file = tmp_path / "file"
  file.write_text("content")
  key = content_key(tmp_path, [file], [])
  times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
  file.write_text("CONTENT")  # Same size and restored time: it is not read again.
  os.utime(file, ns=times)
  assert content_key(tmp_path, [file], []) == key


def test_damaged_memo_is_replaced(tmp_path):
  file = tmp_path / "file"
  file.write_text("content")
  key = content_key(tmp_path, [file], [])
  (tmp_path / "digests.json").write_text('{"half')
  assert content_key(tmp_path, [file], []) == key


@pytest.mark.parametrize(
  "content",
  [
    *("", "[]", "3", "null", '"text"', "\0", "[" * 100_000, '{"a": 3}', "\ud800"),
    '{"%s": [[], 3]}',
    '{"%s": "0123"}',
    '{"%s": [null, "0123"]}',
    '{"%s": {"digest": "0123"}}',
  ],
)
def test_memo_with_unexpected_content_is_replaced(tmp_path, content):
  file = tmp_path / "file"
  file.write_text("content")
  key = content_key(tmp_path, [file], [])
  path = cached(tmp_path, "name", write)
  content = content.replace("%s", str(file))
  (tmp_path / "digests.json").write_bytes(content.encode("utf-8", "surrogatepass"))
  assert content_key(tmp_path, [file], []) == key
  assert cached(tmp_path, "name", never) == path


def write_two(directory):
  np.save(directory / "train.npy", np.arange(1000))
  (directory / "vocabulary.txt").write_text("a\t3\nb\t2\n")


def half_zero(path):
  data = path.read_bytes()
  path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def other_byte(path):
  path.write_bytes(path.read_bytes().replace(b"\t", b"t", 1))


@pytest.mark.parametrize(
  ("name", "damage"),
  [
    ("train.npy", half_zero),
    ("vocabulary.txt", other_byte),
    ("checksums.json", lambda path: path.write_text("{}")),
    *[
      (name, damage)
      for name in ("train.npy", "vocabulary.txt", "checksums.json")
      for damage in (
        half_zero,
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, 10),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.write_text('{"train.npy": [3]}'),
      )
    ],
  ],
)
def test_damaged_files_are_rebuilt(tmp_path, name, damage, caplog):
  path = cached(tmp_path, "name", write_two)
  whole = {p.name: p.read_bytes() for p in path.iterdir()}
  for _ in range(2):
    os.utime(path / name, ns=(7, 7))  # the clock may be too coarse to show the change
    damage(path / name)
    assert cached(tmp_path, "name", write_two) == path
    assert {p.name: p.read_bytes() for p in path.iterdir()} == whole
  lines = [record.getMessage() for record in caplog.records]
  assert len(lines) == 2
  assert lines[0].startswith(f"{path} is damaged ({name} ")
  assert lines[0].endswith(") and is made again")
  assert cached(tmp_path, "name", never) == path
  assert visible(tmp_path) == ["name"]


def test_files_are_read_again_only_if_they_changed(tmp_path, monkeypatch):
  path = cached(tmp_path, "name", write_two)
  reads = []
  digest = hashlib.file_digest

  def count(file, name):
    reads.append(file.name)
    return digest(file, name)

  monkeypatch.setattr(cache.hashlib, "file_digest", count)
  cached(tmp_path, "name", never)
  assert reads == []
  os.utime(path / "train.npy", ns=(1, 1))
  for _ in range(2):
    cached(tmp_path, "name", never)
  assert reads == [str(path / "train.npy")]
  (tmp_path / "digests.json").unlink()
  cached(tmp_path, "name", never)
  assert len(reads) == 3


def test_damaged_files_stay_if_they_cannot_be_rebuilt(tmp_path):
  path = cached(tmp_path, "name", write)
  (path / "file").write_text("other")

  def gone(directory):
    raise UserError("no source")

  with pytest.raises(UserError, match="no source"):
    cached(tmp_path, "name", gone)
  assert (path / "file").read_text() == "other"
  assert visible(tmp_path) == ["name"]


def test_cache_of_an_older_version_is_rebuilt(tmp_path, caplog):
  write((tmp_path / "name").mkdir() or tmp_path / "name")
  cached(tmp_path, "name", write_two)
  assert "checksums.json is missing) and is made again" in caplog.text
  assert cached(tmp_path, "name", never).joinpath("train.npy").exists()


def test_files_are_synced_to_disk_before_they_are_renamed(tmp_path, monkeypatch):
  calls = []

  def spy(name, call):
    monkeypatch.setattr(os, name, lambda *args: (calls.append(name), call(*args))[1])

  spy("fsync", os.fsync)
  spy("rename", os.rename)
  cached(tmp_path, "name", write_two)
  assert calls.count("rename") == 1
  # Both files, their checksums and their directory.
  assert calls[: calls.index("rename")] == ["fsync"] * 4
  assert "fsync" in calls[calls.index("rename") :]


def test_processes_without_locks_do_not_interfere(tmp_path, monkeypatch):
  """For example on file systems without locks."""

  def no_locks(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

  monkeypatch.setattr(fcntl, "flock", no_locks)
  started = threading.Barrier(4)

  def build(directory):
    started.wait()
    write(directory)

  with ThreadPoolExecutor(4) as pool:
    paths = set(pool.map(lambda _: cached(tmp_path, "name", build), range(4)))
  assert [path.joinpath("file").read_text() for path in paths] == ["whole"]
  assert visible(tmp_path) == ["name"]


def test_link_in_place_of_a_lock_is_not_followed(tmp_path):
  mine = tmp_path / "mine"
  mine.write_text("mine")
  root = tmp_path / "cache"
  root.mkdir()
  (root / "name.lock").symlink_to(mine)
  with pytest.raises(UserError, match="cache directory"):
    cached(root, "name", write)
  assert mine.read_text() == "mine"


def test_too_many_open_files_are_reported(tmp_path):
  def build(directory):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

  with pytest.raises(
    UserError, match=r"Too many open files.*raise `ulimit -n`"
  ) as error:
    cached(tmp_path, "name", build)
  assert "make room" not in str(error.value)


def test_missing_source_file_is_reported(tmp_path):
  with pytest.raises(UserError, match=r"no.txt cannot be read: No such file"):
    content_key(tmp_path, [tmp_path / "no.txt"], [])
