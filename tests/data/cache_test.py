import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from largevocab.data.cache import cache_root, cached, content_key
from largevocab.errors import UserError


def write(directory):
  (directory / "file").write_text("whole")


def never(directory):
  raise AssertionError("built again")


def visible(root):
  return sorted(p.name for p in root.iterdir() if p.suffix != ".lock")


def test_built_once(tmp_path):
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


def test_killed_build_is_not_taken_for_good(tmp_path):
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
  assert [p.name for p in cached(tmp_path, "name", write).iterdir()] == ["file"]
  assert visible(tmp_path) == ["name"]


def test_of_many_at_once_one_builds(tmp_path):
  builds = []

  def build(directory):
    builds.append(directory)
    time.sleep(0.2)
    write(directory)

  with ThreadPoolExecutor(4) as pool:
    paths = set(pool.map(lambda _: cached(tmp_path, "name", build), range(4)))
  assert len(builds) == len(paths) == 1


def test_disk_full(tmp_path):
  def build(directory):
    write(directory)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with pytest.raises(UserError, match=r"No space left on device\): make room") as error:
    cached(tmp_path, "name", build)
  assert str(tmp_path) in str(error.value)
  assert visible(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_disk_full_while_writing(tmp_path):
  def build(directory):
    (directory / "train.raw").symlink_to("/dev/full")
    with (directory / "train.raw").open("wb") as file:
      file.write(b"0" * 100_000)

  with pytest.raises(UserError, match="No space left"):
    cached(tmp_path, "name", build)


def test_cache_directory_is_a_file(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(UserError, match="cannot write to the cache directory"):
    cached(tmp_path / "file", "name", write)


def test_root_is_the_argument_or_the_variable_or_the_default(monkeypatch):
  monkeypatch.setenv("LARGEVOCAB_CACHE", "/b")
  assert str(cache_root("/a")) == "/a"
  assert str(cache_root()) == "/b"
  monkeypatch.delenv("LARGEVOCAB_CACHE")
  monkeypatch.setenv("HOME", "/home/h")
  assert str(cache_root()) == "/home/h/.cache/largevocab"


def test_key_depends_on_content_order_and_options_not_on_place(tmp_path):
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


def test_a_file_is_read_once(tmp_path):
  file = tmp_path / "file"
  file.write_text("content")
  key = content_key(tmp_path, [file], [])
  times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
  file.write_text("CONTENT")  # Same size and, set back, same time: not looked into.
  os.utime(file, ns=times)
  assert content_key(tmp_path, [file], []) == key


def test_damaged_memo_is_made_anew(tmp_path):
  file = tmp_path / "file"
  file.write_text("content")
  key = content_key(tmp_path, [file], [])
  (tmp_path / "digests.json").write_text('{"half')
  assert content_key(tmp_path, [file], []) == key


def test_missing_file(tmp_path):
  with pytest.raises(UserError, match=r"no.txt cannot be read: No such file"):
    content_key(tmp_path, [tmp_path / "no.txt"], [])
