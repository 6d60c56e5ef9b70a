"""Times of steps: a record for each method, whatever its seeds."""

import json

import pytest

from largevocab.errors import UserError
from largevocab.tools import step_times
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.launch import REPOSITORY

SWEEP = """
def sweep(add):
  for head in ("full", "sampled/pps", "sampled/block"):
    for seed in (0, 1):
      add(f"configs/ptb.py:{head},runlocal", {"train.seed": seed}, name=head)

def metrics():
  return ["test_ppl"]
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP)
  return path


def test_methods_that_are_named_are_timed_beside_the_first(sweep):
  assert step_times.main([str(sweep), "--seconds=0.01", "--names", "sampled/pps"]) == 0
  (line,) = sweep.with_name("times.jsonl").read_text().splitlines()
  record = json.loads(line)
  assert record["name"] == "sampled/pps"
  assert "train.seed" not in record["overrides"]
  rebuilds = record["refresh_ms"] * len(record["refresh_steps"]) / 5  # of five steps
  step_ms = record["ms_per_step"] - rebuilds
  assert record["ratio"] == pytest.approx(step_ms / record["full_ms"])
  assert min(record[key] for key in ("ms_per_step", "operations_per_step")) > 0


def test_the_reference_is_the_first_method_on_the_same_data(sweep, monkeypatch):
  sweep.write_text(
    """
def sweep(add):
  for seed in (0, 1):
    for head in ("full", "sampled/pps"):
      for data, streams in (("a", 4), ("b", 8)):
        overrides = {"train.seed": seed, "train.batch_size": streams}
        add(f"configs/ptb.py:{head},runlocal", overrides, name=f"{data}: {head}")

def metrics():
  return ["test_ppl"]
"""
  )
  built = []

  class Recorded(step_times.TrainingSteps):
    def __init__(self, exp, data):
      built.append((type(exp.head).__name__, exp.train.batch_size))
      super().__init__(exp, data)

  monkeypatch.setattr(step_times, "TrainingSteps", Recorded)
  assert (
    step_times.main([str(sweep), "--seconds=0.01", "--names", "b: sampled/pps"]) == 0
  )
  assert built == [("Full", 8), ("Sampled", 8)]


@pytest.mark.long
def test_times_of_another_device_stay(sweep, monkeypatch):
  flags = [str(sweep), "--seconds=0.01", "--names", "full"]
  assert step_times.main(flags) == 0
  about = step_times.about_this_run() | {"device": "another"}
  monkeypatch.setattr(step_times, "about_this_run", lambda: about)
  for _ in range(2):
    assert step_times.main(flags) == 0
  lines = records.load(sweep.with_name("times.jsonl"))
  assert [line["name"] for line in lines] == ["full", "full"]
  assert [line["device"] == "another" for line in lines] == [False, True]


def test_a_method_that_is_not_there_is_one_line(sweep):
  with pytest.raises(UserError, match=r"has no 'pps'; use some of full, sampled/b"):
    step_times.main([str(sweep), "--names", "full", "pps"])


def test_data_that_are_not_there_are_one_line(sweep):
  with pytest.raises(UserError, match="--data=text8: use one of "):
    step_times.main([str(sweep), "--data=text8"])
