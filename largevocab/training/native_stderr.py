"""Filters what libraries write directly to the standard error stream.

When a process of a run is lost, JAX ends the others from within C++, with a stack
trace. The filter is a separate program, which outlives these processes and reports the
loss in one line. It passes everything else on.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

# What JAX's coordination service reports before it ends the process, and as it does so.
_BEGIN = re.compile("Use error polling to propagate|Polled an error from coordination")
_END = "JAX distributed service detected fatal errors"
_SILENT = re.compile(r"heartbeats\):\s+([\d, \n]+)")


def pass_through_filter() -> None:
  """Sends this process's standard error stream through a filter."""
  command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
  sys.stderr.flush()
  program = subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=2, start_new_session=True
  )
  assert program.stdin is not None
  os.dup2(program.stdin.fileno(), 2)
  program.stdin.close()
  program.returncode = 0  # Nothing waits for it: it ends after this process has ended.


def lost(report: str, reason: str = "") -> str:
  """A message about a lost process, from JAX's report or with another reason.

  >>> lost("unhealthy (stopped sending heartbeats):\\n2\\nThe tasks have crashed")[:19]
  'process 2 has ended'
  """
  numbers = _SILENT.search(report)
  which = "another process"
  if numbers:
    which = f"process {', '.join(numbers[1].replace(',', ' ').split())}"
  elif "leader task" in report:
    which = "process 0"
  why = f" ({' '.join(reason.split())[:200]})" if reason else ""
  return f"{which} has ended{why}; the same command goes on from the last save"


def filtered(lines: Iterable[str], write: Callable[[str], object]) -> None:
  """Writes the lines, but replaces a report of a lost process by one line.

  >>> filtered(["a\\n", "E1 b\\n"], lambda line: print(line, end=""))
  a
  E1 b
  """
  report: list[str] = []
  for line in lines:
    if report or _BEGIN.search(line) or _END in line:
      report.append(line)
    else:
      write(line)
  if any(_END in line for line in report):
    write(f"error: {lost(''.join(report))}\n")
    return
  for line in report:  # the process ended by itself at the same time
    if not _BEGIN.search(line):
      write(line)


def main() -> None:
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
  stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
  out = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115

  def write(line: str) -> None:
    out.write(line)
    out.flush()

  filtered(stdin, write)


if __name__ == "__main__":
  main()
