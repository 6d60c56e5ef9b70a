"""Runs heads of this package with its own trainer, and measures counted baselines."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from largevocab import __version__, baselines, config
from largevocab.bench.digest import digest
from largevocab.bench.lines import COUNTED, MACHINE
from largevocab.bench.load import Others
from largevocab.bench.tasks import Task
from largevocab.data.base import Data
from largevocab.errors import Diverged, UserError
from largevocab.evaluation.evaluate import held_out
from largevocab.provenance import describe_machine
from largevocab.tools.sweeps.records import Record, validation_curve
from largevocab.train import train
from largevocab.training.json_files import read_json, write_json
from largevocab.training.lock import held
from largevocab.training.runlog import peak_mib
from largevocab.training.settings import Experiment
from largevocab.training.workdir import (
  config_path,
  diverged_path,
  has_ended,
  has_finished,
  result_path,
)

# Keys of a line in which all commands in one workdir have to agree, and those which
# train there.
_OF_RUN = ("method", "settings", "seed")
_OF_TRAINING = ("git", "code", "environment", *MACHINE)


def loaded(exp: Experiment, task: Task) -> tuple[Data, str]:
  """Loads the data of a task, and computes their digest.

  Raises:
    UserError: these are not the data of the task, or they are too few for its steps.
  """
  data = exp.data.load()
  found = digest(data)
  if task.digest not in ("", found):
    raise UserError(
      f"the data that were read have the digest {found}, but the task's data have "
      f"{task.digest}: get the files again ({task.data})"
    )
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  steps = exp.train.num_steps(exp.train.steps_per_epoch(batches.steps_per_epoch))
  if steps != task.steps:
    raise UserError(
      f"the training data last for {steps} steps, but the task has {task.steps}: get "
      f"the files again ({task.data})"
    )
  return data, found


def prepared(
  task: Task, method: str, seed: int, place: str, chosen: Sequence[str]
) -> tuple[Experiment, dict[str, Any]]:
  """The experiment of a run, and its config; the arguments are as in `run`.

  Raises:
    UserError: a method, key or place is wrong; the message names it.
  """
  settings = task.settings(method, seed, place, chosen)
  exp = config.build(settings)
  loss: Any = getattr(exp.head, "loss", None)
  if task.metric == "ppl" and not getattr(loss, "is_normalized", True):
    raise UserError(
      f"--method={method}: its loss has no probabilities, but the task's metric is "
      "the perplexity; choose another method"
    )
  return exp, settings.to_dict()


def run(
  task: Task,
  method: str,
  seed: int,
  place: str,
  chosen: Sequence[str],
  workdir: str,
  before: Record,
  load: Callable[[], Record],
) -> Record:
  """Trains a head of this package, and returns the part of a line about the run.

  Args:
    task: the task to train on.
    method: the output layer, as HEAD/SAMPLER.
    seed: the seed of the run.
    place: the location of the data.
    chosen: 'KEY=VALUE' for other keys.
    workdir: the workdir of the run. A run that was stopped continues there, and the
      result of a run that has ended, or has diverged, is used.
    before: the part of a line about the checkout and the environment.
    load: function that measures what else runs on the machine; it is not called if
      nothing is trained.

  Raises:
    UserError: an error that the user can fix.
  """
  exp, settings = prepared(task, method, seed, place, chosen)
  _, found = loaded(exp, task)
  of_run = {"method": method, "settings": sorted(chosen), "seed": seed}
  with _noting(workdir, of_run | before, load) as state:
    if not os.path.exists(diverged_path(workdir)):
      try:
        train(exp, settings, workdir)
      except Diverged:
        state["peak_mib"] = peak_mib()
  return {"digest": found, **_ended(workdir, task.metric), **state}


def _ended(workdir: str, metric: str) -> Record:
  """The part of a line about the end of a run that has finished or diverged."""
  if not has_finished(workdir):
    return {"diverged": read_json(diverged_path(workdir))["step"]}
  result = read_json(result_path(workdir))
  return {
    **{split: result[f"{split}_{metric}"] for split in ("valid", "test")},
    **{"steps": result["steps"], "seconds": result["train_seconds"]},
    "curve": validation_curve(pathlib.Path(workdir, "metrics.jsonl"), metric),
    "peak_mib": result["peak_mib"],
  }


@contextlib.contextmanager
def _noting(
  workdir: str, before: Record, load: Callable[[], Record]
) -> Iterator[Record]:
  """The part of a line about the method, and the state of checkout and machine.

  It is the worst state over all commands that trained in this workdir, and is kept
  there. The load of the machine is added at the end of the block. If a command was
  killed, the load during it is not known, so that the line has none.

  Args:
    workdir: the workdir of the run, which may continue or have ended.
    before: the part of a line about the method, the checkout and the environment.
    load: as in `run`.

  Raises:
    UserError: another process is training the run, another command began it, or it
      began with another method, with another revision or on another machine.
  """
  path = os.path.join(workdir, "bench.json")
  kept = read_json(path) if os.path.exists(path) else {}
  if not kept and os.path.exists(config_path(workdir)):
    raise UserError(
      f"{workdir} holds a run of another command, so it is not known whether the "
      "machine was idle; choose another --workdir"
    )
  machine = describe_machine()
  state: Record = {"code": f"largevocab {__version__}"}
  state |= before | {key: machine[key] for key in MACHINE}
  is_over = has_ended(workdir)
  for key in _OF_RUN if is_over else (*_OF_RUN, *_OF_TRAINING):
    if kept and kept.get(key) != state.get(key):
      raise UserError(
        f"{workdir}: the run began with {key} {kept.get(key, '-')}, but it is "
        f"{state.get(key, '-')} now; resume it as it began, or choose another --workdir"
      )
  if is_over:
    yield kept
    return
  state |= load()
  for key in ("git_dirty", "shared", "load"):
    if key in kept:
      state[key] = max(kept[key], state.get(key, kept[key]))
  was_killed = bool(kept) and "load" not in kept
  with held(workdir):
    write_json(path, {key: value for key, value in state.items() if key != "load"})
  others = Others()
  try:
    yield state
  finally:
    others.note(state)
    if was_killed:
      state.pop("load", None)
    write_json(path, state)


def count_baselines(task: Task, place: str) -> Iterator[Record]:
  """The part of a line about each counted model; see `largevocab.baselines`."""
  exp = config.build(task.settings(place=place))
  data, found = loaded(exp, task)
  splits = held_out(exp, data)
  for name, model in baselines.counted(exp, data).items():
    measured: dict[str, Any] = {
      split: baselines.measure(model, exp, data.counts, batches)[task.metric]
      for split, batches in splits.items()
    }
    yield {"digest": found, "name": COUNTED[name], "baseline": True, **measured}
