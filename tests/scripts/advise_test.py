"""Advice on heads: of counts, and of a trained model."""

import advise
import fit_cost_model
import numpy as np
import pytest
import records

from largevocab import main
from largevocab.errors import UserError

HEADS = ["--heads", "full", "sampled/pps", "adaptive", "--num_samples", "8", "64"]


@pytest.fixture(autouse=True)
def few_calls(monkeypatch):
  monkeypatch.setattr(fit_cost_model, "SECONDS", 0.0)


@pytest.fixture
def counts(tmp_path):
  path = tmp_path / "counts.npy"
  np.save(path, 10_000 // np.arange(1, 301))
  return f"--counts={path}"


def test_of_counts(counts, tmp_path, capsys):
  out = tmp_path / "new" / "advice.jsonl"
  sizes = ["--dim=16", "--batch=32", f"--output={out}"]
  assert advise.main([counts, *sizes, *HEADS]) == 0
  rows = {row["run"]: row for row in records.load(out)}
  assert [row["kind"] for row in rows.values()] == 1 * ["softmax"] + 2 * ["sample"] + [
    "other"
  ]
  assert all(row["ms"] > 0 and "relvar" not in row for row in rows.values())
  assert rows["full"]["mib"] > 2 * 300 * 16 * 4 / 2**20  # rows and Adagrad's sums
  printed = capsys.readouterr().out
  assert "num_classes 300, dim 16, batch 32" in printed
  assert printed.endswith("--config=FILE:full\n")


def test_of_a_run(tmp_path, capsys):
  workdir, out = tmp_path / "run", tmp_path / "advice.jsonl"
  flags = ["--config=configs/quickstart.py:runlocal", f"--workdir={workdir}"]
  assert main.run(["main", *flags]) == 0
  argv = [f"--workdir={workdir}", "--batch=16", *HEADS, f"--output={out}"]
  assert advise.main(argv) == 0
  relvar = {row["run"]: row.get("relvar") for row in records.load(out)}
  few, many = (f"sampled/pps --config.head.num_samples={m}" for m in (8, 64))
  assert relvar["full"] == 0 < relvar[many] < relvar[few]
  assert relvar["adaptive"] is None
  assert advise.main([*argv, "--budget_mib=0.0001"]) == 0
  assert capsys.readouterr().out.endswith("or judge samples with --workdir\n")


def test_what_does_not_suit_is_told(counts, capsys):
  sizes = ["--dim=8", "--batch=16", "--num_samples=8"]
  advise.main([counts, *sizes, "--heads", "full", "sampled/bigram"])
  assert "left out: sampled/bigram" in capsys.readouterr().err
  with pytest.raises(UserError, match="no head suits"):
    advise.main([counts, *sizes, "--heads", "sampled/bigram"])


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--counts=none.npy"], "--counts=none.npy"),
    (["--dim=0"], "--dim=0: must be positive"),
    (["--batch=-1"], "--batch=-1: must be positive"),
    (["--heads", "fll"], "'fll'"),
  ],
)
def test_wrong_arguments(counts, argv, message):
  source = [] if argv[0].startswith("--counts") else [counts]
  with pytest.raises(UserError, match=message):
    advise.main([*source, *argv])
