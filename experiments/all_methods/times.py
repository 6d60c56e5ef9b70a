"""How long a training step of each run of this sweep takes, beside the full softmax's.

  python experiments/all_methods/times.py --set ptb:data.path=DIR \\
    --set enwiki8:data.train=FILE --set xmlc:data.path=DIR

Runs share a machine with others; this is for an idle one. Method and full softmax take
turns in one process. Writes times.jsonl; what sweep.py makes of it are the times of the
comparison. A record has

  ratio       the time of a step over that of one with the full softmax
  full_ms     the latter
  refresh_ms  the time of a rebuild of the head's statistics
  refreshes   how many there are in the steps of the comparison
"""

import argparse
import pathlib
import runpy
import sys
from typing import Any

from largevocab import command_line, config
from largevocab.errors import UserError
from largevocab.experiment import Experiment

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "scripts"))

import records  # noqa: E402
import sweepfile  # noqa: E402
from bench import about_this_run  # noqa: E402
from bench_adaptive import milliseconds  # noqa: E402
from measure import compare  # noqa: E402
from run_sweep import PathSetting  # noqa: E402
from training_steps import TrainingSteps  # noqa: E402

BATCHES = 8  # of labels, whose number varies


def experiment(run: sweepfile.Run, settings: list[PathSetting]) -> Experiment:
  """The run's, with the data of this machine."""
  _, *flags = run.flags()
  flags += [each.flag for each in settings if each.is_for(run)]
  block = command_line.load(run.config)
  command_line.override(block, ["times", *flags], known=[])
  return config.build(block)


def times_of(
  run: sweepfile.Run, exp: Experiment, data: Any, full: TrainingSteps, steps: int
) -> records.Record:
  """The record of a run."""
  own = TrainingSteps(exp, data, BATCHES)
  figures = compare(own, full, seconds=2)
  refreshes = sum(exp.head.refreshes(step) for step in range(1, steps + 1))
  return {
    **{"run": run.id, "name": run.name, "config": run.config},
    **{"overrides": run.overrides, "ratio": figures["ratio"]},
    **{"cpu_ratio": figures["cpu_ratio"], "full_ms": figures["below_ms"]},
    "refresh_ms": milliseconds(own.refresh) if refreshes else 0.0,
    "refreshes": refreshes,
    **about_this_run(),
  }


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--set", action="append", default=[], metavar="CONFIG:KEY=PATH")
  parser.add_argument("--only", nargs="+", help="methods, instead of all")
  parser.add_argument("--output", type=pathlib.Path, default=HERE / "times.jsonl")
  args = parser.parse_args(argv)
  settings = [PathSetting.parse(text) for text in args.set]
  problems = runpy.run_path(str(HERE / "sweep.py"))["PROBLEMS"]
  runs = sweepfile.load(HERE / "sweep.py").runs
  for name, problem in problems.items():
    own = {
      run.name.removeprefix(f"{name}: "): run
      for run in runs
      if run.name.startswith(f"{name}: ")
    }
    full_run, *_ = own.values()
    exp = experiment(full_run, settings)
    data = exp.data.load()
    full = TrainingSteps(exp, data, BATCHES)
    for method in args.only or own:
      if method in own:
        exp = experiment(own[method], settings)
        record = times_of(own[method], exp, data, full, problem.steps)
        print(record["name"], record["ratio"], record["refresh_ms"], flush=True)
        records.merge(args.output, [record])


if __name__ == "__main__":
  try:
    main()
  except UserError as error:
    sys.exit(f"times: {error}")
