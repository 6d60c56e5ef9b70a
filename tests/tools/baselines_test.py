"""Baselines of a sweep, from its data to the table."""

import json

import pytest

from largevocab.errors import UserError
from largevocab.tools import baselines, tabulate
from largevocab.tools.run_sweep import PathSetting
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.tables import results_table

TRAIN = "the cat sat on the mat\nthe dog sat on the cat\na dog ran on\n" * 4
SWEEP = """
def sweep(add):
  for head in ("full", "sampled/pps"):
    add(f"configs/ptb.py:{head}", {"eval.ranking_k": 2}, name=head)

def metrics():
  return ["test_ppl", "test_recall@2"]

def comparison():
  return {"to": "full", "metric": "test_ppl"}
"""


@pytest.fixture
def ptb(tmp_path, monkeypatch):
  monkeypatch.setenv("LARGEVOCAB_CACHE", str(tmp_path / "cache"))
  here = tmp_path / "ptb"
  here.mkdir()
  for split in ("train", "valid", "test"):
    (here / f"ptb.{split}.txt").write_text(TRAIN)
  (tmp_path / "sweep.py").write_text(SWEEP)
  return here


def test_runs_of_one_data_set_share_their_baselines(ptb):
  runs = sweepfile.load(ptb.parent / "sweep.py").runs
  rows = baselines.rows(runs, [PathSetting("data.path", ptb)])
  assert [row["name"] for row in rows] == ["unigram, counted", "bigram, counted"]
  assert all(row["baseline"] is True for row in rows)
  for key in ("test_ppl", "valid_nll_se", "test_recall@2", "test_mrr@2"):
    assert all(key in row for row in rows)
  assert rows[1]["test_ppl"] < rows[0]["test_ppl"]


def test_data_sets_have_their_own_baselines(ptb):
  settings = [PathSetting("data.path", ptb)]
  of = lambda name, overrides: sweepfile.Run("configs/ptb.py:full", overrides, name)
  same = [of("ptb: full", {}), of("ptb: fast", {"train.lr": 2.0, "train.seed": 1})]
  assert len(baselines.rows(same, settings)) == 2
  other = of("zipf: full", {"train.lr": 2.0})
  rows = baselines.rows([*same, other], settings)
  names = [row["name"] for row in rows]
  assert names[0] == "ptb: unigram, counted"
  assert names[2] == "zipf: unigram, counted"
  assert len({row["run"] for row in rows}) == 4


def test_baselines_are_written_kept_and_tabulated(ptb, capsys):
  sweep, results = ptb.parent / "sweep.py", ptb.parent / "results.jsonl"
  arguments = [str(sweep), "--set", f"data.path={ptb}"]
  assert baselines.main(arguments) == 0
  assert baselines.main(arguments) == 0
  rows = records.load(results)
  assert len(rows) == 2
  run = sweepfile.load(sweep).runs[0]
  gone = {**rows[0], "run": "gone", "baseline": False}
  mine = {**rows[0], "run": run.id, "name": run.name, "steps": 3, "test_ppl": 1e6}
  del mine["baseline"]
  records.merge(results, [mine, gone])
  records.update(results, sweepfile.load(sweep).runs, ptb.parent / "no_runs_here")
  assert [row["run"] for row in records.load(results)] == [
    run.id,
    "baseline-unigram-counted",
    "baseline-bigram-counted",
  ]
  capsys.readouterr()
  assert tabulate.main([str(results)]) == 0
  table = capsys.readouterr().out
  assert "| unigram, counted (baseline) |" in table
  assert "| full | 1 | 1000000 † |" in table


def test_baselines_of_other_data_replace_none(ptb):
  sweep, results = ptb.parent / "sweep.py", ptb.parent / "results.jsonl"
  arguments = [str(sweep), "--set", f"data.path={ptb}"]
  assert baselines.main(arguments) == 0
  before = results.read_text()
  (ptb / "ptb.test.txt").write_text("the cat ran\n")
  with pytest.raises(UserError, match=r"'unigram, counted' has test_.* on these data"):
    baselines.main(arguments)
  assert results.read_text() == before


def test_unknown_data_set_is_refused(ptb):
  with pytest.raises(UserError, match="has no data 'nosuch'"):
    baselines.main([str(ptb.parent / "sweep.py"), "--data", "nosuch"])


@pytest.mark.parametrize(
  "field", ['"baseline": 1', '"trials": true', '"diverged": "x"']
)
def test_fields_of_the_wrong_type_are_refused(field, tmp_path):
  row = {key: kind() for key, kind in records.FIELDS.items()}
  line = json.dumps(row)[:-1] + f", {field}}}\n"
  (tmp_path / "results.jsonl").write_text(line)
  with pytest.raises(UserError, match=r"results.jsonl:1: .* is "):
    records.load(tmp_path / "results.jsonl")


def test_bayes_classifier_bounds_all_methods_if_the_law_is_known():
  fields = {"data.num_examples": 2000}
  run = sweepfile.Run("configs/xmlc.py:full,data=topics", fields, "full")
  counted, bayes = baselines.rows([run], [])
  assert (counted["name"], bayes["name"]) == (
    "label frequency, counted", "Bayes classifier"
  )  # fmt: skip
  assert bayes["test_p@1"] > counted["test_p@1"] + 0.2
  assert bayes["test_ppl"] < counted["test_ppl"]
  # A run between the two is no worse than the counted baseline.
  mine = {**bayes, "run": "r", "name": "full", "test_p@1": bayes["test_p@1"] - 0.1}
  mine = {k: v for k, v in mine.items() if k not in ("baseline", "bound")}
  table = results_table.table([mine, counted, bayes], ["test_p@1"])
  assert "Bayes classifier (baseline)" in table
  assert "†" not in table
  worse = {**mine, "test_p@1": 0.0}
  assert "†" in results_table.table([worse, counted, bayes], ["test_p@1"])


def test_generated_data_of_another_seed_have_their_own_baselines():
  made = "configs/ptb.py:full,runlocal"
  runs = [
    sweepfile.Run(made, {"train.seed": seed, **own}, "full")
    for seed, own in enumerate(({}, {"data.seed": 1}, {"data.seed": 1}))
  ]
  rows = baselines.rows(runs, [])
  assert [row["overrides"] for row in rows] == 2 * [{}] + 2 * [{"data.seed": 1}]
  assert rows[0]["test_ppl"] != rows[2]["test_ppl"]
  assert "| unigram, counted (baseline) |" in results_table.table(rows, ["test_ppl"])
