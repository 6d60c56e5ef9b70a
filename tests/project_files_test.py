"""Project files: facts that they repeat agree."""

import pathlib
import re

import largevocab

ROOT = pathlib.Path(__file__).parents[1]
read = lambda name: (ROOT / name).read_text()


def test_version_is_the_same_everywhere():
  (cited,) = re.findall(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE)
  assert cited == largevocab.__version__
  assert f"## {largevocab.__version__}" in read("CHANGELOG.md").replace("[", "")


def test_pre_commit_uses_the_linter_version_of_the_check():
  (installed,) = re.findall(r'"ruff==(\d+\.\d+)\.\*"', read("setup.py"))
  (hooked,) = re.findall(r"rev: v(\d+\.\d+)\.\d+", read(".pre-commit-config.yaml"))
  assert installed == hooked


def test_licence_is_the_same_everywhere():
  assert read("LICENSE").lstrip().startswith("Apache License")
  assert 'license="Apache-2.0"' in read("setup.py")
  assert "license: Apache-2.0" in read("CITATION.cff")


def test_package_is_marked_as_typed():
  assert (ROOT / "largevocab" / "py.typed").exists()
  assert '"py.typed"' in read("setup.py")
