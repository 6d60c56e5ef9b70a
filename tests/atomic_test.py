"""Atomic writes: a file is complete or absent."""

import errno
import fcntl
import os

import pytest

from largevocab.atomic import lock, locked, replacing, try_lock, write_text


def names(directory):
  return sorted(path.name for path in directory.iterdir())


def test_old_file_stays_until_the_new_one_is_complete(tmp_path):
  path = tmp_path / "a"
  write_text(path, "old")
  with replacing(path) as file:
    file.write(b"ne")
    file.flush()
    assert path.read_text() == "old"
    file.write("ü".encode())
  assert path.read_text(encoding="utf-8") == "neü"
  with pytest.raises(UnicodeEncodeError):
    write_text(path, "torn \udc80")
  assert path.read_text(encoding="utf-8") == "neü"
  assert names(tmp_path) == ["a"]


def test_simultaneous_writers_do_not_interfere(tmp_path):
  with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as two:
    one.write(b"one")
    two.write(b"two")
  assert (tmp_path / "a").read_bytes() == b"one"  # it ended last
  assert names(tmp_path) == ["a"]


def test_links_are_not_followed(tmp_path):
  """Neither a link in place of the file, nor one with a guessable temporary name."""
  mine = tmp_path / "mine"
  mine.write_text("mine")
  for name in ("a", "a.tmp", f"a.{os.getpid()}", f"a.{os.getpid()}.tmp"):
    (tmp_path / name).symlink_to(mine)
  write_text(tmp_path / "a", "new")
  assert mine.read_text() == "mine"
  assert (tmp_path / "a").read_text() == "new"
  assert not (tmp_path / "a").is_symlink()


def test_file_is_synced_to_disk_before_it_is_renamed(tmp_path, monkeypatch):
  calls = []

  def spy(name, call=None):
    call = getattr(os, name)
    monkeypatch.setattr(os, name, lambda *args: (calls.append(name), call(*args))[1])

  spy("fsync")
  spy("replace")
  write_text(tmp_path / "a", "new")
  assert calls == ["fsync", "replace", "fsync"]


def test_lock_of_another_is_noticed_without_waiting(tmp_path):
  path = tmp_path / "a"
  with path.open("ab") as one, path.open("ab") as two:
    assert try_lock(one, fcntl.LOCK_SH)
    assert try_lock(two, fcntl.LOCK_SH)
    assert not try_lock(two)
  with path.open("ab") as file:
    assert try_lock(file)


def test_locking_is_skipped_on_file_systems_without_locks(tmp_path, monkeypatch):
  """Some network file systems have none. Any other error is raised."""
  for number in (errno.ENOLCK, errno.ENOTSUP, errno.EBADF):
    _failing_locks(monkeypatch, number)
    with locked(tmp_path), (tmp_path / "a").open("ab") as file:
      assert not lock(file, fcntl.LOCK_EX)
      assert try_lock(file)
  _failing_locks(monkeypatch, errno.EIO)
  with pytest.raises(OSError, match="Input/output"), locked(tmp_path):
    pass


def _failing_locks(monkeypatch, number):
  def fail(*_):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(fcntl, "flock", fail)
