"""Starts one training run as several processes on this machine.

python scripts/run_processes.py 4 --devices 2 -- \\
  python -m largevocab.main --config=ptb:sampled/pps --config.mesh.blocks=8 --workdir=W

Each process gets the command with `--coordinator`, `--processes` and `--process` and,
with `--devices K`, a CPU that counts as K devices. The output of process 0 is shown as
it is. Lines of the other processes follow their number. SIGHUP, SIGINT and SIGTERM go
to all processes. When one process fails, the others have some seconds to end. The exit
status is the first that is not 0. No process outlives this program, unless this program
is killed.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO

_SECONDS = 10.0  # time for the other processes to end after one has failed
_NOISE = b"[Gloo] Rank "  # a greeting of the library that communicates between CPUs


def main(argv: list[str]) -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("number", type=_positive, metavar="N", help="number of processes")
  parser.add_argument(
    "--devices", type=_positive, metavar="K", help="devices per process, on a CPU"
  )
  parser.add_argument("command", nargs="+", help="the command, after --")
  args = parser.parse_args(argv)
  if shutil.which(args.command[0]) is None:
    parser.error(f"there is no command {args.command[0]!r}")
  env = dict(os.environ)
  if args.devices:
    flag = f"--xla_force_host_platform_device_count={args.devices}"
    env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} {flag}".strip()
    env["JAX_PLATFORMS"] = "cpu"
  flags = [f"--processes={args.number}"]
  if args.number > 1:
    flags.append(f"--coordinator=127.0.0.1:{_free_port()}")
  processes: list[subprocess.Popen[bytes]] = []

  def forward(number: int, _: object) -> None:
    for process in processes:
      process.send_signal(number)

  for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, forward)
  threads = []
  try:
    for i in range(args.number):
      own = [f"--process={i}"] if args.number > 1 else []
      process = subprocess.Popen(
        [*args.command, *flags, *own],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that Ctrl-C arrives only through `forward`
      )
      processes.append(process)
      for source, sink in ((process.stdout, 1), (process.stderr, 2)):
        thread = threading.Thread(target=_show, args=(source, sink, i), daemon=True)
        thread.start()
        threads.append(thread)
    status = _wait(processes)
  finally:
    for process in processes:
      _kill(process)
      process.wait()
  for thread in threads:
    thread.join()
  return status


def _positive(text: str) -> int:
  if not text.isdecimal() or int(text) < 1:
    raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from 1")
  return int(text)


def _free_port() -> int:
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]


def _show(source: IO[bytes], sink: int, number: int) -> None:
  """Copies lines; reads on if nobody reads the copy, so that the process can go on."""
  prefix = b"[%d] " % number if number else b""
  for line in source:
    if not line.startswith(_NOISE):
      with contextlib.suppress(BrokenPipeError):
        os.write(sink, prefix + line)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
  """Waits for all processes; returns the first status that is not 0."""
  status, deadline = 0, float("inf")
  while None in (codes := [process.poll() for process in processes]):
    status = status or _first_failure(codes)
    if status and deadline == float("inf"):
      deadline = time.monotonic() + _SECONDS
    if time.monotonic() > deadline:
      for process in processes:
        _kill(process)
    time.sleep(0.05)
  return status or _first_failure(codes)


def _kill(process: subprocess.Popen[bytes]) -> None:
  """Kills a process and the processes that it started, which share its session."""
  with contextlib.suppress(ProcessLookupError, PermissionError):
    os.killpg(process.pid, signal.SIGKILL)


def _first_failure(codes: list[int | None]) -> int:
  """The status of the first process that failed, as in a shell; 0 if none failed."""
  for number, code in enumerate(codes):
    if code:
      how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
      print(f"run_processes: process {number} ended {how}", file=sys.stderr)
      return code if code > 0 else 128 - code
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
