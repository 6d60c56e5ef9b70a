"""Which parts may import and name which others."""

import ast
import pathlib
import re
import sys
from collections.abc import Iterable

import pytest

from largevocab import config, heads, losses, samplers

REPOSITORY = pathlib.Path(__file__).parents[1]
PACKAGE = REPOSITORY / "largevocab"
MODULES = sorted(PACKAGE.rglob("*.py"))
names_of = lambda paths: [str(path.relative_to(REPOSITORY)) for path in paths]

# Modules that any other module may import.
LEAVES = {"atomic", "errors", "fields", "labels", "ops.shapes", "paths", "placement"}
# For each module or sub-package: the others that it may import.
MAY_IMPORT = {
  "__init__": {"heads", "rows", "samplers"},
  "atomic": set(),
  "errors": set(),
  "fields": set(),
  "labels": set(),
  "paths": set(),
  "placement": set(),
  "provenance": set(),
  "ops": set(),
  "losses": {"ops"},
  "rows": {"ops"},
  "samplers": {"ops"},
  "heads": {"losses", "ops", "rows", "samplers"},
  "models": set(),
  "data": set(),
  "training": {
    *("data", "heads.base", "ops.class_blocks", "ops.shards", "placement"),
    *("provenance", "rows"),
  },
  "evaluation": {"data", "ops.accidental_hits", "training"},
  "baselines": {"data", "evaluation", "training"},
  "config": {"data", "heads", "losses", "models", "rows", "samplers", "training"},
  "command_line": {"config", "data.lines"},
  "train": {"data", "evaluation", "provenance", "rows", "training"},
  "main": {"command_line", "config", "evaluation", "train", "training"},
}
MAY_IMPORT["tools"] = MAY_IMPORT.keys() - {"__init__", "main"}
MAY_IMPORT["bench"] = MAY_IMPORT.keys() - {"__init__", "main"}
# For parts that users can import alone: all packages that they may need.
MAY_NEED = {
  "atomic": set(),
  "errors": set(),
  "fields": {"numpy"},
  "paths": set(),
  "placement": {"jax"},
  "labels": {"jax", "numpy"},
  "ops": {"jax", "numpy"},
  "losses": {"jax", "numpy"},
  "rows": {"jax", "numpy", "optax"},
  "samplers": {"jax", "numpy"},
  "heads": {"jax", "numpy", "optax"},
  "models": {"flax", "jax", "numpy"},
}


def part_of(path: pathlib.Path) -> str:
  return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(path: pathlib.Path) -> set[str]:
  """Dotted names of all imports anywhere in a file."""
  imported = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      imported |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f"{path}: relative import"
      imported |= {f"{node.module}.{alias.name}" for alias in node.names}
  return imported


def is_within(name: str, allowed: set[str]) -> bool:
  return any(name == a or name.startswith(f"{a}.") for a in allowed)


@pytest.mark.parametrize("path", MODULES, ids=names_of(MODULES))
def test_imports_only_from_lower_layers(path):
  part = part_of(path)
  assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"
  allowed = MAY_IMPORT[part] | LEAVES | {part, "__version__"}
  ours = {n for n in imports_of(path) if n.split(".")[0] == "largevocab"}
  ours = {n.partition(".")[2] for n in ours}
  assert {name for name in ours if not is_within(name, allowed)} == set()


@pytest.mark.parametrize("path", MODULES, ids=names_of(MODULES))
def test_imports_only_allowed_packages(path):
  allowed = MAY_NEED.get(part_of(path))
  if allowed is None:  # Programs may need everything in setup.py.
    return
  needed = {name.split(".")[0] for name in imports_of(path)}
  assert needed - allowed - {"largevocab"} - sys.stdlib_module_names == set()


def methods() -> set[str]:
  """The names of methods: of classes, of files and in registries."""
  found = set()
  for package, registry in (
    (heads, heads.HEADS),
    (samplers, samplers.SAMPLERS),
    (losses, losses.SAMPLED_LOSSES),
  ):
    found |= registry.keys() | {c.__name__ for c in registry.values()}
    found |= {path.stem for path in PACKAGE.glob(f"{package.__name__[11:]}/*.py")}
  return found - {"__init__", "base"}


def is_ours(cls: type) -> bool:
  return cls.__module__.startswith("largevocab.")


def bases_of(classes: Iterable[type]) -> list[type]:
  return [base for cls in classes for base in cls.__bases__ if is_ours(base)]


PARTS = {
  (kind, name): part
  for kind, registry in config.REGISTRIES.items()
  for name, part in registry.items()
}


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_parts_are_abstract_or_final(kind, name):
  """Usable classes have no subclasses.

  Bases have no bases of their own, except bases of data, which may have one.
  """
  part = PARTS[kind, name]
  assert not [cls for cls in part.__subclasses__() if is_ours(cls)]
  of_bases = bases_of(bases_of([part]))
  assert not (bases_of(of_bases) if kind == "data" else of_bases)


TRAINER = ("train", "evaluation/evaluate", "training/state", "training/step")


@pytest.mark.parametrize("name", TRAINER)
def test_trainer_does_not_name_methods(name):
  tree = ast.parse((PACKAGE / f"{name}.py").read_text())
  docstrings = {
    id(node.body[0].value)
    for node in ast.walk(tree)
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    and isinstance(node.body[0], ast.Expr)
  }
  words: set[str] = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Name):
      words.add(node.id)
    elif isinstance(node, ast.Attribute):
      # jax.random.uniform and head.top_k are not the samplers of these names.
      name = ast.unparse(node)
      is_other = name.startswith("jax.random.") or name.endswith("head.top_k")
      words |= set() if is_other else {node.attr}
    elif isinstance(node, ast.arg | ast.keyword):
      words.add(node.arg or "")
    elif isinstance(node, ast.alias):
      words |= set(node.name.split("."))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      words |= set() if id(node) in docstrings else set(re.findall(r"\w+", node.value))
  assert words & methods() == set()


def test_file_names_are_not_generic():
  nameless = {"utils", "util", "helpers", "helper", "common", "misc"}
  folders = ("largevocab", "benchmarks", "tests", "scripts", "configs", "experiments")
  files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
  assert MODULES
  assert [str(p) for p in files if p.stem.removesuffix("_test") in nameless] == []
