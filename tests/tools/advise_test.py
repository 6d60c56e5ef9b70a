"""Advice on heads, from counts and from a trained model."""

import numpy as np
import pytest

from largevocab import main
from largevocab.errors import UserError
from largevocab.tools import advise
from largevocab.tools.reports import measure
from largevocab.tools.sweeps import records

HEADS = ["--heads", "full", "sampled/pps", "adaptive", "--num_samples", "8", "64"]


@pytest.fixture(autouse=True)
def few_calls(monkeypatch):
  monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)


@pytest.fixture
def counts(tmp_path):
  path = tmp_path / "counts.npy"
  np.save(path, 10_000 // np.arange(1, 301))
  return f"--counts={path}"


def test_advice_from_counts(counts, tmp_path, capsys):
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
  assert "the exact softmax within any time and any memory: " in printed
  assert advise.TRAINED in printed
  assert printed.endswith("--config=FILE:full\n")


def test_head_without_relvar_is_not_chosen_where_others_have_one():
  """Such as an exact softmax of other scores than the run's."""
  full = {"run": "full", "kind": "softmax", "ms": 1.0, "mib": 1.0}
  pps = {"run": "sampled/pps", "kind": "sample", "ms": 2.0, "mib": 1.0, "relvar": 0.5}
  assert advise.choice([full, pps], 0, 0) == pps
  assert advise.choice([full, pps], 1.5, 0) is None
  assert advise.choice([full], 0, 0) == full
  assert advise.advice(full, "within 5 ms", True).startswith("the exact softmax within")


@pytest.mark.long
def test_advice_from_a_run(tmp_path, capsys):
  workdir, out = tmp_path / "run", tmp_path / "advice.jsonl"
  flags = ["--config=configs/quickstart.py:runlocal", f"--workdir={workdir}"]
  assert main.run(["main", *flags]) == 0
  argv = [f"--workdir={workdir}", "--batch=16", *HEADS, f"--output={out}"]
  assert advise.main(argv) == 0
  relvar = {row["run"]: row.get("relvar") for row in records.load(out)}
  few, many = (f"sampled/pps --config.head.num_samples={m}" for m in (8, 64))
  assert relvar["full"] == 0 < relvar[many] < relvar[few]
  assert relvar["adaptive"] is None
  printed = capsys.readouterr().out
  assert "the smallest relvar within " in printed
  assert "ms, twice the fastest, and any memory: relvar" in printed
  assert advise.main([*argv, "--budget_mib=0.0001"]) == 0
  assert capsys.readouterr().out.endswith("raise --budget_ms or --budget_mib\n")


def test_advice_from_counts_names_no_sampled_head(counts, capsys):
  argv = ["--dim=8", "--batch=16", "--num_samples=8", "--heads", "sampled/pps"]
  assert advise.main([counts, *argv]) == 0
  assert "samples cannot be judged by counts: add `full`" in capsys.readouterr().out


def test_batch_samplers_get_labels_and_have_seen_batches(counts):
  problem = advise.of_counts(counts.partition("=")[2], dim=8, batch=16)
  paths = ["sampled/in_batch", "sampled/cbns", "nce/unigram"]
  made = advise.heads(paths, [12], problem)
  num = [head.num_samples for head in made.values()]
  assert num == [16, 8 * 16, 12]
  assert [*made] == [
    f"{path} --config.head.num_samples={m}"
    for path, m in zip(
      ["sampled/in_batch", "sampled/cbns", "nce/unigram"], num, strict=True
    )
  ]
  head = [*made.values()][1]
  state = head.init(advise.KEY, problem.counts, 8)
  stats = advise.after_batches(head, state, problem.counts, 16).stats
  assert (state.stats.memory_KT == 300).all()
  assert ((stats.memory_KT < 300).sum(axis=1) > 3).all()
  assert stats.now.step > 7
  seen_V = np.asarray(stats.now.seen_V)
  assert (seen_V[:3] > 0).all()  # the frequent ones
  assert (seen_V > 0).mean() < 0.9


def test_full_softmax_is_not_the_best_for_every_budget(capsys):
  """Even though its relvar is 0."""
  row = lambda run, kind, ms, **more: {"run": run, "kind": kind, "ms": ms, **more}
  rows = [
    row("full", "softmax", 90.0, mib=400.0, relvar=0.0),
    row("pps", "sample", 2.0, mib=20.0, relvar=0.1),
    row("block", "sample", 3.5, mib=50.0, relvar=0.01),
    row("broken", "sample", 1.5, mib=5.0, relvar=float("nan")),
    row("adaptive", "other", 0.5, mib=5.0),
  ]
  best = lambda ms, mib=0.0: advise.choice(rows, ms, mib)["run"]
  assert advise.default_budget_ms(rows[:3]) == 4
  assert (best(4), best(0), best(100), best(3)) == ("block", "full", "full", "pps")
  assert best(0, 60) == "block"
  assert best(4, 30) == "pps"
  assert advise.choice(rows, 1, 0) is None
  told = advise.advice(rows[2], "within 4 ms and any memory", True)
  assert told == (
    "the smallest relvar within 4 ms and any memory: relvar 0.01, 3.5 ms and 50 MiB "
    f"a step\n{advise.TRAINED}\n--config=FILE:block"
  )


def test_unsuitable_heads_are_named(counts, capsys):
  sizes = ["--dim=8", "--batch=16", "--num_samples=8"]
  advise.main([counts, *sizes, "--heads", "full", "sampled/bigram"])
  assert "left out: sampled/bigram" in capsys.readouterr().err
  with pytest.raises(UserError, match="no head suits"):
    advise.main([counts, *sizes, "--heads", "sampled/bigram"])


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--counts=none.npy"], "--counts=none.npy: No such file or directory"),
    (["--counts=/none"], "--counts=/none: No such file or directory"),
    (["--output=/"], "--output=/ is a directory: name a .jsonl file"),
    (["--dim=0"], "--dim=0: must be positive"),
    (["--batch=-1"], "--batch=-1: must be positive"),
    (["--heads", "fll"], "'fll'"),
  ],
)
def test_wrong_arguments_are_named(counts, argv, message):
  source = [] if argv[0].startswith("--counts") else [counts]
  with pytest.raises(UserError, match=message):
    advise.main([*source, *argv])
