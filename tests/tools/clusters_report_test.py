"""The report on clusters: what is predicted, measured and drawn."""

import pathlib

import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Adaptive, Full
from largevocab.labels import Counts
from largevocab.tools import clusters_report
from largevocab.tools.reports import measure
from largevocab.tools.sweeps import records

REPOSITORY = pathlib.Path(clusters_report.__file__).parents[2]
COUNTS = 10**5 // np.arange(1, 301)


@pytest.fixture
def counts(tmp_path):
  np.save(tmp_path / "counts.npy", COUNTS)
  return f"--counts={tmp_path / 'counts.npy'}"


def test_records_and_figures_are_written(monkeypatch, tmp_path, counts, capsys):
  monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
  monkeypatch.setattr(clusters_report, "NUMBERS", [2])
  output = tmp_path / "clusters.jsonl"
  flags = [counts, "--dim=16", "--batch=32", f"--output={output}", "--measure=1"]
  assert clusters_report.main(flags) == 0
  rows = records.load(output)
  lists = [row for row in rows if row["name"] == "short list"]
  ends = [row["short_list"] for row in lists]
  assert ends[0] == 1
  assert ends[-1] == 299
  assert all(row["num_clusters"] == 2 for row in lists)
  assert [row["num_clusters"] for row in rows if row["name"] == "clusters"] == [2]
  full = rows[-1]
  assert full["name"] == clusters_report.FULL
  measured = [row for row in rows if "measured_ms" in row]
  assert len(measured) == 1 + 1 + 1
  assert all(row["measured_ms"] > 0 for row in measured)
  for name in ("short_list", "clusters"):
    assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 1000
  assert "fastest: " in capsys.readouterr().out


def test_report_reads_a_config(capsys):
  given = f"--config={REPOSITORY}/configs/ptb.py:adaptive,runlocal"
  flags = ["--config.head.min_head_mass=0.5", "--config.head.align=1"]
  assert clusters_report.main([given, *flags]) == 0
  out = capsys.readouterr().out
  assert "5 clusters, cutoffs" in out
  assert "width 1" in out


def test_wrong_arguments_are_named(tmp_path, counts):
  full = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  with pytest.raises(UserError, match="has another head; write adaptive"):
    clusters_report.main([full])
  with pytest.raises(UserError, match=r"give a .npy file with int\[V\]"):
    clusters_report.main([f"--counts={tmp_path}/none.npy"])
  with pytest.raises(UserError, match="--measure is for records: give --output"):
    clusters_report.main([counts, "--measure=2"])
  with pytest.raises(UserError, match="unexpected argument"):
    clusters_report.main([counts, "--config.head.factor=2"])
  with pytest.raises(UserError, match="no cost model 'abacus'"):
    clusters_report.main([counts, "--cost_model=abacus"])


def test_full_softmax_is_timed_with_the_dtype_of_the_head(monkeypatch):
  timed = []

  def step_ms(head, counts, dim, num):
    timed.append(head)
    return 1.0

  monkeypatch.setattr(clusters_report, "step_ms", step_ms)
  monkeypatch.setattr(clusters_report, "NUMBERS", [2])
  head = Adaptive(dtype="bfloat16", batch_examples=32)
  clusters_report.report(head, Counts(COUNTS), dim=16, measure=1)
  assert isinstance(timed[-1], Full)
  assert {head.dtype for head in timed} == {"bfloat16"}


def test_dim_is_only_for_counts():
  given = f"--config={REPOSITORY}/configs/ptb.py:adaptive,runlocal"
  with pytest.raises(UserError, match="--dim is for --counts"):
    clusters_report.main([given, "--dim=512"])
