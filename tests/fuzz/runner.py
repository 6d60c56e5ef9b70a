"""Runs cases on workers, and returns their verdicts."""

import pathlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple

from tests.fuzz import kinds, materials
from tests.fuzz.case import Case, Done
from tests.fuzz.oracle import Verdict, judge
from tests.fuzz.pool import Worker


class Result(NamedTuple):
  case: Case
  verdict: Verdict
  done: Done
  here: pathlib.Path  # of a fault: what it happened in


def run_all(
  seed: int,
  numbers: dict[str, int],
  root: pathlib.Path,
  jobs: int = 1,
  choose: Callable[[Case], bool] = lambda case: True,
) -> Iterator[Result]:
  """The results of so many cases of each kind, in order.

  Args:
    root: where each case has a directory; those of faults stay.
    jobs: cases at a time.
    choose: which of all these cases are run.
  """
  root.mkdir(parents=True, exist_ok=True)
  workers = [Worker() for _ in range(jobs)]
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
    needed = kinds.needs_materials(list(numbers))
    made = materials.make(root / "materials", workers[0]) if needed else None
    cases = kinds.cases(seed, numbers, made)
    with ThreadPoolExecutor(jobs) as executor:
      yield from executor.map(run, filter(choose, cases))
  finally:
    for worker in workers:
      worker.close()


def run_one(case: Case, root: pathlib.Path, worker: Worker) -> Result:
  """The result of a case.

  A fault is what a new process shows, too: one that has run other programs may have
  something left of them, and one that had to compile finds what it compiled.
  """
  here = root / case.id
  for _ in range(2):
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    case.prepare(here)
    done = worker.run(case, here)
    verdict = judge(case, done, here)
    if not verdict.is_fault:
      shutil.rmtree(here, ignore_errors=True)
      break
    worker.stop()
  return Result(case, verdict, done, here)
