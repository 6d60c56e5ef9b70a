"""Runs of several processes that communicate over loopback; see `processes_test.py`.

  python -m tests.on_processes 5 [SEED]

kills one of the processes of a run, at five random moments, and goes on with others.
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

from largevocab import main

REPOSITORY = pathlib.Path(__file__).parents[1]
LAUNCHER = REPOSITORY / "scripts" / "run_processes.py"
TIMING = {"seconds", "tokens_per_second", "train_seconds", "ms_per_step", "peak_mib"}
PATIENCE = 300  # seconds to wait for an event
KEYS = {
  "mesh.blocks": 8,
  "train.batch_size": 8,
  "train.unroll": 4,
  "train.epochs": 1000,
  "train.clip_norm": 0.1,
  "model.dropout": 0.3,
  "head.num_samples": 16,
  "eval.every_epochs": 0,
  "eval.batch_size": 8,
  "log.every_steps": 1,
}
# A long run, with saves between log lines. 6 rows are not divided.
LONG = {
  "train.max_steps": 400,
  "checkpoint.every_steps": 20,
  "log.every_steps": 7,
  "log.monitor_every_steps": 45,
  "eval.every_epochs": 3,
  "eval.batch_size": 6,
}


def write_text(path):
  """Writes a text of a hundred words, some of them frequent."""
  rng = random.Random(0)
  words = [f"w{int(100 ** rng.random())}" for _ in range(3000)]
  lines = [" ".join(words[i : i + 10]) for i in range(0, len(words), 10)]
  path.write_text("\n".join(lines) + "\n")
  return path


def flags(text, workdir, **keys):
  """The flags of a run; `__` in a key stands for a dot."""
  keys = KEYS | {key.replace("__", "."): value for key, value in keys.items()}
  return [
    f"--config={REPOSITORY}/configs/text.py:sampled/pps,hidden=8",
    f"--config.data.train={text}",
    f"--workdir={workdir}",
    *(f"--config.{key}={value}" for key, value in keys.items()),
  ]


def long(text, workdir, **keys):
  return flags(text, workdir, **{k.replace(".", "__"): LONG[k] for k in LONG} | keys)


def environment(devices):
  flag = f"--xla_force_host_platform_device_count={devices}"
  return {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}",
    "PYTHONPATH": str(REPOSITORY),
  }


def launched(number, devices, arguments):
  """Runs processes with the launcher; returns the status and the lines on stderr."""
  finished = subprocess.run(
    [
      *(sys.executable, LAUNCHER, str(number), "--devices", str(devices), "--"),
      *(sys.executable, "-m", "largevocab.main", *arguments),
    ],
    env=environment(devices=1),
    capture_output=True,
    text=True,
    timeout=PATIENCE,
    check=False,
  )
  return finished.returncode, finished.stderr.splitlines()


@contextlib.contextmanager
def started(number, devices, arguments, of_last=None):
  """Starts processes without the launcher, which would end them all.

  The last process may have its own arguments, `of_last`.
  """
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"--coordinator=127.0.0.1:{free.getsockname()[1]}"
  with contextlib.ExitStack() as stack:
    processes = []
    for i in range(number):
      own = [address, f"--processes={number}", f"--process={i}"]
      given = of_last if of_last and i == number - 1 else arguments
      process = subprocess.Popen(
        [sys.executable, "-m", "largevocab.main", *given, *own],
        env=environment(devices),
        stderr=subprocess.PIPE,
        text=True,
      )
      stack.enter_context(process)
      stack.callback(process.kill)
      processes.append(process)
    yield processes


def lines_of(process, seconds=PATIENCE):
  """The lines that a process wrote to stderr until its end, without greetings."""
  _, written = process.communicate(timeout=seconds)
  return [line for line in written.splitlines() if not line.startswith("[Gloo] ")]


def checkpoints(workdir):
  return [int(p.name) for p in workdir.glob("checkpoints/*") if p.name.isdigit()]


def wait_for_next_checkpoint(processes, workdir):
  before, deadline = max(checkpoints(workdir), default=0), time.monotonic() + PATIENCE
  while max(checkpoints(workdir), default=0) <= before:
    assert all(p.poll() is None for p in processes), [lines_of(p) for p in processes]
    assert time.monotonic() < deadline
    time.sleep(0.01)


def metrics(workdir):
  lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
  return [{k: v for k, v in line.items() if k not in TIMING} for line in lines]


def assert_close(got, want):
  """Compares metrics of two runs, up to rounding; log_z_bias can be near 0."""
  assert [(m["step"], m["split"]) for m in got] == [
    (m["step"], m["split"]) for m in want
  ]
  for one, other in zip(got, want, strict=True):
    assert one.keys() == other.keys()
    for key in one.keys() - {"split"}:
      room = 1e-5 * max(abs(other[key]), key == "log_z_bias")
      assert abs(one[key] - other[key]) <= room, (key, one, other)


def killed(text, workdir, number, devices, victim, rng):
  """Kills a process of a run at a random moment; returns what the others wrote."""
  with started(number, devices, long(text, workdir)) as processes:
    wait_for_next_checkpoint(processes, workdir)
    time.sleep(rng.uniform(0, 0.3))
    processes[victim].send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    others = [p for i, p in enumerate(processes) if i != victim]
    written = [lines_of(p, seconds=60) for p in others]
    print(f"the others ended in {time.monotonic() - killed_at:.1f} s")
    processes[victim].wait()
    assert all(p.returncode for p in processes)
    assert not (workdir / "result.json").exists(), "it had finished already"
    return written


def by_hand(moments, seed):
  """Kills processes of a run repeatedly, and resumes it with another shape."""
  print(f"seed {seed}", flush=True)
  rng = random.Random(seed)
  root = pathlib.Path(tempfile.mkdtemp())
  text = write_text(root / "text.txt")
  assert main.run(["main", *long(text, root / "whole")]) == 0
  shapes = [(2, 1), (4, 1), (2, 4), (2, 2), (1, 8)]
  workdir = root / "killed"
  for i in range(moments):
    (number, devices), victim = shapes[i % 4], rng.randrange(shapes[i % 4][0])
    written = killed(text, workdir, number, devices, victim, rng)
    print(f"{number} x {devices}: killed {victim} after {max(checkpoints(workdir))}")
    print(*(lines[-1] for lines in written), sep="\n", flush=True)
    assert all(sum("error" in line for line in lines) == 1 for lines in written)
  status, lines = launched(*shapes[moments % 5], long(text, workdir))
  assert status == 0, lines
  assert_close(metrics(workdir), metrics(root / "whole"))
  print(f"{moments} times killed, and metrics are those of an uninterrupted run")


if __name__ == "__main__":
  by_hand(int(sys.argv[1]), sys.argv[2] if sys.argv[2:] else str(time.time()))
