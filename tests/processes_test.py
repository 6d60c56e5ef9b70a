"""Runs of several processes: their number must not matter, and all end together."""

import contextlib
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from largevocab import main
from tests import on_processes
from tests.on_processes import checkpoints, flags, launched, lines_of, long, metrics

pytestmark = pytest.mark.long

STEPS = {"train__max_steps": 4, "checkpoint__every_steps": 2}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
  return on_processes.write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def alone(text, tmp_path_factory):
  """A run of one process, and its state halfway."""
  root = tmp_path_factory.mktemp("alone")
  first = {**STEPS, "train__max_steps": 2}
  assert main.run(["main", *flags(text, root / "half", **first)]) == 0
  shutil.copytree(root / "half", root / "whole")
  assert main.run(["main", *flags(text, root / "whole", **STEPS)]) == 0
  return root


def test_two_processes_with_four_devices_match_one_process(
  alone, text, tmp_path, capfd
):
  status, lines = launched(2, 4, flags(text, tmp_path / "run", **STEPS))
  assert status == 0, lines
  got = metrics(tmp_path / "run")
  # The resumed run was also evaluated at its first end.
  whole = metrics(alone / "whole")
  want = [m for m in whole if m["step"] != 2 or m["split"] == "train"]
  on_processes.assert_close(got, want)
  assert lines[-1].split()[1] == "finished"
  assert not [line for line in lines if line.startswith("[1]")]
  result = json.loads((tmp_path / "run" / "result.json").read_text())
  capfd.readouterr()
  assert main.run(["main", "--mode=evaluate", f"--workdir={tmp_path / 'run'}"]) == 0
  evaluated = json.loads(capfd.readouterr().out)
  assert evaluated["test_nll"] == pytest.approx(result["test_nll"], rel=1e-5)


def test_four_processes_continue_the_run_of_one(alone, text, tmp_path):
  workdir = shutil.copytree(alone / "half", tmp_path / "run")
  status, lines = launched(4, 2, flags(text, workdir, **STEPS))
  assert status == 0, lines
  on_processes.assert_close(metrics(workdir), metrics(alone / "whole"))


def test_stopped_and_killed_run_continues_with_one_process(text, tmp_path):
  whole, workdir = tmp_path / "whole", tmp_path / "run"
  with on_processes.started(2, 1, long(text, workdir)) as processes:
    on_processes.wait_for_next_checkpoint(processes, workdir)
    for process in processes:  # so that they do not end before the others begin
      process.send_signal(signal.SIGSTOP)
    status, lines = launched(2, 1, long(text, workdir))  # a second one of the same run
    for process in processes:
      process.send_signal(signal.SIGCONT)
    assert status == 1
    (error,) = [line for line in lines if line.startswith("error: ")]
    assert error.startswith(f"error: {workdir} is in use: process {processes[0].pid}")
    processes[1].send_signal(signal.SIGTERM)
    written = [lines_of(process) for process in processes]
    assert [p.returncode for p in processes] == 2 * [128 + signal.SIGTERM]
  assert written[1] == []
  step = int(written[0][-1].split("stopped at step ")[1].split(";")[0])
  assert step == max(checkpoints(workdir))

  (lines,) = on_processes.killed(text, workdir, 2, 1, victim=1, rng=random.Random(0))
  errors = [line for line in lines if "info" not in line and line.startswith("error")]
  assert errors == lines[-1:]
  assert re.search(r"has ended( \(.+\))?; the same command goes on from", errors[0])

  for path in (workdir, whole):
    assert main.run(["main", *long(text, path)]) == 0
  on_processes.assert_close(metrics(workdir), metrics(whole))


def test_early_stopped_run_is_evaluated_again_by_all_processes(text, tmp_path):
  """All processes ask whether the run is over, and the first one decides."""
  early = {"train__patience": 1, "eval__every_epochs": 0.1, "train__max_steps": 400}
  results = []
  for k in (4, 5):
    arguments = flags(text, tmp_path, **early, eval__ranking_k=k)
    status, lines = launched(2, 1, arguments)
    assert status == 0, lines
    results.append(json.loads((tmp_path / "result.json").read_text()))
  first, again = results
  assert again["steps"] == first["steps"] < 400
  assert again["test_nll"] == pytest.approx(first["test_nll"], rel=1e-5)
  assert json.loads((tmp_path / "result.1.json").read_text()) == first


@pytest.mark.parametrize(
  ("given", "words"),
  [
    (["--processes=2"], "--coordinator and --process are missing"),
    (["--coordinator=a:1", "--processes=2"], "--process is missing"),
    (["--coordinator=a", "--processes=2", "--process=1"], "give HOST:PORT"),
    (["--coordinator=a:1", "--processes=2", "--process=2"], "give 0 to 1"),
    (["--coordinator=a:1", "--processes=0", "--process=0"], "positive integer"),
  ],
)
def test_invalid_process_flags_are_reported_in_one_line(
  given, words, text, tmp_path, capsys
):
  assert main.run(["main", *flags(text, tmp_path), *given]) == 1
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("error: ")
  assert words in line


def test_several_processes_need_several_blocks(text, tmp_path):
  arguments = flags(text, tmp_path / "run", mesh__blocks=1)
  status, lines = launched(2, 2, arguments)
  assert status == 1
  (error,) = [line for line in lines if line.startswith("error: ")]
  assert "mesh.blocks is 1, but there are 2 processes: set it to 4" in error
  assert not (tmp_path / "run").exists()


def test_process_with_other_settings_or_files_is_named(text, tmp_path):
  other = tmp_path / "other.txt"
  words = text.read_text().split()
  other.write_text("\n".join(" ".join(words[i : i + 7]) for i in range(7, 2800, 7)))
  of = lambda **keys: flags(text, tmp_path / "run", **STEPS, mesh__blocks=6, **keys)
  for number, of_last, what, first, last in [
    (2, of(train__lr=0.125), "config.train.lr (", "0.2 in this", "0.125 in this"),
    (2, [*of(), "--mode=evaluate"], "--mode (", '"train" in', '"evaluate" in'),
    (
      2,
      [each.replace(":sampled", ":nce") for each in of()],
      "the names of their settings",
      "",
      "",
    ),
    (3, of(data__train=other), "the data's 'train' (", "", ""),
  ]:
    with on_processes.started(number, 1, of(), of_last) as processes:
      written = [lines_of(process) for process in processes]
    assert [process.returncode for process in processes] == number * [1]
    of_all = [first] * (number - 1) + [last]
    for lines, here in zip(written, of_all, strict=True):
      (error,) = [line for line in lines if line.startswith("error: ")]
      start = f"error: processes 0 and {number - 1} differ in {what}{here}"
      assert error.startswith(start)
    assert not (tmp_path / "run" / "config.json").exists()


def test_workdirs_that_are_not_shared_are_reported_before_training(text, tmp_path):
  of = lambda name: flags(text, tmp_path / name, **STEPS, mesh__blocks=2)
  with on_processes.started(2, 1, of("one"), of("two")) as processes:
    written = [lines_of(process) for process in processes]
  assert [process.returncode for process in processes] == [1, 1]
  here = f"process {processes[0].pid} on ", "no process in this one"
  for lines, seen in zip(written, here, strict=True):
    (error,) = [line for line in lines if line.startswith("error: ")]
    start = f"error: processes 0 and 1 differ in the lock of --workdir ({seen}"
    assert error.startswith(start)
    assert "give all of them the same --workdir" in error
  assert not list(tmp_path.glob("*/config.json"))


def test_paths_of_data_can_differ_between_processes_and_resumptions(text, tmp_path):
  copy = shutil.copy(text, tmp_path / "copy.txt")
  for steps in (1, 2):
    given = {**STEPS, "train__max_steps": steps, "mesh__blocks": 2}
    of = lambda where: flags(where, tmp_path / "run", **given)  # noqa: B023
    with on_processes.started(2, 1, of(text), of(copy)) as processes:
      written = [lines_of(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], written
    assert max(checkpoints(tmp_path / "run")) == steps
  arguments = ["--mode=evaluate", f"--workdir={tmp_path / 'run'}"]
  status, lines = launched(2, 1, arguments)
  assert status == 0, lines


def test_names_of_files_can_differ_between_processes(tmp_path):
  lines = [f"u{i % 20} i{i % 33} {i}\n" for i in range(200)]
  for name in ("one", "two"):
    (tmp_path / name).write_text("".join(lines))
  keys = {"data.path": tmp_path, "data.cache_dir": tmp_path / "cache"}
  keys |= {"model.embed": 8, "model.hidden": 8, "head.num_samples": 8}
  keys |= {"train.batch_size": 4, "train.max_steps": 1, "mesh.blocks": 2}
  of = lambda name: [
    f"--config={on_processes.REPOSITORY}/configs/sequences.py:sampled/pps,model=gru",
    f"--workdir={tmp_path / 'run'}",
    *(f"--config.{key}={value}" for key, value in keys.items()),
    f"--config.data.file={name}",
  ]
  with on_processes.started(2, 1, of("one"), of("two")) as processes:
    written = [lines_of(process) for process in processes]
  assert [process.returncode for process in processes] == [0, 0], written


def test_documented_example_of_several_hosts_runs(tmp_path):
  """It runs with three processes of two devices; one process has another loss."""
  page = (on_processes.REPOSITORY / "docs" / "devices.md").read_text()
  (program,) = re.findall(
    r"<!-- hosts example -->\n```python\n(.*?)```", page, re.DOTALL
  )
  call = "jax.distributed.initialize()"
  assert program.count(call) == 1
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"

  def started(stack, own):
    process = subprocess.Popen(
      [sys.executable, "-c", program.replace(call, own)],
      env=on_processes.environment(devices=2),
      stdout=subprocess.PIPE,
      text=True,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process

  def loss_of(process):
    written, _ = process.communicate(timeout=on_processes.PATIENCE)
    assert process.returncode == 0
    return float(written.splitlines()[-1])

  with contextlib.ExitStack() as stack:
    of = lambda i: started(stack, f'{call[:-1]}"{address}", 3, {i})')
    first, *others = map(loss_of, [of(i) for i in range(3)])
    assert others == [first, first]  # although each process has other examples
    assert 0 < first < 6.9  # the start is at log 1000
    assert abs(loss_of(started(stack, "")) - first) > 0.01
