"""Files of records."""

import json
from concurrent.futures import ThreadPoolExecutor

from largevocab.tools.sweeps import records


def test_writers_at_once_lose_no_record(tmp_path):
  path, runs = tmp_path / "rows" / "results.jsonl", [str(run) for run in range(60)]
  add = lambda run: records.merge(path, [{"run": run, "kept": True}])
  with ThreadPoolExecutor(6) as pool:
    list(pool.map(add, runs))
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  assert sorted(row["run"] for row in rows) == sorted(runs)
  assert [file.name for file in path.parent.iterdir()] == ["results.jsonl"]


def test_a_later_record_replaces_that_of_the_same_run_in_its_place(tmp_path):
  path = tmp_path / "results.jsonl"
  records.merge(path, [{"run": "a", "seed": 0}, {"run": "b", "seed": 1}])
  records.merge(path, [{"run": "a", "seed": 2}])
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  assert rows == [{"run": "a", "seed": 2}, {"run": "b", "seed": 1}]
