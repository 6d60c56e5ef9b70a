"""docs and README: examples run, commands and links are valid, and no method is
missing. `readme_test.py` runs the example of README."""

import functools
import importlib
import itertools
import pathlib
import re
import shlex
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import command_line, config
from largevocab.data import DATASETS
from largevocab.errors import UserError
from largevocab.losses import SAMPLED_LOSSES, SPHERICAL_LOSSES, softmax_cross_entropy
from largevocab.models import MODELS
from largevocab.samplers import SAMPLERS
from largevocab.tools import keys, run_sweep
from largevocab.tools.sweeps import records, sweepfile

ROOT = pathlib.Path(__file__).parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"
INDEX, ADDING, TRAINING = DOCS / "README.md", DOCS / "adding.md", DOCS / "training.md"
METHODS = sorted(DOCS.glob("methods/*.md"))
API = sorted(DOCS.glob("api/*.md"))
PAPERS = sorted(DOCS.glob("papers/*.md"))
PAGES = sorted(DOCS.glob("**/*.md"))
SITE = (ROOT / "mkdocs.yml").read_text()
SPHERICAL = {f"spherical/{loss}" for loss in SPHERICAL_LOSSES}
NAMES = {*config.head_names(), *SAMPLERS, *SPHERICAL}
name_of = lambda path: str(path.relative_to(DOCS))
every_page = pytest.mark.parametrize(
  "page", [README, *PAGES], ids=lambda page: str(page.relative_to(ROOT))
)


def blocks(page: pathlib.Path, language: str) -> list[str]:
  return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@functools.cache
def prelude() -> dict:
  """The names that the first example of the index defines for all pages."""
  names: dict = {}
  exec(blocks(INDEX, "python")[0], names)
  return names


@pytest.mark.parametrize("page", [INDEX, *METHODS], ids=name_of)
def test_examples_run(page):
  assert page == INDEX or "](../README.md#in-code)" in page.read_text()
  names = dict(prelude())
  for block in blocks(page, "python"):
    exec(block, names)
  if "estimate" in names:  # of the number of classes
    assert 400 < names["estimate"] < 600
  else:
    assert np.isfinite(names["step"].loss)
    assert np.isfinite(names["step"].dh_ND).all()


def test_sampled_loss_of_the_page_estimates_the_full_loss():
  names = dict(prelude())
  for block in blocks(DOCS / "methods" / "sampled.md", "python"):
    exec(block, names)
  w_VD, h_ND, y = names["own_VD"], names["h_ND"], names["y"]
  keys = jax.random.split(jax.random.key(1), 200)
  mean = jnp.mean(jax.lax.map(lambda key: names["loss"](w_VD, h_ND, key), keys))
  exact = softmax_cross_entropy(h_ND, w_VD, y.ids_NP, y.w_NP / len(h_ND))
  np.testing.assert_allclose(mean, exact, rtol=2e-3)


def test_methods_of_the_adding_guide_are_known_to_configs(monkeypatch):
  monkeypatch.chdir(ROOT)
  names: dict = {}
  try:
    for block in blocks(ADDING, "python"):
      exec(block, names)
    (argument,) = re.findall(r"--config=(\S+)", ADDING.read_text())
    settings = command_line.load(argument)
    head = config.build(settings).head
    assert type(head.sampler) is names["RowNorm"]
    meanings = {key.path: key.meaning for key in keys.keys_of(settings)}
    assert (
      meanings["config.head.sampler.floor"] == ""
    )  # its docstring does not describe it
    (flag,) = re.findall(r"`(--config\S+=0)`", ADDING.read_text())
    command_line.override(settings, ["main", flag], known=[])
    with pytest.raises(UserError) as error:
      config.build(settings)
    assert f"`{error.value}`" in " ".join(ADDING.read_text().split())
  finally:  # other tests use the registries
    SAMPLERS.pop("row_norm", None)
    DATASETS.pop("one_file", None)
    MODELS.pop("residual", None)


@pytest.fixture
def project(tmp_path, monkeypatch):
  """The folder of a user's project; the current directory is another."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "path", [*sys.path])
  yield tmp_path / "project"
  for name in ("row_norm", "margin"):
    SAMPLERS.pop(name, None)
    SAMPLED_LOSSES.pop(name, None)
    sys.modules.pop(name, None)


def write_files(project: pathlib.Path, module: str, name: str) -> None:
  """Writes the files of `adding.md` for a project: class, config and sweep."""
  (code,) = [block for block in blocks(ADDING, "python") if f"class {name}" in block]
  shown = re.findall(r"^```\n(# (\S+\.py), .*?)^```", ADDING.read_text(), re.S | re.M)
  files = [(file, text) for text, file in shown if module in text]
  for file, text in [(f"{module}.py", code), *files]:
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(text)


@pytest.mark.parametrize(
  ("module", "name", "path"),
  [("row_norm", "RowNorm", "sampled/row_norm"), ("margin", "Margin", "margin/pps")],
)
def test_project_can_define_its_own_methods(project, module, name, path):
  write_files(project, module, name)
  head = config.build(command_line.load(f"project/mine.py:{path},runlocal")).head
  assert name in {type(head.sampler).__name__, type(head.loss).__name__}


def test_project_can_define_its_own_sweeps(project):
  write_files(project, "row_norm", "RowNorm")
  args = run_sweep.parse_args(["project/experiments/own/sweep.py"])
  (found,) = run_sweep.campaigns_of(args)  # which checks the configs
  assert [run.name for run in found.runs] == ["row_norm", "pps"]


def test_files_of_the_adding_guide_import_what_they_use():
  classes = [block for block in blocks(ADDING, "python") if "@settings" in block]
  assert len(classes) == 4
  for block in classes:
    exec(block, {"__name__": "added"})


def test_documented_sweep_is_valid(tmp_path):
  (block,) = [each for each in blocks(TRAINING, "python") if "def sweep" in each]
  path = tmp_path / "sweep.py"
  path.write_text(block)
  runs = sweepfile.load(path).runs
  assert len({run.id for run in runs}) == 9
  for run in runs:
    config.build(command_line.load(str(ROOT / run.config)))


def commands() -> list[tuple[str, str]]:
  """(page, command) of all documented commands, except for methods yet to be added."""
  found = []
  for page in [
    *PAGES,
    README,
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("experiments/*/*.md"),
  ]:
    if page == ADDING:
      continue
    in_text = re.findall(r"`(python .*?)`", page.read_text())
    whole = [*blocks(page, "sh"), *blocks(page, ""), *in_text]
    lines = "\n".join(whole).replace("\\\n", " ").splitlines()
    place = str(page.relative_to(ROOT))
    found += [(place, line.strip()) for line in lines if line.startswith("python ")]
  return found


def exists(path: str) -> bool:
  """Whether a file exists; NAME stands for any experiment."""
  return any(ROOT.glob(path.replace("NAME", "*")))


@pytest.mark.parametrize(("page", "command"), commands())
def test_commands_are_valid(page, command, monkeypatch):
  monkeypatch.chdir(ROOT)
  command = command.replace("data=SET", "data=citeulike_t").replace("=STEPS", "=1")
  program, *words = shlex.split(command, comments=True)
  assert program == "python"
  if words[:2] == ["-m", "largevocab.main"]:
    assert [word for word in words if word.startswith("--workdir=")]
  elif words[:2] == ["-m", "benchmarks.bench"] and "--only" in words:
    after = words[words.index("--only") + 1 :]
    names = itertools.takewhile(lambda word: not word.startswith("-"), after)
    sources = "".join(path.read_text() for path in ROOT.glob("benchmarks/*.py"))
    assert all(f'"{name}"' in sources for name in names)
  assert all(exists(word) for word in words if re.match(r"\w+/.*\.py$", word))
  for word in words:
    if word.startswith("--config="):
      settings = command_line.load(word.removeprefix("--config="))
      flags = [word for word in words if word.startswith("--config.")]
      command_line.override(settings, ["main", *flags], known=[])
      config.build(settings)


def anchors(page: pathlib.Path) -> set[str]:
  headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
  return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@every_page
def test_links_lead_somewhere(page):
  for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
    if target.startswith(("https://", "http://")):
      continue
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    assert there.exists(), target
    assert not anchor or anchor in anchors(there), target


@every_page
def test_what_it_names_exists(page):
  to_add = {"largevocab/samplers/row_norm.py", "largevocab/losses/margin.py"}
  to_add |= {"largevocab/data/text/one_file.py"}
  to_add |= {"experiments/heads/sweep.py", "experiments/heads/results.jsonl"}
  to_add |= {"experiments/own/sweep.py"}
  places = r"\b(?:configs|scripts|tests|experiments|docs|largevocab)/[\w/.-]+\w"
  paths = set(re.findall(places, page.read_text()))
  assert paths or page != README
  for path in paths - to_add:
    assert exists(path), path


def test_every_method_has_a_heading():
  text = "\n".join(page.read_text() for page in METHODS)
  headings = re.findall(r"^##? `([\w/]+)`", text, re.MULTILINE)
  assert sorted(headings) == sorted(NAMES)


@pytest.mark.parametrize("index", [INDEX, README], ids=["docs", "README"])
def test_every_method_has_an_index_row(index):
  rows = re.findall(r"^\| \[`(\w+)`\]\((\S+)\)", index.read_text(), re.MULTILINE)
  assert sorted(name for name, _ in rows) == sorted([*config.head_names(), *SAMPLERS])
  for name, path in rows:
    page = (index.parent / path).read_text()
    assert re.search(rf"^##? `{name}`", page, re.MULTILINE), name


def test_index_links_to_every_page():
  linked = links_of(INDEX)
  linked += [f"api/{target}" for target in links_of(DOCS / "api" / "README.md")]
  assert {name_of(page) for page in PAGES} - {"README.md"} <= set(linked)


def links_of(page: pathlib.Path) -> list[str]:
  return re.findall(r"\]\(([^)#]+\.md)", page.read_text())


def test_every_page_is_in_the_site_navigation():
  listed = re.findall(r"^ +- docs/(\S+\.md)$", SITE, re.MULTILINE)
  assert sorted(listed) == sorted(name_of(page) for page in PAGES)


def test_every_subpackage_has_a_reference_page():
  shown = {
    m for page in API for m in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
  }
  rooms = {f"largevocab.{p.parent.name}" for p in ROOT.glob("largevocab/*/__init__.py")}
  assert rooms <= shown
  for module in shown:
    importlib.import_module(module)


def test_step_counts_in_pages_match_the_results():
  of_sweeps = r"^\|.*experiments/(\w+)/sweep\.py.*$"
  text = "\n".join(page.read_text() for page in [INDEX, *PAPERS])
  said = 0
  for row in re.finditer(of_sweeps, text, re.MULTILINE):
    line, name = row.group(0, 1)
    path = ROOT / "experiments" / name / "results.jsonl"
    results = records.load(path) if path.exists() else []
    lengths = {row["overrides"].get("train.max_steps") for row in results}
    for steps in re.findall(r"([\d,]+) steps", line):
      assert int(steps.replace(",", "")) in lengths, line
      said += 1
  assert said


def test_papers_are_cited_by_their_authors():
  """They are not cited by the number of a file in somebody's folder."""
  numbered = re.compile(r"paper[s ]+00\d", re.IGNORECASE)
  suffixes = {".py", ".md", ".toml", ".sh"}
  folders = ["benchmarks", "configs", "docs", "examples", "experiments", "largevocab"]
  found = [
    path for f in [*folders, "scripts", "tests"] for path in (ROOT / f).rglob("*")
  ]
  paths = [path for path in [*ROOT.iterdir(), *found] if path.suffix in suffixes]
  assert len(paths) > 300
  assert [str(p) for p in paths if numbered.search(p.read_text())] == []
