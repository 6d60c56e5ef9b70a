"""The training loop: runs steps, evaluates, saves checkpoints and writes logs."""

import functools
import logging
import math
import time
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.base import Data, TrainingBatches
from largevocab.data.batches import Batch
from largevocab.data.digests import digests
from largevocab.errors import Diverged, UserError
from largevocab.evaluation.evaluate import (
  Evaluate,
  Stopped,
  has_nan_loss,
  held_out,
)
from largevocab.evaluation.similarity import make_similarity
from largevocab.provenance import device_name
from largevocab.training import agreement, processes
from largevocab.training.averages import averaged
from largevocab.training.checkpoint import Checkpoints, shapes_of
from largevocab.training.data_of_run import check_data_of_run, save_data
from largevocab.training.input_rows import num_own
from largevocab.training.json_files import read_numbers, write_json
from largevocab.training.lock import held
from largevocab.training.not_finite import likely_cause
from largevocab.training.profiler import Profiler
from largevocab.training.run_ahead import RunAhead
from largevocab.training.runlog import NoLog, Progress, RunLog, peak_mib
from largevocab.training.settings import Experiment
from largevocab.training.sharding import assembled, rows_here
from largevocab.training.signals import StopSignals
from largevocab.training.state import State, init_state
from largevocab.training.step import compiled_settled, compiled_steps, monitor
from largevocab.training.workdir import (
  changes_of,
  checkpoints_path,
  claim_workdir,
  forget_divergence,
  has_finished,
  has_result_of,
  noting_divergence,
  result_path,
  set_result_aside,
)

_LOG = logging.getLogger("largevocab")


def train(exp: Experiment, config: dict[str, Any], workdir: str) -> dict[str, Any]:
  """Trains or resumes a run, and returns the final metrics.

  Args:
    exp: the experiment.
    config: the config that `exp` was made from; it is written to the workdir.
    workdir: directory of all files of the run.

  A finished run continues if the config has more steps. It is evaluated again if the
  config asks for other metrics. The old result is kept as result.1.json and so on.

  Raises:
    UserError: an error that the user can fix.
    Diverged: the loss is not finite; diverged.json records the step.
    SystemExit: a signal stopped the run, after a save.
  """
  if processes.of_first(has_result_of(workdir, config)):
    result = read_numbers(result_path(workdir))
    _tell(result, workdir)
    return result
  if not processes.is_first():
    return _train(exp, config, workdir)
  with held(workdir), noting_divergence(workdir):
    return _train(exp, config, workdir)


def _train(exp: Experiment, config: dict[str, Any], workdir: str) -> dict[str, Any]:
  # Only the config of the first process is saved. Other processes may have their files
  # in other places.
  changes = changes_of(workdir, config) if processes.is_first() else []
  was_finished = processes.of_first(has_finished(workdir))
  is_work = processes.of_first(any(_is_work(change.key) for change in changes))
  if was_finished and not is_work:
    result = read_numbers(result_path(workdir))
    if changes and processes.is_first():
      if any(change.moves_data for change in changes):
        data = exp.data.load()
        check_data_of_run(workdir, exp.data, data, digests(data))
      claim_workdir(workdir, config, int(result.get("steps", 0)))
    _tell(result, workdir)
    return result
  _LOG.info("training %s on %s; reading the data", _title(config), device_name())
  data = exp.data.load()
  found = digests(data)
  agreement.check_data(data, found)
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  state = init_state(exp, data)
  clock = {"seconds": 0.0}
  keep = exp.checkpoint.keep
  with Checkpoints(checkpoints_path(workdir), keep, is_owner=True) as saved:
    traced = exp.log.profile_at if processes.is_first() else 0
    loop = _Loop(exp, data, batches, saved, Profiler(workdir, traced))
    agreement.check_workdir(workdir, saved.latest_step)
    if loop.num_steps < exp.train.max_steps:
      _LOG.info(
        "train.epochs (%g) ends the run at step %d, before train.max_steps",
        *(exp.train.epochs, loop.num_steps),
      )
    if saved.latest_step is None and was_finished:
      raise UserError(
        f"{workdir} holds a finished run without a checkpoint to go on from; choose "
        "another --workdir"
      )
    if (latest := saved.latest_step) is not None:
      if latest > loop.num_steps:
        raise UserError(
          f"{workdir} was trained for {latest} steps, but train.max_steps and "
          f"train.epochs ask for {loop.num_steps}; raise them, or choose another "
          "--workdir"
        )
      check_data_of_run(workdir, exp.data, data, found)
      shapes = shapes_of(state)
      del state  # makes room for the state that is read
      state, clock = saved.restore(shapes, set_aside=True)
      _LOG.info("going on from step %d", int(state.step))
    step, state = int(state.step), loop.prepare(state)
    saved.forget_costs(after=step)
    loop.try_evaluation(state)
    measure_anew = was_finished and loop.is_over(step)  # evaluated by all processes
    log: RunLog | NoLog = NoLog()
    try:
      if processes.is_first():
        # The log comes first. It drops what is measured anew. If this process is killed
        # before the result is set aside, the next start drops it again.
        log = RunLog(workdir, step, config, measure_anew)
        set_result_aside(workdir)
        forget_divergence(workdir)
        claim_workdir(workdir, config, step)
        save_data(workdir, data, found)
      result = loop.run(state, clock, log, measure_anew)
    finally:
      log.close()
  if processes.is_first():
    write_json(result_path(workdir), result)
  _tell(result, workdir)
  return result


def _is_work(key: str) -> bool:
  """Whether a finished run must train or evaluate again if this key changes."""
  return key.startswith(("config.train.", "config.eval."))


def _tell(result: dict[str, Any], workdir: str) -> None:
  shown = "  ".join(f"{key} {value:.5g}" for key, value in sorted(result.items()))
  _LOG.info("finished  %s  tensorboard --logdir %s", shown, workdir)


class _Loop:
  """The training loop, with periodic evaluation, checkpoints and logs."""

  def __init__(
    self,
    exp: Experiment,
    data: Data,
    batches: TrainingBatches,
    saved: Checkpoints,
    profiler: Profiler,
  ):
    self._exp, self._data, self._batches, self._saved = exp, data, batches, saved
    self._profiler = profiler
    epoch = exp.train.steps_per_epoch(batches.steps_per_epoch)
    self.num_steps = exp.train.num_steps(epoch)
    self._eval_steps = exp.eval.every_steps(epoch)
    self._rate = exp.train.rates(epoch)
    self._monitor = jax.jit(functools.partial(monitor, exp=exp))
    self._evaluate = Evaluate(exp, data.counts)
    self._similarity = make_similarity(exp, data)
    self._held_out = held_out(exp, data)
    self._rows = rows_here(exp, exp.train.batch_size)
    self._signals = StopSignals()
    self._compiled: set[Any] = set()  # shapes of the batches so far
    self._has_refreshed = False
    # Steps and seconds that the speed excludes: earlier processes and compilation.
    self._unpaced = np.zeros(2)
    # The step of the last validation, and its metrics.
    self._validated: tuple[int, dict[str, float]] = (-1, {})

  def prepare(self, state: State) -> State:
    """Gives the state the array layouts of the compiled steps."""
    state, self._step, self._refresh = compiled_steps(self._exp, state)
    self._settled = compiled_settled(self._exp, state)
    return state

  def try_evaluation(self, state: State) -> None:
    """Evaluates once before training, so that errors appear early."""
    state = averaged(self._exp.optimizer, state)
    for batches in self._held_out.values():
      self._evaluate.try_out(state, batches)

  def run(
    self, state: State, clock: dict[str, float], log: RunLog | NoLog, was_over: bool
  ) -> dict[str, Any]:
    """Trains to the end, unless training `was_over`, and returns the result.

    `clock` was restored with the state.
    """
    exp, step = self._exp, int(state.step)
    self._log, seconds = log, clock["seconds"]
    # The number of steps whose losses are in state.loss_sum.
    self._num_summed = int(clock.get("summed", 0))
    self._describe(state)
    # Averages are settled at the same steps, no matter how often the run was stopped.
    state = self._settled(state) if self._is_due(step, self._eval_steps) else state
    self._unpaced = np.array([step, seconds])
    with self._signals as signals, self._profiler as profiler:
      self._make_up(state, step, seconds)
      tokens = exp.train.batch_size * exp.train.unroll * exp.train.accumulate
      progress = Progress(step, self.num_steps, tokens)
      started = time.perf_counter()
      ahead = RunAhead()
      is_over = was_over or self.is_over(step)
      while not is_over:
        lr = self._rate(step)
        state, compiling = self._take(state, step, lr)
        step += 1
        ahead.bound(state.step)
        profiler.look(step, state)
        if compiling:
          progress.rest(step)
        if step % exp.log.every_steps == 0:
          state = self._log_training(state, step, lr, progress)
        is_over = step == self.num_steps
        is_eval = self._is_due(step, self._eval_steps)
        is_monitored = self._is_due(step, exp.log.monitor_every_steps)
        is_stopped = bool(signals.look())  # only once: later signals are handled later
        is_save = step % exp.checkpoint.every_steps == 0 or is_stopped
        if not (is_eval or is_save or is_monitored) or is_over:
          continue
        jax.block_until_ready(state)
        seconds += time.perf_counter() - started
        if is_eval:
          state = self._settled(state)
        if is_eval or is_save:
          self._save(state, step, seconds)  # before work that may be stopped or fail
        if is_monitored:
          self._watch(state, step)
        if is_eval:
          self._measure(state, step, "valid", seconds)
          is_over = self.is_over(step)
        if is_stopped:
          self._leave(step)
        progress.rest(step)
        started = time.perf_counter()
      jax.block_until_ready(state)
      seconds += time.perf_counter() - started
      self._save(state, step, seconds)
      has_watched = processes.of_first(self._log.has(step, "monitor"))
      if self._exp.log.monitor_every_steps and not has_watched:
        self._watch(state, step)
      return self._result(self._settled(state), step, seconds)

  def _make_up(self, state: State, step: int, seconds: float) -> None:
    """Does the work of this step that a stop prevented, in the order of the loop."""
    has_watched = processes.of_first(self._log.has(step, "monitor"))
    is_monitored = self._is_due(step, self._exp.log.monitor_every_steps)
    if is_monitored and not has_watched:
      self._watch(state, step)
    has_measured = processes.of_first(self._log.has(step, "valid"))
    if self._is_due(step, self._eval_steps) and not has_measured:
      self._measure(state, step, "valid", seconds)

  def _take(self, state: State, step: int, lr: float) -> tuple[State, bool]:
    """The state after a step, and whether the step had to be compiled.

    The time of a step that had to be compiled is not counted in the speed.
    """
    batch = self._batches_of(step)
    shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(batch))
    refreshes = self._exp.head.refreshes(step + 1)
    is_new = shapes not in self._compiled or (refreshes and not self._has_refreshed)
    if is_new:
      jax.block_until_ready(state)
    began = time.perf_counter()
    with jax.profiler.StepTraceAnnotation("train", step_num=step):
      state = self._step(state, batch, lr)
    self._num_summed += 1
    if refreshes:
      key = jax.random.fold_in(state.key, 2**31 + step + 1)  # not used by steps
      self._has_refreshed = True
      state = state._replace(head=self._refresh(state.head, key))
    if is_new:
      jax.block_until_ready(state)
      compiling = time.perf_counter() - began
      _LOG.info("compiled, in %.1f s", compiling)
      self._compiled.add(shapes)
      self._unpaced += np.array([1, compiling])
    return state, is_new

  def _batches_of(self, step: int) -> Batch | list[Batch]:
    """The batch of a step, or the list of batches that it accumulates."""
    num = self._exp.train.accumulate
    batches = [self._batch(number) for number in range(num * step, num * (step + 1))]
    return batches if num > 1 else batches[0]

  def _batch(self, number: int) -> Batch:
    batch = self._batches.batch(number, self._rows)
    return assembled(self._exp, batch, self._exp.train.batch_size)

  def _is_due(self, step: int, every: int) -> bool:
    """Whether periodic work is due at a step; the last step does it anyway."""
    return bool(every) and 0 < step < self.num_steps and step % every == 0

  def is_over(self, step: int) -> bool:
    """Whether training is over at this step.

    It is over at the last step, or after `train.patience` evaluations in a row without
    a better state. An evaluation at the end of a shorter training does not count.
    """
    patience = self._exp.train.patience
    if step >= self.num_steps or not patience:
      return step >= self.num_steps
    return processes.of_first(self._saved.since_best(step) >= patience)

  def _watch(self, state: State, step: int) -> None:
    seen = self._monitor(state, self._batch(step * self._exp.train.accumulate))
    metrics: dict[str, float] = {key: float(value) for key, value in seen.items()}
    # A sampler that cannot draw some class gives inf, which is not valid JSON.
    metrics = {key: value for key, value in metrics.items() if math.isfinite(value)}
    if metrics:
      shown = "  ".join(f"{key} {value:.3g}" for key, value in metrics.items())
      _LOG.info("step %d  %s", step, shown)
      self._log.write(step, "monitor", metrics)

  def _leave(self, step: int) -> NoReturn:
    self._saved.wait()
    _LOG.info("stopped at step %d; the same command goes on from here", step)
    raise SystemExit(128 + self._signals.agreed)

  def _describe(self, state: State) -> None:
    size = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
    num_inputs = num_own(self._exp, self._data) * self._exp.model.embed
    _LOG.info(
      "%s; %d numbers in the network, %d in its inputs, %d in the state of the head; "
      "%d steps, a log line every %d; compiling",
      self._data.summary,
      *(size(state.params), num_inputs, size(state.head)),
      *(self.num_steps, self._exp.log.every_steps),
    )

  def _log_training(
    self, state: State, step: int, lr: float, progress: Progress
  ) -> State:
    self._check_finite(state)
    metrics = {"loss": float(state.loss_sum) / self._num_summed, "lr": lr}
    self._num_summed = 0
    self._log.write(step, "train", metrics | progress.line(step, metrics))
    return state._replace(loss_sum=jnp.zeros_like(state.loss_sum))

  def _measure(
    self, state: State, step: int, split: str, seconds: float
  ) -> dict[str, float]:
    """Evaluates a saved state, with averages of the weights if the state has them.

    Exits if a signal arrives during the evaluation.
    """
    state = averaged(self._exp.optimizer, state)
    self._signals.pace_anew()  # from steps to batches of an evaluation
    try:
      metrics = self._evaluate(state, self._held_out[split], self._signals.look)
    except Stopped:
      self._leave(step)
    if has_nan_loss(metrics):
      what = f"the loss on {split} data is NaN after step {step}"
      raise self._diverged(what, step - 1, split)
    if split == "valid":
      metrics |= self._similarity(state)
      in_schedule = bool(self._eval_steps) and step % self._eval_steps == 0
      self._saved.note_cost(step, self._exp.eval.cost(metrics), in_schedule)
      self._validated = step, metrics
    shown = "  ".join(f"{key} {value:.5g}" for key, value in metrics.items())
    _LOG.info("step %d  %s  %s", step, split, shown)
    self._log.write(step, split, {**metrics, "seconds": seconds})
    return metrics

  def _save(self, state: State, step: int, seconds: float) -> None:
    self._check_finite(state)
    clock = {"seconds": seconds, "summed": self._num_summed}
    self._saved.save(step, state, clock)

  def _check_finite(self, state: State) -> None:
    bad = int(state.bad_step)
    if bad >= 0:
      what = f"the loss or its gradient is not finite at step {bad}"
      raise self._diverged(what, bad)

  def _diverged(self, what: str, step: int, split: str = "train") -> Diverged:
    """The error to raise if the loss of a split is not finite, found in a step."""
    self._saved.wait()
    last, num = self._saved.latest_step, self._exp.train.accumulate
    kept = "nothing was saved" if last is None else f"the last save is of step {last}"
    batches = [self._batches.batch(num * step + i) for i in range(num)]
    num_classes = self._data.counts.num_classes
    cause = likely_cause(step, batches, num_classes, self._exp.train, split)
    return Diverged(f"{what}; {kept}; {cause}; start again in another --workdir", step)

  def _result(self, state: State, step: int, seconds: float) -> dict[str, Any]:
    measured, valid = self._validated  # of this step, if the run stops early
    if measured != step:
      valid = self._measure(state, step, "valid", seconds)
    test = self._measure(state, step, "test", seconds)
    self._saved.wait()
    train = self._exp.train
    tokens = step * train.batch_size * train.unroll * train.accumulate
    paced, paced_seconds = np.array([step, seconds]) - self._unpaced
    return {
      **{f"valid_{key}": value for key, value in valid.items()},
      **{f"test_{key}": value for key, value in test.items()},
      "steps": step,
      "train_seconds": seconds,
      "peak_mib": peak_mib(),
      "tokens_per_second": tokens / max(seconds, 1e-9),
      **({"ms_per_step": 1e3 * paced_seconds / paced} if paced else {}),
    }


def _title(config: dict[str, Any]) -> str:
  """A description of a run, as 'ptb with lstm and sampled(linear, softmax, pps)'."""
  data, model, head = (config[part]["name"] for part in ("data", "model", "head"))
  inner = [part["name"] for part in config["head"].values() if isinstance(part, dict)]
  made_of = f"({', '.join(inner)})" if inner else ""
  return f"{data} with {model} and {head}{made_of}"
