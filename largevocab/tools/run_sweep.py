"""Runs a sweep, with one process per run; skips finished runs.

  python scripts/run_sweep.py experiments/ptb_sampled/sweep.py --set data.path=DIR
  python scripts/run_sweep.py --queue experiments/queue.toml --jobs 2 --spare

Each run has its own working directory in --root, named after its config and overrides,
with its output in log.txt. You can interrupt a sweep (Ctrl-C) and start it again at any
time: a run with a result.json is skipped, and any other run resumes from its last
checkpoint. If the config or the data of a run that has ended have changed since,
nothing starts. The launcher waits for running runs of other launchers, even of one that
was killed. A run that diverged counts as done, and has a row without metrics.

Whenever a run ends, all results are written to results.jsonl beside the sweep file, and
the layout of TensorBoard's HPARAMS page to --root. Rows that are replaced, or removed
because the sweep no longer adds their runs, go to results.removed.jsonl. No row is
removed before a run of the sweep has a row. At the end, count-based baselines of the
same data are added.

If the sweep file has a search, short trials first choose the learning rates of each
method. The trials are kept in search.jsonl.

A queue is a list of sweeps, executed in order, each with a directory in --root. With
--spare, its runs yield to other programs. Start a queue from a separate clone, so that
all runs have the same revision and do not see changes in the checkout. In the checkout,
this script with --collect writes the results so far to the checkout's own files.

For job arrays, --index=$ID executes only one run and does not write results.jsonl. A
last call without --index, with the same --root, collects the results.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from largevocab.errors import UserError
from largevocab.tools import entry
from largevocab.tools.sweeps import campaign
from largevocab.tools.sweeps.campaign import Campaign
from largevocab.tools.sweeps.launch import (
  PathSetting,
  check_configs,
  check_settings,
  cores,
  give_core,
  last_line,
  log_path,
  stop,
)
from largevocab.tools.sweeps.stale import check_finished
from largevocab.tools.sweeps.status_line import StatusLine
from largevocab.tools.sweeps.sweep_run import Run

POLL_SECONDS = 0.2
LOOK_SECONDS = 5.0  # between checks for runs of other launchers


class Job(NamedTuple):
  """A run of a campaign."""

  campaign: Campaign
  run: Run

  @property
  def id(self) -> str:
    return f"{self.campaign.name}/{self.run.id}"

  @property
  def log(self) -> pathlib.Path:
    return log_path(self.campaign.launcher.workdir(self.run))

  @property
  def has_ended(self) -> bool:
    return self.campaign.ended(self.run)


class Scheduler:
  """Executes runs in order, `jobs` at a time, until none is left.

  Attributes:
    failed: {job: reason} of the runs that failed.
  """

  def __init__(self, campaigns: list[Campaign], jobs: int, *, spare: bool = False):
    self._campaigns, self._spare = campaigns, spare
    self._slots: list[tuple[Job, subprocess.Popen] | None] = [None] * jobs
    self._elsewhere: dict[str, Job] = {}
    self._status = StatusLine()
    self._jobs: list[Job] = []
    self._done = 0  # number of them that were done when they were listed
    self._looked = -LOOK_SECONDS
    self.failed: dict[str, str] = {}

  def run(self) -> None:
    self._look()
    self._status.print(f"{len(self._jobs)} runs, {self._done} finished before")
    try:
      while self._fill() or any(self._slots) or self._elsewhere:
        time.sleep(POLL_SECONDS)
        self._watch()
        self._show()
    finally:
      self._status.clear()
      stop([process for _, process in filter(None, self._slots)])

  def _look(self) -> None:
    """Updates the list of runs, which grows once the trials of a method have ended."""
    jobs: dict[str, Job] = {}
    for each in self._campaigns:
      with self._telling(each):
        jobs |= {job.id: job for job in (Job(each, run) for run in each.ready())}
    self._jobs = list(jobs.values())
    self._done = sum(job.has_ended for job in self._jobs)
    self._looked = time.monotonic()

  @contextlib.contextmanager
  def _telling(self, campaign: Campaign) -> Iterator[None]:
    """Reports errors of a sweep that cannot continue, without stopping the others."""
    try:
      yield
    except UserError as error:
      self.failed[campaign.name] = str(error)

  def collect(self) -> None:
    """Writes the results of all campaigns."""
    for each in self._campaigns:
      with self._telling(each):
        each.collect()
        runs = [each.chosen(run) or run for run in each.runs]
        ended = sum(map(each.ended, runs))
        self._status.print(f"{each.path}: {ended} of {len(runs)} runs have ended")

  def count_baselines(self) -> None:
    """Adds missing baselines to the results of all campaigns."""
    for each in self._campaigns:
      with self._telling(each):
        each.count_baselines()

  def _fill(self) -> bool:
    """Starts runs in free slots; returns whether any was started."""
    free = [number for number, slot in enumerate(self._slots) if slot is None]
    if not free:
      return False
    if time.monotonic() > self._looked + LOOK_SECONDS:
      self._look()
    going = {job.id for job, _ in filter(None, self._slots)}
    started = False
    for job in self._jobs:
      if job.id in going or job.id in self.failed or job.has_ended:
        continue
      launcher = job.campaign.launcher
      if job.id in self._elsewhere and launcher.in_hand(job.run):
        continue
      process = launcher.start(job.run)
      if process is None:
        self._status.print(f"waiting   {job.run.id}: it is running already")
        self._elsewhere[job.id] = job
        continue
      self._elsewhere.pop(job.id, None)
      self._status.print(f"started   {job.run.id}")
      number = free.pop(0)
      if self._spare:
        give_core(process, number)
      self._slots[number] = job, process
      started = True
      if not free:
        break
    return started

  def _watch(self) -> None:
    """Handles runs that have ended."""
    for number, slot in enumerate(self._slots):
      if slot is None or slot[1].poll() is None:
        continue
      job, process = slot
      self._slots[number] = None
      if job.has_ended:
        diverged = not (job.log.parent / "result.json").exists()
        self._status.print(f"{'diverged ' if diverged else 'finished '} {job.run.id}")
        if not job.campaign.ids:
          with self._telling(job.campaign):
            job.campaign.collect()
        self._look()
      else:
        self.failed[job.id] = f"exit code {process.returncode}: {last_line(job.log)}"
        self._status.print(f"failed    {job.run.id}")
    for id, job in list(self._elsewhere.items()):
      if job.has_ended:
        del self._elsewhere[id]
        self._status.print(f"finished  {job.run.id}, elsewhere")
        self._look()

  def _show(self) -> None:
    going = [job for job, _ in filter(None, self._slots)]
    lines = (
      f"{job.run.id}: {last_line(job.log)}"
      for job in [*going, *self._elsewhere.values()]
    )
    done = f"{self._done}/{len(self._jobs)} done, {len(self.failed)} failed"
    self._status.show(f"{done} | {' | '.join(lines)}")


def choose(campaign: Campaign, index: int) -> Campaign:
  """The campaign restricted to the run with this index."""
  runs = campaign.sweep.runs
  if campaign.sweep.search:
    raise UserError(f"--index={index}: {campaign.path} has a search; leave --index out")
  if not 0 <= index < len(runs):
    raise UserError(f"--index={index}: the sweep has runs 0 to {len(runs) - 1}")
  return dataclasses.replace(campaign, ids=frozenset([runs[index].id]))


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
  parser = entry.Parser(__doc__)
  what = parser.add_mutually_exclusive_group(required=True)
  what.add_argument(
    "sweep", type=pathlib.Path, nargs="?", help="experiments/NAME/sweep.py"
  )
  what.add_argument("--queue", type=pathlib.Path, help="list of sweeps, FILE.toml")
  parser.add_argument(
    "--root", type=pathlib.Path, help="default: ./runs/NAME; with --queue: ./runs"
  )
  parser.add_argument("--jobs", type=int, default=1, help="number of runs at a time")
  parser.add_argument("--index", type=int, help="only the run with this index, from 0")
  parser.add_argument("--dry_run", action="store_true", help="only print the commands")
  parser.add_argument(
    "--collect", action="store_true", help="only write the results of runs that ended"
  )
  parser.add_argument(
    "--spare",
    action="store_true",
    help="give each run a core of its own and the lowest priority",
  )
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="[CONFIG:]KEY=PATH",
    help="path of data on this machine, for all runs whose config has the key, or only "
    "for those of CONFIG: data.path=/data, ptb:data.path=/data/ptb",
  )
  return parser.parse_args(argv)


def campaigns_of(args: argparse.Namespace) -> list[Campaign]:
  """The campaigns that the arguments ask for."""
  settings = [PathSetting.parse(text) for text in args.set]
  if args.queue:
    if args.index is not None:
      raise UserError("--index is for one sweep; leave out --index or --queue")
    root = args.root or pathlib.Path("runs")
    found = campaign.of_queue(args.queue, root, settings)
  else:
    root = args.root or pathlib.Path("runs", args.sweep.resolve().parent.name)
    found = [campaign.of_sweep(args.sweep, root, settings)]
  known: dict[str, dict[str, str]] | None = None
  if not (args.dry_run or args.collect):  # which execute no run
    known = {}
  for each in found:
    coming = (run for run in (*each.trials(), *each.runs) if not each.ended(run))
    check_configs(each.path, coming)
    check_finished(each.path, _ready(each), each.launcher, known)
  check_settings(settings, [run for each in found for run in each.sweep.runs])
  return found if args.index is None else [choose(found[0], args.index)]


def _ready(campaign: Campaign) -> list[Run]:
  """Runs that can start; none if the search fails, which the scheduler reports."""
  try:
    return campaign.ready()
  except UserError:
    return campaign.trials()


def main(argv: list[str] | None = None) -> int:
  args = parse_args(argv)
  entry.check_counts(args, "jobs")
  if args.collect and args.index is not None:
    raise UserError("--index executes one run, --collect none; leave one of them out")
  starts = not (args.dry_run or args.collect)
  if starts and args.spare and 0 < len(cores()) < args.jobs:
    raise UserError(
      f"--jobs={args.jobs}: with --spare each run needs a core, and there are "
      f"{len(cores())}; give at most that many jobs"
    )
  campaigns = campaigns_of(args)
  if args.dry_run:
    for each in campaigns:
      for run in each.ready():
        mark = "# finished: " if each.ended(run) else ""
        print(mark + shlex.join(each.launcher.command(run)))
    return 0
  scheduler = Scheduler(campaigns, args.jobs, spare=args.spare)
  try:
    if not args.collect:
      scheduler.run()
  finally:
    if args.index is None:
      scheduler.collect()
  if args.index is None and not args.collect and not scheduler.failed:
    scheduler.count_baselines()
  for id, why in scheduler.failed.items():
    print(f"failed: {id}: {why}", file=sys.stderr)
  return 1 if scheduler.failed else 0


def raise_interrupt(*_) -> None:
  raise KeyboardInterrupt


def cli() -> int:
  signal.signal(signal.SIGTERM, raise_interrupt)
  return entry.run("run_sweep", main)


if __name__ == "__main__":
  sys.exit(cli())
