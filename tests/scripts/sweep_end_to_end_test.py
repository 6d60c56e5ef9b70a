"""A sweep of real runs that is interrupted and started again."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import run_sweep

SWEEP = """
def sweep(add):
  for seed in (0, 1):
    add(
      "configs/ptb.py:runlocal",
      {
        "train.seed": seed, "train.epochs": 1000, "train.max_steps": 1000,
        "eval.every_epochs": 0, "checkpoint.every_steps": 10_000,
      },
      name="tiny",
    )
  add("configs/absent.py", name="faulty")

def metrics():
  return ["test_ppl", "steps"]
"""
SECONDS = 240


def start(path: pathlib.Path) -> subprocess.Popen[str]:
  command = [sys.executable, run_sweep.__file__, str(path), "--root", str(path.parent)]
  return subprocess.Popen(
    [*command, "--jobs", "2"],
    stderr=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    # Tests that a shell runs in the background would hand on that it is ignored.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )


def await_steps(root: pathlib.Path, process: subprocess.Popen[str]) -> None:
  """Waits until both runs have trained some steps."""
  deadline = time.monotonic() + SECONDS
  while time.monotonic() < deadline:
    logs = list(root.glob("*/metrics.jsonl"))
    if len([log for log in logs if log.stat().st_size]) == 2:
      return
    assert process.poll() is None, process.communicate()
    time.sleep(0.02)
  raise AssertionError("no run has begun to train")


def test_interrupted_sweep_goes_on(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP)
  results = tmp_path / "results.jsonl"

  launcher = start(path)
  await_steps(tmp_path, launcher)
  launcher.send_signal(signal.SIGINT)
  _, stderr = launcher.communicate(timeout=SECONDS)
  assert launcher.returncode == 130, stderr
  logs = sorted(tmp_path.glob("ptb-*/log.txt"))
  assert len(logs) == 2
  for log in logs:
    assert run_sweep.last_line(log).endswith("the same command goes on from here")
  assert not results.exists()

  launcher = start(path)
  _, stderr = launcher.communicate(timeout=SECONDS)
  assert launcher.returncode == 1, stderr
  assert "failed: absent-" in stderr
  assert "configs/absent.py" in stderr.splitlines()[-1]
  for log in logs:
    assert "going on from step" in log.read_text()
  rows = [json.loads(line) for line in results.read_text().splitlines()]
  assert [row["overrides"]["train.seed"] for row in rows] == [0, 1]
  assert [row["steps"] for row in rows] == [1000, 1000]
  assert rows[0]["test_ppl"] != rows[1]["test_ppl"]

  # Finished runs are left as they are.
  before = [log.read_bytes() for log in logs]
  launcher = start(path)
  launcher.communicate(timeout=SECONDS)
  assert [log.read_bytes() for log in logs] == before
  assert [json.loads(line) for line in results.read_text().splitlines()] == rows
