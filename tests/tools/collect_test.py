"""Collecting what has finished, and nothing else."""

import json

from largevocab.tools import collect
from largevocab.tools.sweeps import records, sweepfile

SWEEP = """
def sweep(add):
  for seed in range(3):
    add("configs/ptb.py:full", {"train.seed": seed}, name="full")
def metrics(): return ["test_ppl"]
"""
META = {
  **{
    "device": "a CPU",
    "num_devices": 1,
    "python": "3",
    "git": "0",
    "git_dirty": False,
  },
  "versions": {"jax": "0"},
}


def finish(workdir, ppl):
  workdir.mkdir(parents=True)
  (workdir / "result.json").write_text(json.dumps({"test_ppl": ppl}))
  (workdir / "meta.json").write_text(json.dumps(META))


def test_finished_runs_are_written_and_older_lines_stay(tmp_path, capsys):
  path = tmp_path / "experiments" / "ptb" / "sweep.py"
  path.parent.mkdir(parents=True)
  path.write_text(SWEEP)
  runs, root = sweepfile.load(path).runs, tmp_path / "runs"
  args = [str(path), "--root", str(root)]
  results = path.with_name("results.jsonl")
  assert collect.main(args) == 0
  assert not results.exists()
  finish(root / "ptb" / runs[2].id, 3.0)
  (root / "ptb" / runs[0].id).mkdir()  # begun
  assert collect.main(args) == 0
  assert [row["test_ppl"] for row in records.load(results)] == [3.0]
  other = tmp_path / "other"
  finish(other / "ptb" / runs[1].id, 2.0)
  assert collect.main([str(path), "--root", str(other)]) == 0
  assert [row["test_ppl"] for row in records.load(results)] == [2.0, 3.0]
  assert "1 of 3 runs finished" in capsys.readouterr().out
