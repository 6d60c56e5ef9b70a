"""Other code as an entrant: what it gets, what it has to do, and how it is measured.

An adapter is a function, named by --adapter MODULE:FUNCTION. It gets `Given` and the
options of --set without a dot, and returns an object with the methods of `Adapter`:

  def my_method(given, num_samples=512):
    return MyMethod(given, num_samples)

The object has the network that `given.model` describes, and an output layer of its own.
The benchmark holds the clock, reads the batches, and computes the metric.
"""

import importlib
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from largevocab import config
from largevocab.bench.ours import loaded
from largevocab.bench.tasks import Task
from largevocab.data.base import Data, HeldOutBatches
from largevocab.data.batches import Batch
from largevocab.errors import Diverged, UserError
from largevocab.evaluation import moments, retrieval
from largevocab.evaluation.evaluate import finished, held_out, num_ranked, retrieved
from largevocab.evaluation.moments import Moments
from largevocab.tools.sweeps.records import Record
from largevocab.training.runlog import peak_mib
from largevocab.training.settings import Experiment, Training


class Step(NamedTuple):
  """A step of training.

  Attributes:
    batch: inputs and targets, as NumPy arrays; those that all entrants read.
    lr: the learning rate by the task's schedule, for the mean loss of an example.
  """

  batch: Batch
  lr: float


@dataclass(frozen=True)
class Given:
  """What an adapter gets.

  Attributes:
    data: the task's arrays. `data.counts.num_classes` is V, `data.counts.unigram_V` how
      often each class occurs, in decreasing order for texts and items;
      `data.num_inputs` is the number of rows that inputs look up.
    model: settings of the network, as `embed`, `hidden`, `layers`, `dropout`,
      `init_scale`; its class in `largevocab.models` has the formula.
    train: settings of training, such as `clip_norm`.
    seed: of initial values and negatives.
  """

  data: Data
  model: Any
  train: Training
  seed: int


class Device(NamedTuple):
  """An accelerator: its name, and the most memory that was in use on it."""

  name: str
  peak_mib: float


class Adapter(Protocol):
  """A network with an output layer, in any code."""

  @property
  def packages(self) -> Sequence[str]:
    """Modules whose versions matter, such as 'torch'."""
    ...

  def train(self, steps: Iterable[Step]) -> None:
    """Takes all of these steps, and returns when they are done.

    Where `batch.start` is true the recurrent state begins at zero; otherwise it goes on
    from the step before, also from the last one of the previous call.
    """
    ...

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    """What the metric needs of each batch.

    For k = 0 f32[N]: -log p of the true class, in nats, exact and normalised over all
    classes, whatever the training loss was. Otherwise i32[N, k]: the best classes, best
    first. The recurrent state of training stays what it is.
    """
    ...

  def device(self) -> Device | None:
    """The accelerator; None: the CPU, whose memory the benchmark reads itself."""
    ...


def load(text: str) -> Callable[..., Adapter]:
  """The function MODULE:FUNCTION; modules are also looked up in this directory.

  Raises:
    UserError: there is none, or a package that it needs is missing.
  """
  module, colon, name = text.partition(":")
  if not (module and colon and name) or module.startswith("."):
    raise UserError(f"--adapter={text}: want MODULE:FUNCTION")
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())
  try:
    function = getattr(importlib.import_module(module), name, None)
  except ImportError as error:
    raise UserError(
      f"--adapter={text}: {error}; install it, or mend the name"
    ) from None
  if not callable(function):
    raise UserError(f"--adapter={text}: {module} has no function {name!r}")
  return function


def options(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
  """Arguments of the adapter's function, and the words that are keys of the config.

  >>> options(["num_samples=512", "train.lr=0.1", "kind=log"])
  ({'num_samples': 512, 'kind': 'log'}, ['train.lr=0.1'])
  """
  own, rest = {}, []
  for word in words:
    key, equals, value = word.partition("=")
    if not equals or "." in key:
      rest.append(word)
      continue
    try:
      own[key] = json.loads(value)
    except ValueError:
      own[key] = value
  return own, rest


def run(
  task: Task, adapter: str, seed: int, place: str, words: Sequence[str]
) -> Record:
  """Trains an adapter, and returns what a line has of it; arguments as `ours.run`.

  Raises:
    UserError: an error that the user can fix.
  """
  make = load(adapter)
  own, chosen = options(words)
  exp = config.build(task.settings(seed=seed, place=place, chosen=chosen))
  data, found = loaded(exp, task)
  try:
    model = make(Given(data, exp.model, exp.train, seed), **own)
  except (ImportError, TypeError) as error:
    raise UserError(f"--adapter={adapter}: {error}") from None
  versions = _versions(model.packages)
  try:
    ended = _train(model, exp, data, task.metric)
  except Diverged as error:
    ended = {"diverged": error.step}
  device = model.device()
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


def _versions(packages: Sequence[str]) -> dict[str, str]:
  found = {}
  for name in packages:
    version = getattr(sys.modules.get(name), "__version__", None)
    if not isinstance(version, str):
      raise UserError(
        f"the adapter's `packages` has {name!r}, which is no imported module with a "
        "`__version__`; name those that have one"
      )
    found[name] = version
  return found


def _train(model: Adapter, exp: Experiment, data: Data, metric: str) -> Record:
  """Trains to the end; the clock stands still during evaluations."""
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  epoch = exp.train.steps_per_epoch(batches.steps_per_epoch)
  num_steps, rate = exp.train.num_steps(epoch), exp.train.rates(epoch)
  every = exp.eval.every_steps(epoch) or num_steps
  splits, seconds, curve = held_out(exp, data), 0.0, []
  for start in range(0, num_steps, every):
    stop = min(start + every, num_steps)
    steps = (Step(batches.batch(step), rate(step)) for step in range(start, stop))
    began = time.perf_counter()
    model.train(steps)
    seconds += time.perf_counter() - began
    if next(steps, None) is not None:
      raise UserError(
        f"the adapter's `train` returned before the end of the steps up to {stop}: it "
        "has to take all that it gets"
      )
    value = measured(model, exp, data, splits["valid"])[metric]
    if not math.isfinite(value):
      raise Diverged(f"the metric is {value} after step {stop}", stop)
    curve.append([stop, value, seconds])
  test = measured(model, exp, data, splits["test"])[metric]
  last = {"valid": curve[-1][1], "test": test, "steps": num_steps}
  return {**last, "seconds": seconds, "curve": curve}


def measured(
  model: Adapter, exp: Experiment, data: Data, batches: HeldOutBatches
) -> dict[str, float]:
  """Metrics of an adapter, as `largevocab.evaluation.evaluate.Evaluate` has of a head.

  Raises:
    UserError: `evaluate` of the adapter gave something else than is asked for.
  """
  a, b = exp.eval.propensity_a, exp.eval.propensity_b
  worth_V = retrieval.inverse_propensities(data.counts, a, b)
  first = next(iter(batches.one_of_each_shape()))
  k = num_ranked(exp, first, data.counts.num_classes)

  @jax.jit
  def sums(output: jax.Array, batch: Batch):
    found = retrieved(exp, output, batch, worth_V) if k else {"nll": output}
    return moments.sums(found, jnp.sum(batch.y.w_NP, axis=1))

  given, kept = itertools.tee(batches)
  seen = Moments()
  for output, batch in itertools.zip_longest(model.evaluate(given, k), kept):
    if output is None or batch is None:
      raise UserError("the adapter's `evaluate` is to give one array for each batch")
    checked = _checked(np.asarray(output), batch, k, data.counts.num_classes)
    weight_N = np.sum(np.asarray(batch.y.w_NP), axis=1, dtype=np.float64)
    seen.add(sums(jnp.asarray(checked), batch), weight_N)
  return finished(exp, seen, batches)


def _checked(output: np.ndarray, batch: Batch, k: int, num_classes: int) -> np.ndarray:
  N = len(np.asarray(batch.y.ids_NP))
  shape, kinds = ((N, k), "iu") if k else ((N,), "f")
  if output.shape != shape or output.dtype.kind not in kinds:
    what = "class ids, whole numbers" if k else "-log p, floating point"
    raise UserError(
      f"the adapter's `evaluate` gave {output.dtype}{list(output.shape)}, and is to "
      f"give {what} of shape {list(shape)}"
    )
  if k and not ((output >= 0) & (output < num_classes)).all():
    raise UserError(
      f"the adapter's `evaluate` gave class ids that are not in 0 ... {num_classes - 1}"
    )
  return output.astype(np.int32 if k else np.float32)
