"""The training loop. It knows no method: a head is told h and the labels, and asked for
the loss, its gradient with respect to h, and to update itself."""

import functools
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.checkpoint import Checkpoints
from largevocab.data.batches import Batch, TokenBatches
from largevocab.data.corpus import Corpus
from largevocab.errors import UserError
from largevocab.evaluate import make_evaluate
from largevocab.experiment import Experiment
from largevocab.labels import Counts
from largevocab.rows import Table, row_grads, sq_norm
from largevocab.runlog import Progress, RunLog, claim_workdir, read_json, write_json

PyTree = Any
_LOG = logging.getLogger("largevocab")


class State(NamedTuple):
  """All that changes in training; it is donated at each step and saved whole.

  Attributes:
    step: i32[], updates done.
    key: of the whole run; each step folds in its number.
    params, opt: of the network.
    inputs: the table of input rows.
    head: whatever the head keeps.
    carry: recurrent state.
    loss_sum: f32[], losses since the last log line.
    bad_step: i32[], the first step whose loss was not finite; -1: none.
  """

  step: jax.Array
  key: jax.Array
  params: PyTree
  opt: PyTree
  inputs: Table
  head: PyTree
  carry: PyTree
  loss_sum: jax.Array
  bad_step: jax.Array


def init_state(exp: Experiment, counts: Counts) -> State:
  """The state before the first step."""
  key = jax.random.key(exp.train.seed)
  key, k_net, k_inputs, k_head = jax.random.split(key, 4)
  carry = exp.model.initial_carry(exp.train.batch_size)
  width, scale = exp.model.embed, exp.model.init_scale
  rows_BTE = jnp.zeros((exp.train.batch_size, 1, width))
  params = exp.model.init(k_net, rows_BTE, carry)["params"]
  shape = (counts.num_classes, width)
  w_VE = jax.random.uniform(k_inputs, shape, minval=-scale, maxval=scale)
  return State(
    step=jnp.int32(0),
    key=key,
    params=params,
    opt=exp.optimizer.transformation().init(params),
    inputs=exp.optimizer.init(w_VE),
    head=exp.head.init(k_head, counts, exp.model.width),
    carry=carry,
    loss_sum=jnp.float32(0),
    bad_step=jnp.int32(-1),
  )


def train_step(state: State, batch: Batch, lr: jax.Array, *, exp: Experiment) -> State:
  """One update of network, inputs and head, with one joint gradient norm."""
  k_net, k_head = jax.random.split(jax.random.fold_in(state.key, state.step))
  carry = jax.tree.map(lambda c: jnp.where(batch.start, 0, c), state.carry)
  rows_BTE = state.inputs.w_VD[batch.x]

  def network(params, rows_BTE):
    return exp.model.apply(
      {"params": params}, rows_BTE, carry, train=True, rngs={"dropout": k_net}
    )

  h_BTD, pull_back, carry = jax.vjp(network, state.params, rows_BTE, has_aux=True)
  h_ND = h_BTD.reshape(-1, h_BTD.shape[-1])
  out = exp.head.backward(state.head, h_ND, batch.y, k_head)
  g_params, g_rows_BTE = pull_back(out.dh_ND.reshape(h_BTD.shape))
  g_rows_NE = g_rows_BTE.reshape(-1, rows_BTE.shape[-1])
  g_inputs = row_grads(batch.y.context_N, g_rows_NE, state.inputs.w_VD.shape[0])

  norm = jnp.sqrt(sq_norm(g_params) + sq_norm(g_inputs.rows_RD) + out.sq_norm)
  clip = exp.train.clip_norm
  scale = clip / jnp.maximum(norm, clip) if clip else jnp.float32(1)
  g_params = jax.tree.map(lambda g: scale * g, g_params)
  tx = exp.optimizer.transformation()
  direction, opt = tx.update(g_params, state.opt, state.params)
  is_new_bad = (state.bad_step < 0) & ~(jnp.isfinite(out.loss) & jnp.isfinite(norm))
  return State(
    step=state.step + 1,
    key=state.key,
    params=jax.tree.map(lambda p, d: p - lr * d, state.params, direction),
    opt=opt,
    inputs=exp.optimizer.update(state.inputs, g_inputs, lr, scale),
    head=exp.head.update(state.head, out.grads, lr * exp.train.head_lr_factor, scale),
    carry=carry,
    loss_sum=state.loss_sum + out.loss,
    bad_step=jnp.where(is_new_bad, state.step, state.bad_step),
  )


def train(exp: Experiment, config: dict[str, Any], workdir: str) -> dict[str, Any]:
  """Trains, or goes on training, and returns the final metrics.

  Args:
    exp: the run.
    config: what `exp` was made from; written to the workdir, which belongs to it.
    workdir: where everything of the run goes.

  Raises:
    UserError: something the user can mend.
    SystemExit: stopped by a signal, after saving.
  """
  claim_workdir(workdir, config)
  result_path = os.path.join(workdir, "result.json")
  if os.path.exists(result_path):
    _LOG.info("%s is finished already", workdir)
    return read_json(result_path)
  corpus = exp.data.load()
  corpus.vocabulary.save(Path(workdir, "vocabulary.txt"))
  batches = TokenBatches(
    corpus.train, exp.train.batch_size, exp.train.unroll, corpus.vocabulary.eos
  )
  state = init_state(exp, corpus.counts)
  clock = {"seconds": 0.0}
  with Checkpoints(os.path.join(workdir, "checkpoints"), exp.checkpoint.keep) as saved:
    if saved.latest_step is not None:
      state, clock = saved.restore(state)
      _LOG.info("going on from step %d", int(state.step))
    log = RunLog(workdir, int(state.step), _flat(config))
    try:
      result = _Loop(exp, corpus, batches, saved, log).run(state, clock)
    finally:
      log.close()
  write_json(result_path, result)
  return result


def restore(exp: Experiment, workdir: str, which: str) -> tuple[Corpus, State]:
  """The data of a run, and its 'latest' or 'best' state."""
  directory = os.path.join(workdir, "checkpoints")
  if not os.path.isdir(directory):
    raise UserError(f"no checkpoints in {workdir}; train first")
  corpus = exp.data.load()
  with Checkpoints(directory) as saved:
    state, _ = saved.restore(init_state(exp, corpus.counts), which)
  return corpus, state


def evaluate_checkpoint(exp: Experiment, workdir: str, which: str) -> dict[str, float]:
  """Exact metrics of a saved state on validation and test data."""
  corpus, state = restore(exp, workdir, which)
  evaluate = make_evaluate(exp, corpus.vocabulary.eos)
  metrics: dict[str, float] = {"step": int(state.step)}
  for split in ("valid", "test"):
    values = evaluate(state, getattr(corpus, split))
    metrics.update({f"{split}_{key}": value for key, value in values.items()})
  return metrics


class _Loop:
  """The loop and what it does now and then."""

  def __init__(self, exp, corpus, batches, saved, log):
    self._exp, self._corpus, self._batches = exp, corpus, batches
    self._saved, self._log = saved, log
    self._num_steps = exp.train.num_steps(batches.steps_per_epoch)
    self._eval_steps = round(exp.eval.every_epochs * batches.steps_per_epoch)
    self._step = jax.jit(functools.partial(train_step, exp=exp), donate_argnums=0)
    self._refresh = jax.jit(exp.head.refresh, donate_argnums=0)
    self._evaluate = make_evaluate(exp, corpus.vocabulary.eos)

  def run(self, state: State, clock: dict[str, float]) -> dict[str, Any]:
    exp, steps_per_epoch = self._exp, self._batches.steps_per_epoch
    step = first_step = int(state.step)
    seconds = clock["seconds"]
    progress = Progress(step, self._num_steps, exp.train.batch_size * exp.train.unroll)
    with _Signals() as signals:
      started = time.perf_counter()
      while step < self._num_steps:
        lr = exp.train.learning_rate(step, steps_per_epoch)
        state = self._step(state, self._batches.batch(step), lr)
        step += 1
        if exp.head.refresh_every and step % exp.head.refresh_every == 0:
          key = jax.random.fold_in(state.key, 2**31 + step)  # no step's own number
          state = state._replace(head=self._refresh(state.head, key))
        if step == first_step + 1:
          jax.block_until_ready(state)
          progress.rest(step)
        if step % exp.log.every_steps == 0:
          state = self._log_training(state, step, lr, progress)
        seconds += time.perf_counter() - started
        is_end = step == self._num_steps
        if self._eval_steps and step % self._eval_steps == 0 and not is_end:
          valid = self._measure(state, step, "valid", seconds)
          self._save(state, step, seconds, valid["nll"])
          progress.rest(step)
        elif step % exp.checkpoint.every_steps == 0:
          self._save(state, step, seconds)
        started = time.perf_counter()
        if signals.caught and not is_end:
          self._save(state, step, seconds)
          self._saved.wait()
          _LOG.info("stopped at step %d; the same command goes on from here", step)
          raise SystemExit(128 + signals.caught)
    jax.block_until_ready(state)
    seconds += time.perf_counter() - started
    return self._finish(state, step, seconds)

  def _log_training(self, state, step, lr, progress) -> State:
    self._check_finite(state)
    loss = float(state.loss_sum) / self._exp.log.every_steps
    rate = progress.line(step, {"loss": loss, "lr": lr})
    self._log.write(step, "train", {"loss": loss, "lr": lr, "tokens_per_second": rate})
    return state._replace(loss_sum=jnp.float32(0))

  def _measure(self, state, step, split, seconds) -> dict[str, float]:
    self._check_finite(state)
    metrics = self._evaluate(state, getattr(self._corpus, split))
    shown = "  ".join(f"{key} {value:.5g}" for key, value in metrics.items())
    _LOG.info("step %d  %s  %s", step, split, shown)
    self._log.write(step, split, {**metrics, "seconds": seconds})
    return metrics

  def _save(self, state, step, seconds, valid_nll=None) -> None:
    self._check_finite(state)
    self._saved.save(step, state, {"seconds": seconds}, valid_nll)

  def _check_finite(self, state) -> None:
    bad = int(state.bad_step)
    if bad >= 0:
      raise UserError(
        f"the loss or its gradient is not finite at step {bad}; the last checkpoint is "
        f"of step {self._saved.latest_step}; lower train.lr or train.clip_norm"
      )

  def _finish(self, state, step, seconds) -> dict[str, Any]:
    valid = self._measure(state, step, "valid", seconds)
    test = self._measure(state, step, "test", seconds)
    self._save(state, step, seconds, valid["nll"])
    self._saved.wait()
    tokens = step * self._exp.train.batch_size * self._exp.train.unroll
    return {
      **{f"valid_{key}": value for key, value in valid.items()},
      **{f"test_{key}": value for key, value in test.items()},
      "steps": step,
      "train_seconds": seconds,
      "tokens_per_second": tokens / max(seconds, 1e-9),
    }


class _Signals:
  """Notes SIGTERM and SIGINT instead of dying of them; a second SIGINT kills."""

  def __init__(self):
    self.caught = 0

  def __enter__(self) -> "_Signals":
    self._old = {
      s: signal.signal(s, self._note) for s in (signal.SIGTERM, signal.SIGINT)
    }
    return self

  def __exit__(self, *exc: object) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _note(self, number: int, frame: object) -> None:
    if self.caught:
      raise KeyboardInterrupt
    self.caught = number


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
  flat = {}
  for key, value in config.items():
    if isinstance(value, dict):
      flat.update(_flat(value, f"{prefix}{key}."))
    else:
      flat[prefix + key] = value
  return flat
