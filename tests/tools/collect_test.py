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
  result = {"test_ppl": ppl, "valid_nll": ppl}
  (workdir / "result.json").write_text(json.dumps(result))
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


def test_runs_whose_rates_were_searched(tmp_path, capsys):
  path = tmp_path / "experiments" / "ptb" / "sweep.py"
  path.parent.mkdir(parents=True)
  grid = '{"steps": 1, "grid": {"train.lr": [1.0, 2.0]}}'
  path.write_text(SWEEP + f"def search(): return {grid}\n")
  sweep, root = sweepfile.load(path), tmp_path / "runs"
  assert sweep.search
  for trial, ppl in zip(sweep.search.trials(sweep.runs[0]), (2.0, 1.0), strict=True):
    finish(root / "ptb" / trial.id, ppl)
  finish(root / "ptb" / sweep.runs[1].with_overrides({"train.lr": 2.0}).id, 5.0)
  for place in (root, tmp_path / "elsewhere"):
    assert collect.main([str(path), "--root", str(place)]) == 0
    (row,) = records.load(path.with_name("results.jsonl"))
    assert (row["test_ppl"], row["overrides"]["train.lr"]) == (5.0, 2.0)
  assert "1 of 3 runs finished" in capsys.readouterr().out
