"""The lock of a workdir: unexpected files, and file systems without locks."""

import errno
import fcntl
import os

import pytest

from largevocab.errors import UserError
from largevocab.training.lock import held
from tests.long import others_long

CONTENTS = [b"", b"[" * 10**5, b"7", b"\xff", b'{"pid": 1}']


@pytest.mark.parametrize("content", others_long(CONTENTS, CONTENTS[:2]))
def test_content_of_a_lock_file_does_not_matter(tmp_path, content):
  with held(str(tmp_path)):
    (tmp_path / "lock").write_bytes(content)
    with (
      pytest.raises(UserError, match=r"is in use: another process is training in it"),
      held(str(tmp_path)),
    ):
      pass


def test_training_works_on_a_file_system_without_locks(tmp_path, caplog, monkeypatch):
  def no_locks(file, kind):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

  monkeypatch.setattr(fcntl, "flock", no_locks)
  with caplog.at_level("WARNING", "largevocab"), held(str(tmp_path)):
    assert "cannot be locked" in caplog.text
