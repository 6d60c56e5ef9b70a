"""Runs other code as an entrant: what it gets, and what it must do.

An adapter is a function, named by --adapter MODULE:FUNCTION. It gets `Given` and those
options of --set that have no dot. It returns an object with the methods of `Adapter`:

  def my_method(given, num_samples=512):
    return MyMethod(given, num_samples)

The object has the network that `given.model` describes, and its own output layer. The
benchmark measures the time, reads the batches, and computes the metric.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from largevocab import config
from largevocab.bench.lines import is_plain
from largevocab.bench.measure import Measure
from largevocab.bench.ours import loaded
from largevocab.bench.tasks import OF_ADAPTER, RATES, Task
from largevocab.data.base import Data
from largevocab.data.batches import Batch
from largevocab.errors import Diverged, UserError
from largevocab.evaluation.evaluate import held_out
from largevocab.tools.sweeps.records import Record, is_number
from largevocab.training.runlog import peak_mib
from largevocab.training.settings import Experiment, Training


class Step(NamedTuple):
  """A step of training.

  Attributes:
    batch: inputs and targets, as NumPy arrays; all entrants read the same ones.
    lr: the learning rate under the task's schedule, for the mean loss of an example.
  """

  batch: Batch
  lr: float


@dataclass(frozen=True)
class Given:
  """What an adapter gets.

  Before the first step, an adapter may use only the class counts of the training data,
  because the time of construction is not measured.

  Attributes:
    data: the task's arrays. `data.counts.num_classes` is V. `data.counts.unigram_V` is
      how often each class occurs, in decreasing order for texts and items.
      `data.num_inputs` is the number of rows that inputs look up.
    model: settings of the network, such as `embed`, `hidden`, `layers`, `dropout` and
      `init_scale`; its class in `largevocab.models` has the formula.
    train: settings of training: `lr` and others, which determine the rates of the
      steps, and `clip_norm`, the bound on the norm of gradients (0: none). The adapter
      must clip the gradients itself.
    seed: seed of initial values and negatives; the adapter must use it.
  """

  data: Data
  model: Any
  train: Training
  seed: int


class Device(NamedTuple):
  """An accelerator: its name, and its peak memory use."""

  name: str
  peak_mib: float


class Adapter(Protocol):
  """A network with an output layer, written in any framework."""

  @property
  def packages(self) -> Sequence[str]:
    """Modules whose versions matter, such as 'torch'."""
    ...

  def train(self, steps: Iterable[Step]) -> None:
    """Takes all of these steps, and returns when they are done.

    If `batch.start` is true, the recurrent state begins at zero. Otherwise it continues
    from the step before, which may be the last one of the previous call. The clock
    stops at the return, so wait for the accelerator before returning.

    Raises:
      Diverged: may be raised if the loss is not finite, with the number of steps so
        far, since the best classes of a ranking do not show this.
    """
    ...

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    """Computes what the metric needs for each batch.

    For k = 0, this is f32[N]: -log p of the true class, in nats, exact and normalised
    over all classes, for any training loss. Otherwise it is i32[N, k]: the best
    classes, best first. Nothing is learnt, and the recurrent state of training must not
    change. One batch is evaluated before the first step.
    """
    ...

  def device(self) -> Device | None:
    """The accelerator; None for the CPU, whose memory the benchmark reads itself."""
    ...


def load(text: str) -> Callable[..., Adapter]:
  """Loads MODULE:FUNCTION; modules are also looked up in the current directory.

  Raises:
    UserError: there is no such function, or the module cannot be imported.
  """
  module, colon, name = text.partition(":")
  if not (module and colon and name) or module.startswith("."):
    raise UserError(f"--adapter={text}: must be MODULE:FUNCTION")
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())
  with _naming(text):
    function = getattr(importlib.import_module(module), name, None)
  if not callable(function):
    raise UserError(f"--adapter={text}: {module} has no function {name!r}")
  return function


@contextlib.contextmanager
def _naming(adapter: str) -> Iterator[None]:
  """Turns errors of an adapter's code into user errors, and prints the traceback.

  The message has the last line of the adapter's code that was reached.
  """
  try:
    yield
  except UserError:
    raise
  except _OfBatches as error:
    raise error.cause from None
  except ModuleNotFoundError as error:
    raise UserError(
      f"--adapter={adapter}: {error}; install it, or correct the name"
    ) from error
  except Exception as error:
    frames = traceback.extract_tb(error.__traceback__)
    file = f"{adapter.partition(':')[0].replace('.', os.sep)}.py"
    lines = [frame.lineno for frame in frames if frame.filename.endswith(file)]
    place = f", in line {lines[-1]} of {file}" if lines else ""
    traceback.print_exc()
    raise UserError(
      f"--adapter={adapter}: {type(error).__name__}: {error}{place}; fix it"
    ) from error


class _OfBatches(Exception):
  """An error in reading batches, raised inside a call of an adapter."""

  def __init__(self, cause: Exception):
    super().__init__()
    self.cause = cause


def _read(batches: Iterable[Any]) -> Iterator[Any]:
  """Reads batches or steps, and marks their errors as not the adapter's.

  If the reader stops early, `batches` can be read further. After `yield from`, this
  would not be possible.
  """
  try:
    for each in batches:  # noqa: UP028
      yield each
  except Exception as error:
    raise _OfBatches(error) from error


class _Named:
  """An adapter whose errors name it.

  Args:
    name: the name of the adapter.
    make: the adapter's function.
    given: the argument of the function.
  """

  def __init__(self, name: str, make: Callable[[Given], Adapter], given: Given):
    self._name = name
    with _naming(name):
      self._model = make(given)
      self.packages = self._model.packages

  def train(self, steps: Iterable[Step]) -> None:
    with _naming(self._name):
      self._model.train(_read(steps))

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    with _naming(self._name):
      yield from map(np.asarray, self._model.evaluate(_read(batches), k))

  def device(self) -> Device | None:
    with _naming(self._name):
      return self._model.device()


def options(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
  """Arguments of the adapter's function, and the words that set the rates.

  Raises:
    UserError: a word is neither, or its value is valid in Python but not in JSON.

  >>> options(["num_samples=512", "train.lr=0.1", "kind=log"])
  ({'num_samples': 512, 'kind': 'log'}, ['train.lr=0.1'])
  """
  own, rest = {}, []
  for word in words:
    key, equals, value = word.partition("=")
    if not equals or not OF_ADAPTER.fullmatch(key):
      raise UserError(
        f"--set {word}: must be KEY=VALUE; KEY is a rate of train, such as train.lr, "
        "or, without a dot, an argument of the adapter's function"
      )
    if RATES.fullmatch(key):
      rest.append(word)
      continue
    own[key] = _value(word, value)
  return own, rest


def _value(word: str, text: str) -> Any:
  """The value in a word of --set, which is JSON or else a string."""
  with contextlib.suppress(ValueError):
    return json.loads(text)
  try:
    ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError):
    return text
  raise UserError(
    f"--set {word}: the value must be JSON, such as true, false, null, 0.5 or [1, 2]"
  )


def prepared(
  task: Task, adapter: str, seed: int, place: str, words: Sequence[str]
) -> tuple[Callable[[Given], Adapter], Experiment]:
  """An adapter's function, with its options bound, and the experiment.

  The arguments are as in `run`. From here on, JAX uses only the CPU, and leaves
  accelerators to the adapter.

  Raises:
    UserError: an adapter, option or rate is wrong; the message names it.
  """
  jax.config.update("jax_platforms", "cpu")
  own, chosen = options(words)
  exp = config.build(task.settings(seed=seed, place=place, chosen=chosen))
  make = load(adapter)
  try:
    inspect.signature(make).bind(None, **own)
  except TypeError as error:
    raise UserError(f"--adapter={adapter}: {error}; correct --set") from None
  return functools.partial(make, **own), exp


def run(
  task: Task, adapter: str, seed: int, place: str, words: Sequence[str]
) -> Record:
  """Trains an adapter, and returns the part of a line about the run.

  The arguments are as in `ours.run`.

  Raises:
    UserError: an error that the user can fix, or an error of the adapter's code, which
      is then the cause of this one.
  """
  make, exp = prepared(task, adapter, seed, place, words)
  data, found = loaded(exp, task)
  model = _Named(adapter, make, Given(data, exp.model, exp.train, seed))
  versions = _versions(model.packages)
  _device(model)  # before training, so that its errors appear early
  try:
    ended = _train(model, exp, data, task.metric)
  except Diverged as error:
    ended = {"diverged": int(error.step)}
  device = _device(model)
  machine = {"peak_mib": peak_mib()}
  if device:
    machine = {"peak_mib": device.peak_mib, "device": device.name}
  code = " ".join(f"{name} {version}" for name, version in versions.items())
  return {
    **{"digest": found, "method": adapter, "settings": sorted(words)},
    **{"code": code, "versions": versions},
    **ended,
    **machine,
  }


def _device(model: Adapter) -> Device | None:
  """The adapter's accelerator; raises a UserError if `device` gave something else."""
  device = model.device()
  if device is None:
    return None
  is_named = isinstance(device, Device) and isinstance(device.name, str)
  if not (
    is_named
    and device.name
    and is_plain(device.name)
    and is_number(device.peak_mib, finite=True)
  ):
    raise UserError(
      f"the adapter's `device` gave {device!r:.80}, but must give None or "
      "Device(name, peak_mib), a string and a finite number"
    )
  return device


def _versions(packages: Sequence[str]) -> dict[str, str]:
  if not packages:
    raise UserError(
      "the adapter's `packages` is empty; name the modules that it imports, because "
      "their `__version__` goes into the line"
    )
  found = {}
  for name in [packages] if isinstance(packages, str) else packages:
    version = getattr(sys.modules.get(name), "__version__", None)
    if not isinstance(version, str):
      raise UserError(
        f"the adapter's `packages` has {name!r}, which is not an imported module with "
        "a `__version__`; name only modules that have one"
      )
    found[name] = version
  return found


def _train(model: Adapter, exp: Experiment, data: Data, metric: str) -> Record:
  """Trains to the end; the clock is stopped during evaluations."""
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  epoch = exp.train.steps_per_epoch(batches.steps_per_epoch)
  num_steps, rate = exp.train.num_steps(epoch), exp.train.rates(epoch)
  every = exp.eval.every_steps(epoch) or num_steps
  splits, measure = held_out(exp, data), Measure(exp, data)
  measure.try_out(model, splits["valid"])

  def measured(split: str, step: int) -> float:
    found = measure(model, splits[split])
    if not math.isfinite(nll := found.get("nll", 0.0)):
      raise Diverged(f"-log p of {split} is {nll} after step {step}", step)
    return found[metric]

  seconds, curve = 0.0, []
  for start in range(0, num_steps, every):
    stop = min(start + every, num_steps)
    steps = (Step(batches.batch(step), rate(step)) for step in range(start, stop))
    began = time.perf_counter()
    model.train(steps)
    seconds += time.perf_counter() - began
    if next(steps, None) is not None:
      raise UserError(
        f"the adapter's `train` returned before it took all steps up to {stop}: it "
        "must take every step that it is given"
      )
    curve.append([stop, measured("valid", stop), seconds])
  test = measured("test", num_steps)
  last = {"valid": curve[-1][1], "test": test, "steps": num_steps}
  return {**last, "seconds": seconds, "curve": curve}
