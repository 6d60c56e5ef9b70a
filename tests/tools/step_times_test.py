"""Times of steps: one record per method, whatever its seeds."""

import json
import os
import sys

import jax.numpy as jnp
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


@pytest.mark.long
def test_named_methods_are_timed_with_the_first_one(sweep):
  assert step_times.main([str(sweep), "--seconds=0.01", "--names", "sampled/pps"]) == 0
  (line,) = sweep.with_name("times.jsonl").read_text().splitlines()
  record = json.loads(line)
  assert record["name"] == "sampled/pps"
  assert "train.seed" not in record["overrides"]
  rebuilds = record["refresh_ms"] * len(record["refresh_steps"]) / 5  # in five steps
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
def test_times_of_other_devices_are_kept(sweep, monkeypatch):
  flags = [str(sweep), "--seconds=0.01", "--names", "full"]
  assert step_times.main(flags) == 0
  about = step_times.about_this_run() | {"device": "another"}
  monkeypatch.setattr(step_times, "about_this_run", lambda: about)
  for _ in range(2):
    assert step_times.main(flags) == 0
  lines = records.load(sweep.with_name("times.jsonl"))
  assert [line["name"] for line in lines] == ["full", "full"]
  assert [line["device"] == "another" for line in lines] == [False, True]


def test_unknown_method_is_one_line(sweep):
  with pytest.raises(UserError, match=r"has no 'pps'; use some of full, sampled/b"):
    step_times.main([str(sweep), "--names", "full", "pps"])


def test_unknown_data_are_one_line(sweep):
  with pytest.raises(UserError, match="--data=text8: use one of "):
    step_times.main([str(sweep), "--data=text8"])


def test_times_with_other_page_faults_are_kept(sweep):
  path = sweep.with_name("times.jsonl")
  line = {"run": "a-1", "name": "a", "device": "d", "page_faults": True}
  others = [{"device": "e"}, {"page_faults": False}]
  for ms in (1, 2):
    for other in ({}, *others):
      step_times._keep(path, line | other | {"ms_per_step": ms})
  rows = records.load(path, ["run"])
  assert [(row["device"], row["page_faults"]) for row in rows] == [
    *(("d", True), ("e", True), ("d", False)),
  ]
  assert {row["ms_per_step"] for row in rows} == {2}


def test_each_method_is_timed_on_its_own_data(sweep):
  sweep.write_text(
    """
def sweep(add):
  for num in (50, 90):
    more = {"data.num_classes": num}
    add("configs/ptb.py:full,runlocal", more, name=f"full, V={num}")

def metrics():
  return ["test_ppl"]
"""
  )
  assert step_times.main([str(sweep), "--seconds=0.01"]) == 0
  small, large = records.load(sweep.with_name("times.jsonl"))
  assert small["num_classes"] < large["num_classes"]


def test_nonfinite_steps_are_not_timed(sweep, monkeypatch):
  class Lost(step_times.TrainingSteps):
    def __init__(self, exp, data):
      super().__init__(exp, data)
      self._state = self._state._replace(bad_step=jnp.int32(3))

  monkeypatch.setattr(step_times, "TrainingSteps", Lost)
  with pytest.raises(
    UserError, match=r"^full: at train\.lr=20, timed step 3 .* lower rate"
  ):
    step_times.main([str(sweep), "--seconds=0.01", "--names", "full"])
  assert not sweep.with_name("times.jsonl").exists()


class Replaced(Exception):
  """Raised in place of replacing the process."""


@pytest.mark.parametrize("given", [None, "", "glibc.malloc.hugetlb=0"])
def test_program_uses_huge_pages_unless_the_environment_sets_them(monkeypatch, given):
  def execve(program, words, environment):
    assert [program, *words] == [sys.executable, sys.executable, *sys.orig_argv[1:]]
    raise Replaced(environment["GLIBC_TUNABLES"])

  monkeypatch.setattr(os, "execve", execve)
  monkeypatch.setattr(step_times, "main", lambda: 7)
  if given is None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    with pytest.raises(Replaced, match=r"^glibc\.malloc\.hugetlb=1$"):
      step_times.cli()
  else:
    monkeypatch.setenv("GLIBC_TUNABLES", given)
    assert step_times.cli() == 7
