"""Runs that are killed, or asked to stop, and started again."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from largevocab import config, main, train
from largevocab.training.checkpoint import Checkpoints
from largevocab.training.runlog import RunLog
from largevocab.training.state import restore

REPOSITORY = pathlib.Path(__file__).parents[1]
TIMING = {"seconds", "tokens_per_second", "train_seconds", "ms_per_step", "peak_mib"}
SECONDS = 240


def flags(head, workdir):
  settings = {
    "model.dropout": 0.3,
    "train.max_steps": 900,
    "train.epochs": 100,
    "train.lr": 0.5,
    "checkpoint.every_steps": 30,
    "eval.every_epochs": 7,
    "log.every_steps": 7,  # so that checkpoints are made between lines
    "log.monitor_every_steps": 45,
  }
  first = [f"--config=configs/ptb.py:{head},runlocal", f"--workdir={workdir}"]
  return first + [f"--config.{key}={value}" for key, value in settings.items()]


def checkpoints(workdir):
  return [int(p.name) for p in workdir.glob("checkpoints/*") if p.name.isdigit()]


def stop_midway(command, workdir, number, rng):
  """Starts the program, and sends a signal at some moment after its next checkpoint."""
  before = max(checkpoints(workdir), default=0)
  process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
  deadline = time.monotonic() + SECONDS
  try:
    while max(checkpoints(workdir), default=0) <= before:
      assert process.poll() is None, process.communicate()
      assert time.monotonic() < deadline
      time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.15))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=SECONDS)
  finally:
    process.kill()
  assert not (workdir / "result.json").exists(), "it had finished already"
  return process.returncode, stderr.splitlines()


def without_timing(record):
  return {key: value for key, value in record.items() if key not in TIMING}


def metrics(workdir):
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return [without_timing(json.loads(line)) for line in lines]


def final_state(workdir, which="latest"):
  _, state = restore(config.build(config.of_workdir(str(workdir))), str(workdir), which)
  return jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))


@pytest.mark.long
def test_stopped_run_ends_bitwise_like_an_uninterrupted_one(tmp_path, monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  head = "sampled/pps"
  whole, stopped = tmp_path / "whole", tmp_path / "stopped"
  assert main.run(["main", *flags(head, whole)]) == 0

  command = [sys.executable, "-m", "largevocab.main", *flags(head, stopped)]
  rng = random.Random(0)
  for number in (signal.SIGTERM, signal.SIGKILL):
    status, lines = stop_midway(command, stopped, number, rng)
    if number == signal.SIGTERM:
      assert status == 128 + signal.SIGTERM
      assert lines[-1].endswith("the same command goes on from here")
      step = int(lines[-1].split("stopped at step ")[1].split(";")[0])
      assert step == max(checkpoints(stopped))
    else:
      assert status == -signal.SIGKILL
  with (stopped / "metrics.jsonl").open("a") as file:
    file.write('{"step": 3, "spl')  # an incomplete write
  assert main.run(["main", *flags(head, stopped)]) == 0

  assert metrics(stopped) == metrics(whole)
  results = [json.loads((d / "result.json").read_text()) for d in (whole, stopped)]
  assert without_timing(results[0]) == without_timing(results[1])
  for a, b in zip(final_state(whole), final_state(stopped), strict=True):
    np.testing.assert_array_equal(a, b)


def test_run_killed_before_its_result_gets_the_same_result(tmp_path, monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  command = ["main", "--config=configs/ptb.py:runlocal", f"--workdir={tmp_path}"]
  assert main.run(command) == 0
  before = metrics(tmp_path), (tmp_path / "result.json").read_text()
  (tmp_path / "result.json").unlink()
  assert main.run(command) == 0
  assert metrics(tmp_path) == before[0]
  again = json.loads((tmp_path / "result.json").read_text())
  assert without_timing(again) == without_timing(json.loads(before[1]))


@pytest.mark.long
def test_run_on_shuffled_examples_resumes_within_an_epoch(tmp_path, monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  head = "spherical/taylor"
  keys = {"train.batch_size": 128, "train.max_steps": 60, "checkpoint.every_steps": 25}
  keys |= {"train.epochs": 100, "model.dropout": 0.3, "eval.every_epochs": 0}
  config = f"--config=configs/next_item.py:{head},runlocal"
  command = ["main", config, f"--workdir={tmp_path}"]
  command += [f"--config.{key}={value}" for key, value in keys.items()]
  assert main.run(command) == 0
  before = metrics(tmp_path), final_state(tmp_path)
  (tmp_path / "result.json").unlink()
  shutil.rmtree(tmp_path / "checkpoints" / "60")
  assert max(checkpoints(tmp_path)) == 50  # 7 steps per epoch
  assert main.run(command) == 0
  assert metrics(tmp_path) == before[0]
  for a, b in zip(final_state(tmp_path), before[1], strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_run_stopped_during_an_evaluation_resumes_bitwise(tmp_path, monkeypatch):
  """It is stopped once in each evaluation: two during training, two at the end."""
  monkeypatch.chdir(REPOSITORY)
  whole, stopped = tmp_path / "whole", tmp_path / "stopped"
  keys = {"max_steps": 50, "epochs": 1, "lr": 20.0}
  flags = [f"--config.train.{key}={value}" for key, value in keys.items()]
  flags += ["--config=configs/ptb.py:runlocal", "--config.eval.every_epochs=0.4"]
  flags += ["--config.checkpoint.every_steps=1000"]
  assert main.run(["main", *flags, f"--workdir={whole}"]) == 0
  flags.append(f"--workdir={stopped}")

  for number, step in ((1, 20), (2, 40), (2, 50), (2, 50)):
    with monkeypatch.context() as patch:
      patch.setattr(train, "Evaluate", signalling(train.Evaluate, number))
      with pytest.raises(SystemExit) as end:
        main.run(["main", *flags])
    assert end.value.code == 128 + signal.SIGTERM
    assert max(checkpoints(stopped)) == step
    assert not (stopped / "result.json").exists()
  assert main.run(["main", *flags]) == 0

  assert metrics(stopped) == metrics(whole)
  results = [json.loads((d / "result.json").read_text()) for d in (whole, stopped)]
  assert without_timing(results[0]) == without_timing(results[1])
  for which in ("latest", "best"):
    pairs = zip(final_state(whole, which), final_state(stopped, which), strict=True)
    for a, b in pairs:
      np.testing.assert_array_equal(a, b)


def test_run_stopped_during_monitoring_saves_its_last_step(tmp_path, monkeypatch):
  """A signal between a checkpoint and the next step must not leave a step unsaved."""
  monkeypatch.chdir(REPOSITORY)

  def write_and_signal(log, step, split, metrics, write=RunLog.write):
    write(log, step, split, metrics)
    if split == "monitor" and step == 2:
      os.kill(os.getpid(), signal.SIGTERM)

  flags = ["main", "--config=configs/ptb.py:sampled/pps,runlocal"]
  flags += [f"--workdir={tmp_path}", "--config.checkpoint.every_steps=1000"]
  with monkeypatch.context() as patch:
    patch.setattr(RunLog, "write", write_and_signal)
    with pytest.raises(SystemExit):
      main.run(flags)
  assert checkpoints(tmp_path) == [3]


def signalling(Evaluate, number):
  """`Evaluate`, with a SIGTERM during the evaluation with this number."""

  def make(*args):
    evaluate, calls = Evaluate(*args), []

    def evaluate_and_signal(state, batches, stopped):
      calls.append(batches)
      asked = []

      def signal_at_the_second_batch():
        asked.append(True)
        if len(calls) == number and len(asked) == 2:
          os.kill(os.getpid(), signal.SIGTERM)
        return stopped()

      return evaluate(state, batches, signal_at_the_second_batch)

    evaluate_and_signal.try_out = evaluate.try_out
    return evaluate_and_signal

  return make


def test_checkpoint_with_the_lowest_loss_is_kept_as_best(tmp_path):
  state = {"x": np.arange(3.0)}
  losses = {1: 3.0, 2: 2.0, 3: float("nan"), 4: 5.0, 5: 4.0}
  with Checkpoints(str(tmp_path), keep=1) as saved:
    for step, nll in losses.items():
      saved.save(step, {"x": step * state["x"]}, {"seconds": 0.0})
      saved.note_cost(step, nll)
    saved.save(6, state, {"seconds": 0.0})
  assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["2", "6"]
  with Checkpoints(str(tmp_path)) as saved:
    best, _ = saved.restore(state, "best")
  np.testing.assert_array_equal(best["x"], 2 * state["x"])
