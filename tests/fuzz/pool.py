"""Workers, and their supervision."""

import json
import os
import pathlib
import selectors
import subprocess
import sys
import tempfile
import time

from tests.fuzz.case import ROOT, Case, Done, filled

# Of a program, seconds; of a machine that has other work, too, processor time counts.
LIMIT = 20.0
WAITING = 6.0  # times as long if it does not compute, but waits
START = 300.0
_POLL = 0.25


class Worker:
  """A process that runs cases; where one hangs or dies, a new one takes its place.

  Args:
    limit: seconds that a program may take.
    bare: nothing is imported before the first program.
  """

  def __init__(self, limit: float = LIMIT, bare: bool = False):
    self._limit, self._bare = limit, bare
    self._process: subprocess.Popen | None = None
    self._log = tempfile.TemporaryFile()  # noqa: SIM115

  def close(self) -> None:
    self.stop()
    self._log.close()

  def run(self, case: Case, here: pathlib.Path) -> Done:
    """The end of a case whose files are made."""
    argv, env = case.at(here)
    done = self._ask(case, here, argv, env)
    if case.then and (done.ending, done.status) == ("exit", 0):
      done = self._ask(case, here, [filled(word, here) for word in case.then], env)
    return done

  def stop(self) -> None:
    if self._process is not None:
      self._process.kill()
      self._process.wait()
      for pipe in (self._process.stdin, self._process.stdout):
        assert pipe is not None
        pipe.close()
      self._process = None

  def _ask(
    self, case: Case, here: pathlib.Path, argv: list[str], env: dict[str, str]
  ) -> Done:
    request = {
      "script": str(ROOT / case.script),
      "argv": argv,
      "cwd": str(here),
      "env": env,
      "stdin": None if case.stdin is None else case.stdin.decode("latin-1"),
      "encoding": case.encoding,
    }
    process = self._process or self._start()
    began, used = time.perf_counter(), _processor_seconds(process.pid)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    answer = None
    while answer is None:
      answer = self._answer(_POLL)
      seconds = time.perf_counter() - began
      computed = _processor_seconds(process.pid) - used
      is_over = computed > self._limit or seconds > WAITING * self._limit
      if answer is None and is_over:
        self.stop()
        return Done("hang", -1, "", self._last_words(), seconds)
    if not answer:
      status = process.wait()
      self.stop()
      return Done("crash", status, "", self._last_words(), seconds)
    return Done("exit", seconds=seconds, **json.loads(answer))

  def _start(self) -> subprocess.Popen:
    self._log.truncate(0)
    self._process = subprocess.Popen(
      [sys.executable, "-m", "tests.fuzz.worker", *(["--bare"] if self._bare else [])],
      cwd=ROOT,
      env={**os.environ, "PYTHONPATH": str(ROOT)},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._log,
    )
    if not self._answer(START):
      raise RuntimeError(f"a worker does not start: {self._last_words()}")
    return self._process

  def _answer(self, seconds: float) -> bytes | None:
    """The next line; b'' if there will be none; None if there is none yet."""
    assert self._process is not None
    assert self._process.stdout is not None
    with selectors.DefaultSelector() as selector:
      selector.register(self._process.stdout, selectors.EVENT_READ)
      return self._process.stdout.readline() if selector.select(seconds) else None

  def _last_words(self) -> str:
    size = self._log.seek(0, os.SEEK_END)
    self._log.seek(max(0, size - 4000))
    return self._log.read().decode(errors="replace")


def _processor_seconds(pid: int) -> float:
  """Time of a process on all processors; where there is no /proc, of the clock."""
  try:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
  except OSError:
    return time.perf_counter()
  user, system = stat.rpartition(")")[2].split()[11:13]
  return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
