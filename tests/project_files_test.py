"""Project files: what they say twice is the same."""

import pathlib
import re

import largevocab

ROOT = pathlib.Path(__file__).parents[1]
read = lambda name: (ROOT / name).read_text()


def test_the_version_is_the_same_everywhere():
  (cited,) = re.findall(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE)
  assert cited == largevocab.__version__
  assert f"## {largevocab.__version__}" in read("CHANGELOG.md").replace("[", "")


def test_the_linter_before_a_commit_is_that_of_the_check():
  (installed,) = re.findall(r'"ruff==(\d+\.\d+)\.\*"', read("setup.py"))
  (hooked,) = re.findall(r"rev: v(\d+\.\d+)\.\d+", read(".pre-commit-config.yaml"))
  assert installed == hooked


def test_the_licence_is_the_same_everywhere():
  assert read("LICENSE").lstrip().startswith("Apache License")
  assert 'license="Apache-2.0"' in read("setup.py")
  assert "license: Apache-2.0" in read("CITATION.cff")


def test_types_of_the_package_are_seen_by_checkers():
  assert (ROOT / "largevocab" / "py.typed").exists()
  assert '"py.typed"' in read("setup.py")
