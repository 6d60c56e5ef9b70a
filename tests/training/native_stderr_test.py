"""Reports of a lost process are reduced to one line; other lines are passed on."""

import os
import pathlib
import subprocess
import sys

import pytest

from largevocab.training import native_stderr

# As written by jaxlib 0.10 and 0.12.
SILENT = """\
E1123 11:01:25.660625    8154 coordination_service.cc:1549] [137] Use error polling to \
propagate the following error to all tasks: UNAVAILABLE: The following tasks are \
unhealthy (stopped sending heartbeats):
2
The tasks have crashed. Check the task logs for an earlier error, or scheduler events \
(e.g. preemption, eviction) to debug further. [type.googleapis.com/tensorflow.Coord='']
=== Source Location Trace: ===
external/xla+/xla/pjrt/distributed/coordination/coordination_service.cc:232

E1123 11:01:25.661237    8166 coordination_service_agent.cc:289] Polled an error from \
coordination service (this can be an error from this or another task).
F1123 11:01:25.661381    8166 client.h:80] Terminating process because the JAX \
distributed service detected fatal errors. This most likely indicates that another \
task died; see the other task logs for more details. absl::Status: UNAVAILABLE: The \
following tasks are unhealthy (stopped sending heartbeats):
2
The tasks have crashed. Check the task logs for an earlier error
*** Check failure stack trace: ***
    @     0x7f5a3b840634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""
FIRST = """\
E1123 11:01:37.976937    8280 coordination_service_agent.cc:289] Polled an error from \
coordination service (this can be an error from this or another task).
F1123 11:01:37.976968    8280 client.h:80] Terminating process because the JAX \
distributed service detected fatal errors. absl::Status: UNAVAILABLE: Failed to send \
RPC to coordination service. Either the leader task was preempted/died/restarted \
unexpectedly or this task is experiencing network issues.
:UNKNOWN:Error received from peer  {grpc_message:"Socket closed", grpc_status:14}
*** Check failure stack trace: ***
    @     0x7f4f9f840634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""
GOES_ON = " has ended; the same command goes on from the last save\n"


def written(text):
  lines = []
  native_stderr.filtered(text.splitlines(keepends=True), lines.append)
  return "".join(lines)


@pytest.mark.parametrize(
  ("report", "which"), [(SILENT, "process 2"), (FIRST, "process 0")]
)
def test_lost_process_is_reported_in_one_line(report, which):
  assert written(f"before\n{report}") == f"before\nerror: {which}{GOES_ON}"


def test_other_lines_are_passed_on():
  others = "W1123 11:01:25 1 nccl.cc:3] slow\nTraceback:\n  *** odd\n\n"
  assert written(others) == others


def test_own_error_is_kept_when_the_report_is_incomplete():
  begun = FIRST.partition("F1123")[0]
  assert written(f"{begun}error: ours\n") == "error: ours\n"


def test_filter_outlives_the_process_and_ignores_signals():
  program = """
import os, signal, sys
from largevocab.training import native_stderr
native_stderr.pass_through_filter()
print("of Python", file=sys.stderr)
os.write(2, sys.argv[1].encode())
os.killpg(0, signal.SIGINT)
os.abort()
"""
  command = [sys.executable, "-c", program, FIRST]
  root = pathlib.Path(__file__).parents[2]
  ended = subprocess.run(
    command,
    env={**os.environ, "PYTHONPATH": str(root)},
    capture_output=True,
    text=True,
    check=False,
    start_new_session=True,
  )
  assert ended.returncode
  lines = [line for line in ended.stderr.splitlines() if "Interrupt" not in line]
  assert lines[0] == "of Python"
  assert f"{lines[-1]}\n" == f"error: process 0{GOES_ON}"
