"""Files of records."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.sweeps import records


def test_concurrent_writers_lose_no_record(tmp_path):
  path, runs = tmp_path / "rows" / "results.jsonl", [str(run) for run in range(60)]
  add = lambda run: records.merge(path, [{"run": run, "kept": True}])
  with ThreadPoolExecutor(6) as pool:
    list(pool.map(add, runs))
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  assert sorted(row["run"] for row in rows) == sorted(runs)
  assert [file.name for file in path.parent.iterdir()] == ["results.jsonl"]


def test_later_record_replaces_that_of_the_same_run_in_place(tmp_path):
  path = tmp_path / "results.jsonl"
  records.merge(path, [{"run": "a", "seed": 0}, {"run": "b", "seed": 1}])
  records.merge(path, [{"run": "a", "seed": 2}])
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  assert rows == [{"run": "a", "seed": 2}, {"run": "b", "seed": 1}]


def test_replaced_records_are_kept_in_a_file_beside(tmp_path, capsys):
  path, old = tmp_path / "new" / "out.jsonl", [{"run": "a", "ms": 1}, {"run": "b"}]
  records.replace(path, old)
  records.replace(path, [{"run": "a", "ms": 2}, {"run": "b"}])
  read = lambda path: [json.loads(line) for line in path.read_text().splitlines()]
  assert read(path) == [{"run": "a", "ms": 2}, {"run": "b"}]
  assert read(path.with_name("out.removed.jsonl")) == old[:1]
  assert "out.removed.jsonl has them" in capsys.readouterr().out


def test_file_that_holds_no_records_is_left_unchanged(tmp_path):
  page = tmp_path / "README.md"
  page.write_text("# Results\n")
  for act in (entry.check_output, lambda path: records.replace(path, [{"run": "a"}])):
    with pytest.raises(UserError, match=r"README.md:1: not JSON"):
      act(page)
  assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
  assert page.read_text() == "# Results\n"
