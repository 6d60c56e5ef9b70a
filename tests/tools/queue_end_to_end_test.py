"""A queue of two sweeps, one with a search, that is killed with its runs."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from largevocab.errors import UserError
from largevocab.tools import run_sweep
from largevocab.tools.sweeps import campaign, records

pytestmark = pytest.mark.long

SECONDS = 240
SEARCHED = """
# Two steps an epoch; a rate that grows tenfold in each epoch diverges.
SHORT = {"data.num_tokens": 40, "train.epochs": 50, "train.hold_epochs": 1.0}

def sweep(add):
  add("configs/ptb.py:full,runlocal", {**SHORT, "train.seed": 1}, name="full softmax")

def search():
  return {"steps": 90, "grid": {"train.decay": [0.1, 1.0, 10.0]}}

def metrics():
  return ["test_ppl"]
"""
LONG = """
LENGTH = {"train.epochs": 1000, "checkpoint.every_steps": 100, "eval.every_epochs": 0.0}

def sweep(add):
  for steps in (2000, 5, 6):
    more = {"train.max_steps": steps, **LENGTH}
    add("configs/ptb.py:sampled/pps,runlocal", more, name=f"{steps} steps")

def metrics():
  return ["test_ppl", "steps"]
"""
QUEUE = """
[[sweep]]
file = "searched/sweep.py"

[[sweep]]
file = "long/sweep.py"
names = ["2000 steps", "5 steps"]
"""


@pytest.fixture
def queue(tmp_path):
  for name, text in (("searched", SEARCHED), ("long", LONG)):
    (tmp_path / name).mkdir()
    (tmp_path / name / "sweep.py").write_text(text)
  path = tmp_path / "queue.toml"
  path.write_text(QUEUE)
  return path


@pytest.fixture
def start():
  """Starts a queue; it and its runs are stopped after the test."""
  started = []

  def call(queue: pathlib.Path, *more: str) -> subprocess.Popen[str]:
    options = ["--queue", str(queue), "--root", str(root_of(queue)), "--jobs", "2"]
    runner = subprocess.Popen(
      [sys.executable, "-m", run_sweep.__name__, *options, *more],
      stderr=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    started.append(runner)
    return runner

  yield call
  for runner in started:
    runner.terminate()
    runner.wait(timeout=SECONDS)


def root_of(queue: pathlib.Path) -> pathlib.Path:
  return queue.parent / "runs"


def test_killed_queue_loses_nothing_and_repeats_nothing(start, queue):
  runner = start(queue)
  long, *_ = campaign.of_queue(queue, root_of(queue), [])[1].runs
  workdir = root_of(queue) / "long" / long.id
  deadline = time.monotonic() + SECONDS
  while not list((workdir / "checkpoints").glob("[0-9]*0")):
    assert runner.poll() is None, runner.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.05)
  pid = json.loads((workdir / "lock").read_text())["pid"]
  runner.kill()
  runner.communicate()
  os.kill(pid, signal.SIGKILL)

  ended = {p: p.read_bytes() for p in root_of(queue).glob("*/*/result.json")}
  runner = start(queue)
  _, stderr = runner.communicate(timeout=SECONDS)
  assert runner.returncode == 0, stderr
  assert "going on from step" in (workdir / "log.txt").read_text()
  assert (workdir / "log.txt").read_text().count("reading the data") == 2
  for path, content in ended.items():
    assert path.read_bytes() == content
  logs = {p: p.read_bytes() for p in root_of(queue).glob("*/*/log.txt")}
  assert len(logs) == 6
  assert len(ended) >= 1

  searched, trials, rows = (
    [row for row in records.load(queue.parent / name, ["run"]) if "baseline" not in row]
    for name in (
      "searched/results.jsonl", "searched/search.jsonl", "long/results.jsonl",
    )
  )  # fmt: skip
  counted = records.load(queue.parent / "long/results.jsonl")[len(rows) :]
  assert {row["name"] for row in counted} == {"unigram, counted", "bigram, counted"}
  assert [row["name"] for row in rows] == ["2000 steps", "5 steps"]
  assert [row["steps"] for row in rows] == [2000, 5]
  assert 0 < trials[2]["diverged"] < 90
  assert "valid_nll" not in trials[2]
  losses = {
    trial["valid_nll"]: trial["overrides"]["train.decay"] for trial in trials[:2]
  }
  (row,) = searched
  assert row["overrides"]["train.seed"] == 1
  assert row["overrides"]["train.decay"] == losses[min(losses)]
  assert row["trials"] == 3

  # A third start finds nothing to do, even if only the rows are left.
  shutil.rmtree(root_of(queue))
  runner = start(queue)
  _, stderr = runner.communicate(timeout=SECONDS)
  assert "6 runs, 6 finished before" in stderr
  assert not root_of(queue).exists()


def test_collecting_starts_nothing(start, queue):
  runner = start(queue, "--collect")
  _, stderr = runner.communicate(timeout=SECONDS)
  told = [line.rpartition(": ")[2] for line in stderr.splitlines()]
  assert (runner.returncode, told) == (0, [f"0 of {n} runs have ended" for n in (1, 2)])
  assert not root_of(queue).exists()


@pytest.mark.parametrize(
  ("text", "says"),
  [
    ("[[sweep]\n", "correct the file"),
    ("", r"must have \[\[sweep\]\] tables"),
    ("sweep = 3\n", r"must have \[\[sweep\]\] tables"),
    ("sweep = ['long/sweep.py']\n", r"must have \[\[sweep\]\] tables"),
    ("[[sweep]]\nfile = 3\n", "number 1: must have `file`"),
    ("[[sweep]]\nfile = 'long/sweep.py'\njobs = 3\n", "number 1: must have `file`"),
    ("[[sweep]]\nfile = 'long/sweep.py'\nnames = 3\n", "names is 3"),
    ("[[sweep]]\nfile = 'long/sweep.py'\nnames = ['x']\n", "no run named 'x'"),
    ("[[sweep]]\nfile = 'absent/sweep.py'\n", "absent/sweep.py: no such sweep file"),
  ],
)
def test_mistakes_in_a_queue_are_named(queue, text, says):
  queue.write_text(text)
  with pytest.raises(UserError, match=says):
    campaign.of_queue(queue, root_of(queue), [])


def test_queue_refuses_an_index(queue):
  with pytest.raises(UserError, match="--index is for one sweep"):
    run_sweep.main(["--queue", str(queue), "--index=0"])
