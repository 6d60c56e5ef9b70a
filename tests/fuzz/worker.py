"""Runs one program after the other, as Python would run each, in one process.

Imports take seconds and a case milliseconds. So a worker lives long: it reads requests,
JSON lines, from stdin and answers each on what was its stdout. It is the worker's
parent that ends it where a program hangs.
"""

import gc
import io
import json
import os
import resource
import runpy
import signal
import sys
import traceback
from typing import IO, Any

# A program that wants more fails, instead of the machine.
MEMORY = 10 << 30
FILE_SIZE = 512 << 20
# Compiled programs stay in memory, and each takes some of a process's memory maps.
RUNS_BETWEEN_CLEARINGS = 25


def run(request: dict[str, Any]) -> dict[str, Any]:
  """Runs a script; its exit status and what it wrote.

  Args:
    request: script, argv, cwd, env, stdin (text in Latin-1, for bytes; or None) and the
      encoding of its stdout.
  """
  out, err = io.BytesIO(), io.BytesIO()
  stdin = request["stdin"]
  streams = sys.stdin, sys.stdout, sys.stderr, sys.argv
  environment, handlers = dict(os.environ), _handlers()
  os.chdir(request["cwd"])
  os.environ.update(request["env"])
  sys.argv = [request["script"], *map(_argument, request["argv"])]
  sys.stdin = None if stdin is None else _text(io.BytesIO(stdin.encode("latin-1")))
  sys.stdout, sys.stderr = _text(out, request["encoding"]), _text(err, errors=True)
  try:
    status = _status()
    gc.collect()  # What objects say when they go belongs to this program.
    # Now: without their wrappers these streams are closed.
    written = [stream.getvalue().decode(errors="replace") for stream in (out, err)]
  finally:
    sys.stdin, sys.stdout, sys.stderr, sys.argv = streams
    os.environ.clear()
    os.environ.update(environment)
    os.chdir("/")
    for number, handler in handlers.items():
      signal.signal(number, handler)
  return {"status": status, "out": written[0], "err": written[1]}


def _status() -> int:
  """Runs the script that sys.argv names; what is not caught is written to stderr."""
  try:
    runpy.run_path(sys.argv[0], run_name="__main__")
  except SystemExit as error:
    if error.code is None or isinstance(error.code, int):
      return error.code or 0
    print(error.code, file=sys.stderr)
    return 1
  except BaseException:
    traceback.print_exc()
    return 1
  return 0


def _argument(text: str) -> str:
  """An argument as the system gives it to Python, bytes that are not UTF-8 included."""
  return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _text(raw: IO[bytes], encoding: str = "utf-8", errors: bool = False) -> Any:
  lenient = "backslashreplace" if errors else "strict"
  return io.TextIOWrapper(raw, encoding=encoding, errors=lenient, write_through=True)


def _handlers() -> dict[int, Any]:
  both = (signal.SIGTERM, signal.SIGINT)
  return {number: signal.getsignal(number) for number in both}


def _limit(kind: int, most: int) -> None:
  _, hard = resource.getrlimit(kind)
  most = most if hard == resource.RLIM_INFINITY else min(most, hard)
  resource.setrlimit(kind, (most, hard))


def serve(bare: bool) -> None:
  """Answers requests until there are no more; unless `bare`, imports what most need."""
  # What programs write past Python goes to the log, which is stderr.
  answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
  requests = os.fdopen(os.dup(0), encoding="utf-8")
  os.dup2(2, 1)
  nothing = os.open(os.devnull, os.O_RDONLY)
  os.dup2(nothing, 0)
  os.close(nothing)
  sys.path = [os.path.abspath(path) for path in sys.path]

  if not bare:
    from largevocab import command_line, train  # noqa: F401
    from largevocab.evaluation import evaluate, predict  # noqa: F401

  gc.freeze()
  _limit(resource.RLIMIT_AS, MEMORY)
  _limit(resource.RLIMIT_FSIZE, FILE_SIZE)
  _limit(resource.RLIMIT_CORE, 0)
  print("{}", file=answers, flush=True)
  for number, line in enumerate(requests, 1):
    answer = run(json.loads(line))
    if number % RUNS_BETWEEN_CLEARINGS == 0 and "jax" in sys.modules:
      sys.modules["jax"].clear_caches()
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
  serve("--bare" in sys.argv)
