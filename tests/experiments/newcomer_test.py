"""The newcomer's path: its commands are the documented ones, and a failure ends it."""

import importlib.util
import json
import pathlib
import shutil
import sys

import pytest

from largevocab.errors import UserError
from largevocab.provenance import describe_machine
from largevocab.tools import tabulate
from largevocab.tools.sweeps import records
from largevocab.tools.tables import results_table

ROOT = pathlib.Path(__file__).parents[2]
HERE = ROOT / "experiments" / "newcomer"


@pytest.fixture(scope="module")
def path():
  spec = importlib.util.spec_from_file_location("newcomer", HERE / "run.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_commands_are_those_of_the_readme(path):
  readme = (ROOT / "README.md").read_text()
  for command in (path.MAIN, path.EVALUATE, path.PREDICT):
    assert f"\n{' '.join(command)} " in readme
  for name in ("scripts/quickstart", "scripts/check", "`configs/text.py`"):
    assert name in readme


def test_page_on_samplers_is_read(path, tmp_path):
  page = path.read_page(ROOT / "docs" / "adding.md")
  assert "class RowNorm:" in page.sampler
  assert "log_expected" in page.check
  assert "losses[-20:]" in page.training
  for program in (page.sampler, page.check, page.training):
    compile(program, "adding.md", "exec")
  assert tuple(page.command[:3]) == path.MAIN
  other = tmp_path / "other.md"
  other.write_text("# Page\n\n```python\nx = 1\n```\n")
  with pytest.raises(UserError, match="update read_page"):
    path.read_page(other)


def test_sampler_and_test_case_are_inserted(path, tmp_path):
  registry, tests = tmp_path / "__init__.py", tmp_path / "contract_test.py"
  shutil.copy(ROOT / "largevocab" / "samplers" / "__init__.py", registry)
  shutil.copy(ROOT / "tests" / "samplers" / "contract_test.py", tests)
  path.write_sampler(tmp_path, path.read_page(ROOT / "docs" / "adding.md"))
  path.write_case(tests)
  for file in (registry, tests):
    compile(file.read_text(), file, "exec")
    assert file.read_text().count("RowNorm") == 2
  with pytest.raises(UserError, match="occurs 0 times"):
    path.insert(tests, "x", before="no such line")


def test_failed_command_shows_its_last_line(path, tmp_path, capsys):
  newcomer = path.Newcomer(tmp_path, "", tmp_path)
  assert newcomer.run(sys.executable, "-c", "print(6 * 7)") == "42\n"
  program = "import sys; print('all', flush=True); sys.exit('no room')"
  with pytest.raises(UserError, match=r"ended with status 1: no room$"):
    newcomer.run(sys.executable, "-c", program)
  assert "all\nno room" in capsys.readouterr().err


def test_caches_start_empty(path, tmp_path, monkeypatch):
  monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/warm")
  monkeypatch.setenv("PIP_CACHE_DIR", "/warm")
  monkeypatch.setenv("LARGEVOCAB_CACHE", "/warm")
  program = "import json, os; print(json.dumps(dict(os.environ)))"
  said = path.Newcomer(tmp_path, "", tmp_path).run(sys.executable, "-c", program)
  assert "/warm" not in said
  for cache in ("PIP_CACHE_DIR", "LARGEVOCAB_CACHE"):
    assert json.loads(said)[cache].startswith(str(tmp_path))


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_failed_stage_ends_the_path(path, tmp_path):
  output, home = tmp_path / "results.jsonl", tmp_path / "home"
  nowhere = f"--repo={tmp_path / 'nowhere'}"
  with pytest.raises(UserError, match=r"git clone .* ended with status 128: .*nowhere"):
    path.main([nowhere, f"--keep={home}", f"--output={output}"])
  assert len((home / "manual.txt").read_text().split()) > 50_000
  assert not output.exists()


def test_missing_text_ends_the_path(path, tmp_path):
  output = tmp_path / "results.jsonl"
  with pytest.raises(UserError, match="--text: there is no file"):
    path.main([f"--text={tmp_path / 'nothing.txt'}", f"--output={output}"])


def test_records_make_a_table(path, tmp_path, monkeypatch):
  def first_result(newcomer):
    workdir = newcomer.clone / "runs" / "quickstart" / "sampled"
    workdir.mkdir(parents=True)
    (workdir / "meta.json").write_text(json.dumps(describe_machine()))
    (workdir / "result.json").write_text(json.dumps({"test_ppl": 80.5}))
    return newcomer.ppl("runs/quickstart/sampled")

  def next_words(newcomer):
    newcomer.run("true")

  monkeypatch.setattr(path, "STAGES", (first_result, next_words))
  rows = path.walk(path.Newcomer(tmp_path, "", tmp_path))
  assert [row["name"] for row in rows] == ["first result", "next words"]
  assert rows[1]["total_seconds"] >= rows[0]["total_seconds"] >= rows[0]["seconds"]
  records.merge(tmp_path / "results.jsonl", rows)
  shutil.copy(HERE / "sweep.py", tmp_path / "sweep.py")
  assert tabulate.main([str(tmp_path / "results.jsonl")]) == 0
  assert results_table.table(rows, ["test_ppl"]).endswith("| next words | - |")
