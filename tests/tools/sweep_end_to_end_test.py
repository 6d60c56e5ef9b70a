"""A sweep of six real runs that is killed twice and started again."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from largevocab import main
from largevocab.tools import run_sweep
from largevocab.tools.sweeps import launch, records, sweepfile

pytestmark = pytest.mark.long

SWEEP = """
def sweep(add):
  for head in ("full", "huffman"):
    for seed in range(2):
      add(
        f"configs/ptb.py:{head},runlocal",
        {
          "train.seed": seed, "train.epochs": 1000, "train.max_steps": 3000,
          "eval.every_epochs": 20.0, "checkpoint.every_steps": 500,
        },
        name=head,
      )
  add("configs/ptb.py:full", {"data.path": "absent"}, name="faulty")

def metrics():
  return ["test_ppl", "steps"]
"""
# If a shell runs the tests in the background, processes that they start would inherit
# that interrupts are ignored.
HEEDING_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
RUNS = 4
SECONDS = 240
# Times, which differ between two runs of the same config.
TIMES = ("ms_per_step", "peak_mib", "tokens_per_second", "train_seconds")


@pytest.fixture
def start():
  """Starts a launcher; it and its runs are stopped after the test."""
  started = []

  def call(path: pathlib.Path) -> subprocess.Popen[str]:
    command = ["-m", run_sweep.__name__, str(path), "--root", str(path.parent)]
    launcher = subprocess.Popen(
      [sys.executable, "-c", HEEDING_INTERRUPTS, *command, "--jobs", "2"],
      stderr=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    started.append(launcher)
    return launcher

  yield call
  for launcher in started:
    launcher.terminate()
    launcher.wait(timeout=SECONDS)


def await_training(runs: list[sweepfile.Run], root: pathlib.Path, launcher) -> None:
  """Waits until the runs have trained some steps."""
  logs = [root / run.id / "metrics.jsonl" for run in runs]
  deadline = time.monotonic() + SECONDS
  while time.monotonic() < deadline:
    if all(log.exists() and log.stat().st_size for log in logs):
      return
    assert launcher.poll() is None, launcher.communicate()
    time.sleep(0.02)
  raise AssertionError("the runs have not begun to train")


def without_times(path: pathlib.Path) -> list[dict]:
  rows = [
    {key: value for key, value in row.items() if key not in TIMES}
    for row in records.load(path)
  ]
  for row in rows:
    row["curve"] = [[step, nll] for step, nll, _ in row["curve"]]
  return rows


def uninterrupted(path: pathlib.Path, root: pathlib.Path) -> list[dict]:
  """Results of the sweep's runs, trained one after the other in this process."""
  runs = sweepfile.load(path).runs[:RUNS]
  for run in runs:
    main.main(["main", *run.flags(), f"--workdir={root / run.id}"])
  records.update(root / "results.jsonl", runs, root)
  return without_times(root / "results.jsonl")


def test_sweep_killed_twice_gives_the_same_results(start, tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP)
  results = tmp_path / "results.jsonl"
  runs = sweepfile.load(path).runs[:RUNS]

  launcher = start(path)
  await_training(runs[:2], tmp_path, launcher)
  launcher.send_signal(signal.SIGINT)  # The runs save and leave.
  _, stderr = launcher.communicate(timeout=SECONDS)
  assert launcher.returncode == 130, stderr
  stopped = [tmp_path / run.id / "log.txt" for run in runs[:2]]
  for log in stopped:
    assert launch.last_line(log).endswith("the same command goes on from here")
  assert not results.exists()

  launcher = start(path)
  await_training(runs[2:4], tmp_path, launcher)
  launcher.kill()  # The runs go on without it.
  launcher.communicate(timeout=SECONDS)

  launcher = start(path)
  _, stderr = launcher.communicate(timeout=SECONDS)
  assert launcher.returncode == 1, stderr
  assert f"failed: {tmp_path.name}/ptb-full-" in stderr
  assert "absent" in stderr.splitlines()[-1]
  for log in stopped:
    assert "going on from step" in log.read_text()

  # Finished runs are left as they are.
  rows = results.read_bytes()
  before = [log.read_bytes() for log in stopped]
  start(path).communicate(timeout=SECONDS)
  assert [log.read_bytes() for log in stopped] == before
  assert results.read_bytes() == rows

  assert without_times(results) == uninterrupted(path, tmp_path / "uninterrupted")
