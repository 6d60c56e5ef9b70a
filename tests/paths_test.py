"""Paths as a user gives them."""

import os
import pathlib

import pytest

from largevocab.errors import UserError
from largevocab.paths import user_path


@pytest.mark.parametrize("text", ["a", "/a/~", "a[1]*", "a\\b", "./~"])
def test_a_path_is_itself(text):
  assert user_path(text, "data.path") == pathlib.Path(text)


def test_home_directories(monkeypatch):
  monkeypatch.setenv("HOME", "/my/home")
  assert user_path("~", "data.path") == pathlib.Path("/my/home")
  assert user_path("~/a", "data.path") == pathlib.Path("/my/home/a")
  with pytest.raises(UserError, match=r"data\.path is '~nosuch/a'.*'~nosuch' has no"):
    user_path("~nosuch/a", "data.path")


def test_nobody_has_no_home(monkeypatch):
  """As in a container with a user id that no file knows."""
  monkeypatch.delenv("HOME")
  monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
  with pytest.raises(UserError, match=r"--workdir is '~/a'.*write out"):
    user_path("~/a", "--workdir")
  assert user_path("a", "--workdir") == pathlib.Path("a")


def test_no_path_has_a_nul_byte():
  with pytest.raises(UserError, match=r"data\.path"):
    user_path("a\0b", "data.path")
