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
from largevocab.tools.sweeps.records import Record, validation_curve
from largevocab.train import train
from largevocab.training.json_files import read_json, write_json
from largevocab.training.lock import held
from largevocab.training.runlog import peak_mib
from largevocab.training.settings import Experiment
from largevocab.training.workdir import changes_of, config_path, has_finished


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
      result of a run that has ended is used.
    before: the part of a line about the checkout before this command.
    load: function that measures what else runs on the machine; it is not called if
      nothing is trained.

  Raises:
    UserError: an error that the user can fix.
  """
  exp, settings = prepared(task, method, seed, place, chosen)
  _, found = loaded(exp, task)
  with _noting(workdir, settings, before, load) as state:
    ended = _train(exp, settings, workdir, task.metric)
  line = {"digest": found, "method": method, "settings": sorted(chosen)}
  return {**line, **ended, **state}


def _train(
  exp: Experiment, settings: dict[str, Any], workdir: str, metric: str
) -> Record:
  try:
    result = train(exp, settings, workdir)
  except Diverged as error:
    return {"diverged": error.step, "peak_mib": peak_mib()}
  # A run that had already ended may have been made on another device.
  meta = read_json(os.path.join(workdir, "meta.json"))
  return {
    **{key: meta[key] for key in MACHINE},
    **{split: result[f"{split}_{metric}"] for split in ("valid", "test")},
    **{"steps": result["steps"], "seconds": result["train_seconds"]},
    "curve": validation_curve(pathlib.Path(workdir, "metrics.jsonl"), metric),
    "peak_mib": result["peak_mib"],
  }


@contextlib.contextmanager
def _noting(
  workdir: str, settings: dict[str, Any], before: Record, load: Callable[[], Record]
) -> Iterator[Record]:
  """The part of a line about the state of checkout and machine.

  It is the worst state over all commands that trained in this workdir, with the version
  of the first command, and is kept in the workdir. The load of the machine during the
  run is added at the end of the block.

  Args:
    workdir: the workdir of the run, which may continue or have finished.
    settings: the config of the run.
    before, load: as in `run`.

  Raises:
    UserError: the run has another config, another process is training it, or another
      command began it.
  """
  path = os.path.join(workdir, "bench.json")
  kept = read_json(path) if os.path.exists(path) else {}
  if not kept and os.path.exists(config_path(workdir)):
    raise UserError(
      f"{workdir} holds a run of another command, so it is not known whether the "
      "machine was idle; choose another --workdir"
    )
  if has_finished(workdir):
    yield kept
    return
  state = {"code": f"largevocab {__version__}", **before, **load()}
  for key, value in kept.items():
    is_first = key in ("code", "git")
    state[key] = value if is_first else max(value, state.get(key, value))
  with held(workdir):
    changes_of(workdir, settings)
    write_json(path, state)
  others = Others()
  try:
    yield state
  finally:
    others.note(state)
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
