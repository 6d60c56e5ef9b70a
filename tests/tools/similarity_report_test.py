"""The report on word similarity, for tiny runs that measured it during training."""

import json

import pytest

from largevocab import config as c
from largevocab.errors import UserError
from largevocab.tools import similarity_report
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.train import train

HEADERS = {
  "SimLex-999.txt": "word1\tword2\tSimLex999",
  "wordsim353.csv": "Word 1,Word 2,Human (mean)",
}
PAIRS = [("w3", "w4", 9), ("w5", "w6", 7), ("w7", "w8", 4), ("w4", "w9", 1)]
NAMES = [
  f"{file}_{kind}"
  for file in ("SimLex-999", "wordsim353")
  for kind in ("input", "output")
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
  """A pattern that matches both files; each also has a pair of unknown words."""
  path = tmp_path_factory.mktemp("pairs")
  for name, header in HEADERS.items():
    mark = "\t" if "\t" in header else ","
    pairs = [*PAIRS, ("tiger", "cat", 8)]
    lines = [header, *(mark.join(map(str, pair)) for pair in pairs)]
    (path / name).write_text("\n".join(lines) + "\n")
  return f"{path}/*"


@pytest.fixture(scope="module")
def runs(tmp_path_factory, files):
  """Two runs that differ in the seed, one with averaged weights, one on other words."""
  root = tmp_path_factory.mktemp("runs")

  def trained(name, seed=0, num_classes=12, **optimizer):
    settings = c.experiment(
      data=c.part("data", "zipf", num_classes=num_classes, num_tokens=200),
      model=c.part("model", "linear", embed=4),
      head=c.head("full", init_scale=1.0),
      optimizer=c.part("optimizer", "sgd", **optimizer),
      train=c.Training(batch_size=4, unroll=5, max_steps=6, seed=seed),
      eval=c.Evaluating(batch_size=4, unroll=5, every_epochs=0.2, word_pairs=(files,)),
    )
    train(c.build(settings), settings.to_dict(), str(root / name))

  trained("plain_0")
  trained("plain_1", seed=1)
  trained("averaged", average=0.5)
  trained("others", num_classes=14)
  return root


def result(runs, name):
  return json.loads((runs / name / "result.json").read_text())


def test_both_files_are_measured_over_time(runs):
  record = records.of_run(Run(""), runs / "plain_0")
  assert record is not None
  for name in NAMES:
    curve = record[f"curve_{name}"]
    assert len(curve) > 1
    assert curve[-1][1] == pytest.approx(record[f"valid_{name}"], rel=1e-4)


def test_correlations_match_those_of_the_runs(runs, files, tmp_path, capsys):
  output = tmp_path / "out" / "results.jsonl"
  argv = [f"plain={runs}/plain_0", f"plain={runs}/plain_1", f"avg={runs}/averaged"]
  flags = ["--pairs", files, "--resamples=50", f"--output={output}"]
  assert similarity_report.main([*argv, *flags]) == 0
  rows = {row["name"]: row for row in records.load(output)}
  assert list(rows) == [
    f"{name}: {method}" for name in NAMES for method in ("plain", "avg")
  ]
  first, second, other = (result(runs, n) for n in ("plain_0", "plain_1", "averaged"))
  for name in NAMES:
    key = f"valid_{name}"
    plain, averaged = rows[f"{name}: plain"], rows[f"{name}: avg"]
    assert plain["rho"] == pytest.approx((first[key] + second[key]) / 2)
    assert averaged["rho"] == pytest.approx(other[key])
    assert averaged["difference"] == pytest.approx(averaged["rho"] - plain["rho"])
    assert averaged["difference_low"] <= averaged["difference_high"]
    assert (plain["runs"], averaged["runs"], plain["pairs"]) == (2, 1, len(PAIRS))
    assert "difference" not in plain
  # The files have the same pairs, and the draws have a fixed key.
  low = [rows[f"{name}: avg"]["difference_low"] for name in NAMES]
  assert low[:2] == low[2:]
  assert "| SimLex-999_input: plain |" in capsys.readouterr().out


def test_runs_that_cannot_be_compared_are_refused(runs, files, tmp_path):
  def compared(*argv, pairs=files):
    similarity_report.main([*argv, "--pairs", str(pairs), "--resamples=2"])

  plain = f"plain={runs}/plain_0"
  with pytest.raises(
    UserError, match=r"others and .*plain_0 have different vocabularies"
  ):
    compared(plain, f"b={runs}/others")
  with pytest.raises(UserError, match="this workdir is given twice"):
    compared(plain, f"b={runs}/plain_0")
  with pytest.raises(UserError, match="'b': give METHOD=WORKDIR"):
    compared(plain, "b")
  with pytest.raises(UserError, match="no/such"):
    compared("a=no/such")
  unknown = tmp_path / "unknown.csv"
  unknown.write_text("a,b,score\ntiger,cat,7\ntiger,zoo,5\n")
  with pytest.raises(
    UserError, match=r"0 of its 2 pairs .* remove the file from --pairs"
  ):
    compared(plain, pairs=unknown)
  started = tmp_path / "started"
  started.mkdir()
  (started / "config.json").write_text((runs / "plain_0/config.json").read_text())
  with pytest.raises(UserError, match=r"no checkpoints in .*started; train first"):
    compared(f"a={started}")
