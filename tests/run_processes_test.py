"""scripts/run_processes.py, which starts several processes on one machine."""

import pathlib
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

SCRIPTS = pathlib.Path(__file__).parents[1] / "scripts"
# The launcher, with a shorter wait for processes that do not end.
LAUNCHER = """
import sys
import run_processes
run_processes._SECONDS = 0.5
sys.exit(run_processes.main(sys.argv[1:]))
"""
# A process that prints its arguments and runs the task.
PROCESS = """
import os, sys, time
number = next((f[10:] for f in sys.argv if f.startswith("--process=")), "alone")
print(*sys.argv[2:], os.environ.get("XLA_FLAGS"), flush=True)
print("[Gloo] Rank 0 is connected", flush=True)
exec(sys.argv[1])
"""


@pytest.fixture
def start():
  """Starts the launcher, which is stopped with its processes after the test."""
  started = []

  def call(*arguments, task="pass", launcher=LAUNCHER, process=PROCESS):
    command = [sys.executable, "-c", launcher, *arguments, "--"]
    launched = subprocess.Popen(
      [*command, sys.executable, "-c", process, task],
      env={"PYTHONPATH": str(SCRIPTS), "PATH": ""},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    started.append(launched)
    return launched

  yield call
  for launched in started:
    launched.terminate()
    launched.communicate(timeout=60)


def test_each_process_gets_its_index_and_devices(start):
  out, err = start("3", "--devices", "2").communicate(timeout=60)
  lines = sorted(out.splitlines())
  ports = {line.partition("127.0.0.1:")[2].split()[0] for line in lines}
  assert len(ports) == 1
  flags = f"--coordinator=127.0.0.1:{ports.pop()}"
  devices = "--xla_force_host_platform_device_count=2"
  assert lines == [
    f"--processes=3 {flags} --process=0 {devices}",
    f"[1] --processes=3 {flags} --process=1 {devices}",
    f"[2] --processes=3 {flags} --process=2 {devices}",
  ]
  assert err == ""


def test_single_process_gets_processes_1(start):
  out, _ = start("1").communicate(timeout=60)
  assert out == "--processes=1 None\n"


def test_processes_go_on_if_their_output_is_not_read(start):
  more_than_a_pipe_holds = "[print(64 * '-', flush=True) for _ in range(4000)]"
  process = start("2", task=f"{more_than_a_pipe_holds}; sys.exit(7)")
  process.stdout.close()
  _, err = process.communicate(timeout=60)
  assert process.returncode == 7
  assert "Traceback" not in err


def test_failed_process_ends_all_with_its_status(start):
  process = start("3", task="number == '1' and sys.exit(7); time.sleep(600)")
  _, err = process.communicate(timeout=60)
  assert process.returncode == 7
  assert err == "run_processes: process 1 ended with status 7\n"


def test_killed_process_ends_all(start):
  task = "number == '2' and os.kill(os.getpid(), 9); time.sleep(600)"
  process = start("3", task=task)
  _, err = process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGKILL
  assert err == "run_processes: process 2 ended by SIGKILL\n"


def test_subprocesses_end_with_their_process(start):
  sleep = "import subprocess; subprocess.run([sys.executable, '-c', task])"
  task = (
    f"number == '1' and sys.exit(7); task = 'import time; time.sleep(600)'; {sleep}"
  )
  process = start("2", task=task)
  process.communicate(timeout=60)  # until the pipes, which they share, are closed
  assert process.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_to_all_processes(number, start):
  task = f"""
import signal
signal.signal({number:d}, lambda *_: (print("stopped"), sys.exit(143)))
print("ready", flush=True)
time.sleep(600)
"""
  process = start("2", task=task)
  seen = [process.stdout.readline() for _ in range(4)]
  assert sorted(seen)[-2:] == ["[1] ready\n", "ready\n"]
  process.send_signal(number)
  out, _ = process.communicate(timeout=60)
  assert sorted(out.splitlines()) == ["[1] stopped", "stopped"]
  assert process.returncode == 143


def test_no_process_remains_if_one_cannot_be_started(start, tmp_path):
  few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))"
  sleep = f"import time; time.sleep(60)  # {tmp_path}"
  process = start("20", launcher=f"{few}\n{LAUNCHER}", process=sleep)
  _, err = process.communicate(timeout=60)
  assert process.returncode == 1
  assert err.endswith("Too many open files\n")
  args = ["ps", "-ww", "-eo", "args"]  # whole lines
  shown = subprocess.run(args, capture_output=True, text=True, check=True).stdout
  assert str(tmp_path) not in shown
