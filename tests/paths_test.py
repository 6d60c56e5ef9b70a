"""Paths given by users."""

import os
import pathlib

import pytest

from largevocab.errors import UserError
from largevocab.paths import user_path


@pytest.mark.parametrize("text", ["a", "/a/~", "a[1]*", "a\\b", "./~"])
def test_plain_path_is_unchanged(text):
  assert user_path(text, "data.path") == pathlib.Path(text)


def test_home_directories_are_expanded(monkeypatch):
  monkeypatch.setenv("HOME", "/my/home")
  assert user_path("~", "data.path") == pathlib.Path("/my/home")
  assert user_path("~/a", "data.path") == pathlib.Path("/my/home/a")
  with pytest.raises(UserError, match=r"data\.path is '~nosuch/a'.*'~nosuch' has no"):
    user_path("~nosuch/a", "data.path")


def test_user_without_a_home_directory_is_refused(monkeypatch):
  """For example in a container with an unknown user id."""
  monkeypatch.delenv("HOME")
  monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
  with pytest.raises(UserError, match=r"--workdir is '~/a'.*write out"):
    user_path("~/a", "--workdir")
  assert user_path("a", "--workdir") == pathlib.Path("a")


def test_nul_byte_in_a_path_is_refused():
  with pytest.raises(UserError, match=r"data\.path"):
    user_path("a\0b", "data.path")
