"""docs/glossary.md: all code that it names exists."""

import dataclasses
import importlib
import pathlib
import re

import pytest

import largevocab
from largevocab.config import REGISTRIES, SETTINGS
from largevocab.heads import HEADS

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "glossary.md").read_text()
TERMS, _, LETTERS = PAGE.partition("## Shape letters")
ROWS = re.findall(r"^\| (?!term|---)(.+?) \| (.+) \| (.+?) \|$", TERMS, re.MULTILINE)
CODE = sorted({name for *_, cell in ROWS for name in re.findall(r"`([^`]+)`", cell)})


def found(dotted: str) -> bool:
  """Whether a name is a module, or an attribute or field of something in a module."""
  parts = dotted.split(".")
  for length in range(len(parts), 0, -1):
    try:
      place = importlib.import_module(".".join(parts[:length]))
    except ModuleNotFoundError:
      continue
    for name in parts[length:]:
      known = {*dir(place), *getattr(place, "__annotations__", {})}
      if name not in known:
        return False
      place = getattr(place, name, None)
    return True
  return False


def is_key(name: str) -> bool:
  """Whether a name is a config key: head.FIELD, or a setting of a run."""
  block, _, field = name.rpartition(".")
  blocks = {"head": HEADS, "head.loss": REGISTRIES["loss"]}
  classes = [*blocks[block].values()] if block in blocks else [SETTINGS.get(block)]
  names = {f.name for c in classes if c for f in dataclasses.fields(c)}
  return field in names


def is_metric(name: str) -> bool:
  heads = (ROOT / "largevocab" / "heads").glob("*.py")
  key = name.removeprefix("monitor/")
  return any(f'"{key}"' in path.read_text() for path in heads)


@pytest.mark.parametrize("name", CODE)
def test_code_of_terms_exists(name):
  if name.startswith("monitor/"):
    assert is_metric(name)
  elif "/" in name:
    assert (ROOT / name).exists()
  elif name.startswith("largevocab"):
    assert found(name)
  else:
    assert is_key(name)


def test_every_term_has_its_code():
  assert len(ROWS) > 40
  assert all("`" in cell for *_, cell in ROWS)


def test_missing_names_are_detected():
  assert not found("largevocab.heads.Nothing")
  assert not found("largevocab.nothing.Head")
  assert not is_key("head.nothing")
  assert not is_metric("monitor/nothing")


def test_shape_letters_of_the_package_are_in_the_table():
  in_table = set(re.findall(r"`([A-Z])`", LETTERS))
  letters = re.findall(r"^  ([A-Z]) [a-z]|   ([A-Z]) [a-z]", largevocab.__doc__, re.M)
  said = {one or other for one, other in letters}
  assert {"N", "V", "D", "P", "M"} <= said | {"N"}
  assert said <= in_table
