"""Runs cases on workers, and says what came of each."""

import pathlib
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple

from tests.fuzz.case import Case, Done
from tests.fuzz.oracle import Verdict, judge
from tests.fuzz.pool import LIMIT, Worker


class Result(NamedTuple):
  case: Case
  verdict: Verdict
  done: Done
  here: pathlib.Path  # of a fault: what it happened in


def run_all(
  cases: Iterable[Case], root: pathlib.Path, jobs: int = 1, limit: float = LIMIT
) -> Iterator[Result]:
  """The results, in the order of the cases.

  Args:
    root: where each case has a directory; those of faults stay.
    limit: seconds that a program may take.
  """
  root.mkdir(parents=True, exist_ok=True)
  workers = [Worker(limit) for _ in range(jobs)]
  free: SimpleQueue[Worker] = SimpleQueue()
  for worker in workers:
    free.put(worker)

  def run(case: Case) -> Result:
    worker = free.get()
    try:
      return run_one(case, root, worker)
    finally:
      free.put(worker)

  try:
    with ThreadPoolExecutor(jobs) as executor:
      yield from executor.map(run, cases)
  finally:
    for worker in workers:
      worker.close()


def run_one(case: Case, root: pathlib.Path, worker: Worker) -> Result:
  """The result of a case.

  A program over the limit is tried once more, in a new process: it may have had to
  compile, and the second time it finds what it compiled.
  """
  here = root / case.id
  for _ in range(2):
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    case.prepare(here)
    done = worker.run(case, here)
    if done.ending != "hang":
      break
  verdict = judge(case, done, here)
  if not verdict.is_fault:
    shutil.rmtree(here, ignore_errors=True)
  return Result(case, verdict, done, here)
