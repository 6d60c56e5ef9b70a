"""The training step, and that stopping and resuming do not change the result."""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import runpy
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab import config as c
from largevocab.data.batches import TokenBatches
from largevocab.data.classes import Classes
from largevocab.errors import Diverged, UserError
from largevocab.evaluation.evaluate import Evaluate, evaluate_workdir, held_out
from largevocab.models.linear import Linear
from largevocab.rows import sq_norm
from largevocab.train import train
from largevocab.training.checkpoint import Checkpoints
from largevocab.training.run_ahead import RunAhead
from largevocab.training.state import init_state, restore
from largevocab.training.step import compiled_steps, train_step
from tests.long import others_long

B, T, V = 4, 3, 30
LR = 0.5


def experiment(
  head="full", optimizer="sgd", dropout=0.0, width=6, row_dtype="float32", **train
):
  settings = c.experiment(
    data=c.part("data", "zipf", num_classes=V, num_tokens=500),
    model=c.part("model", "lstm", embed=width, hidden=width, layers=1, dropout=dropout),
    head=c.head(head, num_samples=8, init_scale=0.5),
    optimizer=c.part("optimizer", optimizer, row_dtype=row_dtype),
    train=c.Training(batch_size=B, unroll=T, **train),
  )
  return c.build(settings)


CONFIG = {part: {"name": part} for part in ("data", "model", "head")}


def run(exp, workdir):
  """Trains with a config of names only: nothing else of it is read."""
  return train(exp, CONFIG, str(workdir))


def start(exp):
  """The first state, batches, and the compiled step."""
  corpus = exp.data.load()
  batches = corpus.training_batches(B, T)
  step = jax.jit(functools.partial(train_step, exp=exp), donate_argnums=0)
  return init_state(exp, corpus), batches, step


def leaves(state):
  state = state._replace(key=jax.random.key_data(state.key))
  return jax.tree.leaves(jax.tree.map(np.asarray, state))


def copy(state):
  return jax.tree.map(jnp.copy, state)


# All heads, and samplers of each kind: fixed, by context, of the table, of sums.
# Losses are stateless.
SAMPLERS = ("pps", "bigram", "softmax", "quadratic_prior")
HEADS = [
  *(path for path in c.head_paths() if path in c.HEADS and path != "sampled"),
  *(f"sampled/{sampler}" for sampler in SAMPLERS),
]


SHORT = [
  f"{head} with short rows"
  for head in ("full", "sampled/quadratic_prior", "adaptive", "hierarchical")
]
FIRST = ("spherical", "sampled/pps", "full with short rows")


@pytest.mark.parametrize(
  "head",
  others_long([*HEADS, *SHORT, "sampled/quadratic_prior with a sketch"], FIRST),
)
def test_restored_state_continues_bitwise(head, tmp_path):
  how = {"row_dtype": "bfloat16" if head in SHORT else "float32"}
  exp = experiment(head.partition(" ")[0], optimizer="adagrad", dropout=0.3, **how)
  if head.endswith("sketch"):
    sampler = dataclasses.replace(exp.head.sampler, rank=3, leaf_size=3, dense_levels=1)
    exp = dataclasses.replace(exp, head=dataclasses.replace(exp.head, sampler=sampler))
  state, batches, step = start(exp)
  initial = copy(state)
  with Checkpoints(str(tmp_path)) as saved:
    for i in range(2):
      state = step(state, batches.batch(i), LR)
    saved.save(2, state, {"seconds": 1.0})
    # The state is donated while it is being written.
    for i in (2, 3):
      state = step(state, batches.batch(i), LR)
  with Checkpoints(str(tmp_path)) as saved:
    restored, clock = saved.restore(initial)
  assert clock == {"seconds": 1.0}
  assert int(restored.step) == 2
  short = [x.dtype == jnp.bfloat16 for x in jax.tree.leaves(restored)]
  assert sum(short) >= (2 if head in SHORT else 0)
  assert any(short) == (head in SHORT)
  for i in (2, 3):
    restored = step(restored, batches.batch(i), LR)
  for got, expected in zip(leaves(restored), leaves(state), strict=True):
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
  ("head", "clip"),
  others_long(
    itertools.product(["full", "sampled/pps"], [0.01, 1e6, 0.0]),
    [("sampled/pps", 0.01)],
  ),
)
def test_joint_clipping_equals_clipping_the_dense_gradient(head, clip):
  exp = experiment(head, clip_norm=clip, head_lr_factor=0.5)
  state, batches, step = start(exp)
  state = state._replace(carry=jax.tree.map(lambda x: x + 0.1, state.carry))
  batch = batches.batch(1)
  _, k_head = jax.random.split(jax.random.fold_in(state.key, state.step))

  def loss(params, inputs_VE, classes_VD):
    h_BTD, _ = exp.model.apply({"params": params}, inputs_VE[batch.x], state.carry)
    table = state.head.table._replace(w_VD=classes_VD)
    h_ND = h_BTD.reshape(-1, h_BTD.shape[-1])
    return exp.head.backward(
      state.head._replace(table=table), h_ND, batch.y, k_head
    ).loss

  dense = state.params, state.inputs.w_VD, state.head.table.w_VD
  grads = jax.jit(jax.grad(loss, (0, 1, 2)))(*dense)
  if clip:
    grads, _ = optax.clip_by_global_norm(clip).update(grads, optax.EmptyState())
  rates = LR, LR, 0.5 * LR
  expected = [
    jax.tree.map(lambda w, g, rate=rate: w - rate * g, *pair)
    for *pair, rate in zip(dense, grads, rates, strict=True)
  ]
  new = step(copy(state), batch, LR)
  got = [new.params, new.inputs.w_VD, new.head.table.w_VD]
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  moved = sq_norm(jax.tree.map(jnp.subtract, dense, tuple(got))) ** 0.5
  # Only the small bound is active.
  assert 0 < moved <= 0.01 * LR if clip == 0.01 else moved > 0.02


def test_missing_items_read_zero_rows_that_do_not_learn():
  exp = c.build(
    c.experiment(
      data=c.part("data", "zipf_items", num_classes=V, num_items=200),
      model=c.part("model", "mlp", embed=5, hidden=6),
      head=c.head("full", init_scale=0.5),
      optimizer=c.part("optimizer", "sgd"),
      train=c.Training(batch_size=2, unroll=1, clip_norm=0.0),
    )
  )
  data = exp.data.load()
  state, num_rows = init_state(exp, data), len(data.vocabulary)
  (batch, *_) = data.evaluation_batches("train", 2, 1)  # the first two of a history
  assert (batch.x == num_rows).sum() == 3

  def loss(rows_VE):
    padded_VE = jnp.pad(rows_VE, ((0, 1), (0, 0)))
    h_BTD, _ = exp.model.apply({"params": state.params}, padded_VE[batch.x], ())
    return exp.head.backward(state.head, h_BTD[:, 0], batch.y, state.key).loss

  expected = state.inputs.w_VD - LR * jax.jit(jax.grad(loss))(state.inputs.w_VD)
  new = jax.jit(functools.partial(train_step, exp=exp))(state, batch, LR)
  np.testing.assert_allclose(new.inputs.w_VD, expected, rtol=1e-5, atol=1e-6)
  moved = np.any(np.asarray(new.inputs.w_VD != state.inputs.w_VD), axis=1)
  assert set(np.flatnonzero(moved)) == set(batch.x[batch.x < num_rows])


def test_epoch_begins_with_an_empty_state():
  exp = experiment()
  state, batches, step = start(exp)
  full = state._replace(carry=jax.tree.map(lambda x: x + 0.5, state.carry))
  per_epoch = batches.steps_per_epoch
  for i, forgets in ((0, True), (1, False), (per_epoch, True), (per_epoch + 1, False)):
    empty_next = step(copy(state), batches.batch(i), LR)
    full_next = step(copy(full), batches.batch(i), LR)
    pairs = zip(leaves(empty_next), leaves(full_next), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs) == forgets


def test_head_has_its_own_learning_rate():
  moved = []
  for factor in (1.0, 0.25):
    exp = experiment(clip_norm=0.0, head_lr_factor=factor)
    state, batches, step = start(exp)
    before_VD = np.array(state.head.table.w_VD)
    after = step(state, batches.batch(0), LR)
    moved.append(np.asarray(after.head.table.w_VD) - before_VD)
  np.testing.assert_allclose(0.25 * moved[0], moved[1], rtol=1e-3, atol=1e-6)


def test_each_step_has_its_own_negatives_and_dropout():
  exp = experiment("sampled/uniform", dropout=0.5)
  state, batches, step = start(exp)
  later = state._replace(step=jnp.int32(7))
  one = step(copy(state), batches.batch(0), LR)
  two = step(copy(later), batches.batch(0), LR)
  assert float(one.loss_sum) != float(two.loss_sum)
  again = step(copy(state), batches.batch(0), LR)
  assert float(one.loss_sum) == float(again.loss_sum)


def test_first_non_finite_step_is_recorded():
  exp = experiment(clip_norm=0.0)
  state, batches, step = start(exp)
  rates = [LR, np.inf, LR, LR]
  for i, rate in enumerate(rates):
    state = step(state, batches.batch(i), rate)
    assert int(state.bad_step) == (-1 if i < 2 else 2)


@pytest.mark.parametrize(
  ("sampler", "optimizer", "tied"),
  others_long(
    [
      ("pps", "sgd", False),
      ("pps", "adagrad", False),
      ("in_batch", "sgd", False),
      ("in_batch", "sgd", True),
      ("cbns", "sgd", False),
      ("cbns", "sgd", True),
    ],
    [("pps", "adagrad", False)],
  ),
)
def test_sampled_step_updates_tables_and_statistics_in_place(sampler, optimizer, tied):
  """Guards speed without timing: no array of a table's size is copied or made."""
  exp = experiment(f"sampled/{sampler}", optimizer, width=64, tied=tied)
  num_classes, width = 100_000, 64
  data = exp.data.load()
  batch = data.training_batches(B, T).batch(0)
  vocabulary = Classes(range(num_classes), np.arange(num_classes, 0, -1))
  data = dataclasses.replace(data, vocabulary=vocabulary)
  state = jax.eval_shape(lambda: init_state(exp, data))
  step = functools.partial(train_step, exp=exp)
  donated = jax.jit(step, donate_argnums=0).lower(state, batch, LR)
  memory = donated.compile().memory_analysis()
  num_tables = (1 if tied else 2) * (2 if optimizer == "adagrad" else 1)
  tables = num_tables * num_classes * width * 4
  assert memory.alias_size_in_bytes >= tables
  assert memory.temp_size_in_bytes < 4 * num_classes  # not even a vector over classes

  undonated = jax.jit(step).lower(state, batch, LR)
  memory = undonated.compile().memory_analysis()
  assert memory.alias_size_in_bytes == 0


@pytest.mark.parametrize(
  ("every", "refreshed"),
  others_long([(4, True), (100, True), (0, False)], [(100, True), (0, False)]),
)
def test_statistics_are_refreshed_in_training(every, refreshed, tmp_path):
  """After four steps, a multiple or a power of two, the centre matches the rows."""
  exp = experiment("sampled/quadratic_prior", max_steps=4)
  head = dataclasses.replace(exp.head, refresh_every=every)
  exp = dataclasses.replace(exp, head=head)
  run(exp, tmp_path)
  _, state = restore(exp, str(tmp_path), "latest")
  anew = jax.jit(head.refresh)(state.head, jax.random.key(0))
  is_anew = jnp.array_equal(anew.stats.centre_D, state.head.stats.centre_D)
  assert bool(is_anew) == refreshed


def test_impossible_evaluation_fails_before_training(tmp_path):
  path = pathlib.Path(__file__).parents[1] / "configs" / "next_item.py"
  settings = runpy.run_path(str(path))["get_config"]("sampled/pps,runlocal")
  settings.eval.unroll = 3  # an item is not a sequence
  exp = c.build(settings)
  message = r"unroll is 3, but the examples .* are not sequences"
  with pytest.raises(UserError, match=message):
    train(exp, settings.to_dict(), str(tmp_path))
  assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
  ("head", "sizes"),
  others_long(
    itertools.product(["full", "spherical/taylor"], [(2**20, 2**16), (2**18, 2**16)]),
    [("full", (2**20, 2**16)), ("spherical/taylor", (2**18, 2**16))],
  ),
)
def test_too_large_evaluation_fails_before_training(head, sizes, tmp_path):
  """The error names the keys, and the corrected run can use the same workdir."""
  exp = experiment(head, max_steps=2)
  batch_size, unroll = sizes
  too_large = c.Evaluating(batch_size=batch_size, unroll=unroll)
  with pytest.raises(UserError, match=rf"eval\.batch_size = {batch_size}.* memory"):
    run(dataclasses.replace(exp, eval=too_large), tmp_path)
  assert not list((tmp_path / "checkpoints").iterdir())
  assert not (tmp_path / "config.json").exists()
  assert run(exp, tmp_path)["steps"] == 2


class OutOfMemory(Linear):
  """A network whose evaluation exceeds any address space."""

  def __call__(self, x_BTE, carry, train=False):
    if x_BTE.shape[0] == 20:
      many = jnp.arange(2.0**23) + x_BTE[0, 0, 0]
      too_many = jnp.sin(many[:, None] * many[None, :])
      x_BTE = x_BTE + jnp.sum(jnp.sort(too_many, axis=0)[0])
    return x_BTE, carry


def test_evaluation_without_memory_fails_before_training(tmp_path):
  exp = dataclasses.replace(experiment(max_steps=2), model=OutOfMemory(embed=6))
  with pytest.raises(UserError, match=r"eval\.batch_size = 20 and eval\.unroll = 20"):
    run(exp, tmp_path)
  assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize("data", ["zipf", "zipf_labels"])
def test_evaluation_is_compiled_once_before_training(data, tmp_path):
  """Also for buckets of examples, which have several shapes."""
  exp = c.build(
    c.experiment(
      data=c.part("data", data, **({"num_tokens": 500} if data == "zipf" else {})),
      model=c.part("model", "bag" if data == "zipf_labels" else "lstm", embed=4),
      head=c.head("full"),
      optimizer=c.part("optimizer", "sgd"),
      train=c.Training(batch_size=8, unroll=1),
      eval=c.Evaluating(batch_size=8, unroll=1),
    )
  )
  loaded = exp.data.load()
  state, *_ = compiled_steps(exp, init_state(exp, loaded))
  evaluate = Evaluate(exp, loaded.counts)
  batches = held_out(exp, loaded)
  for split in batches.values():
    evaluate.try_out(state, split)
  compiled = evaluate._step._cache_size()
  for split in batches.values():
    evaluate(state, split)
  assert compiled >= (2 if data == "zipf_labels" else 1)
  assert evaluate._step._cache_size() == compiled


class Slow(Linear):
  """A network that is slow to train."""

  def __call__(self, x_BTE, carry, train=False):
    if train:
      x = jax.lax.stop_gradient(x_BTE[0, 0, 0])
      x = jax.lax.fori_loop(0, 5 * 10**6, lambda _, x: jnp.cos(x), x)
      x_BTE = x_BTE + 1e-30 * x
    return x_BTE, carry


def test_signal_stops_training_within_a_few_steps(tmp_path, monkeypatch):
  """Only a few steps are dispatched to the device ahead of time."""
  exp = dataclasses.replace(experiment(max_steps=20), model=Slow(embed=6))
  results, unfinished = [], []

  batch, bound = TokenBatches.batch, RunAhead.bound

  def batch_and_signal(batches, step, *rows):
    if step == 9:
      os.kill(os.getpid(), signal.SIGTERM)
    return batch(batches, step, *rows)

  def bound_and_count(ahead, result):
    results.append(jnp.copy(result))  # the next step may donate it
    bound(ahead, result)
    unfinished.append(sum(not result.is_ready() for result in results))

  monkeypatch.setattr(TokenBatches, "batch", batch_and_signal)
  monkeypatch.setattr(RunAhead, "bound", bound_and_count)
  with pytest.raises(SystemExit):
    run(exp, tmp_path)
  assert len(unfinished) == 10
  assert 1 <= max(unfinished) <= 4


class NotANumber(Linear):
  """A network whose outputs are all NaN."""

  def __call__(self, x_BTE, carry, train=False):
    return x_BTE * jnp.nan, carry


@pytest.mark.parametrize(
  ("change", "words"),
  [
    (lambda exp: exp, r"not finite at step [1-9]\d*;.*train\.lr"),
    (
      lambda exp: dataclasses.replace(exp, model=NotANumber(embed=6)),
      r"not finite at step 0;.*init_scale, forget_bias",
    ),
  ],
)
def test_non_finite_loss_is_reported_with_its_cause(change, words, tmp_path):
  exp = change(experiment(epochs=60, lr=1e6, decay=10.0, hold_epochs=1.0))
  data = dataclasses.replace(exp.data, num_tokens=45)  # three steps per epoch
  exp = dataclasses.replace(exp, data=data)
  with pytest.raises(Diverged, match=words) as error:
    run(exp, tmp_path)
  assert ("train.lr" in str(error.value)) == ("train" in words)
  noted = json.loads((tmp_path / "diverged.json").read_text())
  assert noted == {"step": error.value.step}
  assert f"at step {error.value.step};" in str(error.value)


def test_run_whose_last_step_leaves_nan_has_no_result(tmp_path):
  exp = experiment(epochs=60, lr=1e6, decay=10.0, hold_epochs=1.0)
  data = dataclasses.replace(exp.data, num_tokens=45)
  exp = dataclasses.replace(exp, data=data)
  with pytest.raises(Diverged) as error:
    run(exp, tmp_path / "whole")
  step = error.value.step
  ended = dataclasses.replace(exp, train=dataclasses.replace(exp.train, max_steps=step))
  with pytest.raises(Diverged, match=rf"valid data is NaN after step {step};"):
    run(ended, tmp_path / "ended")
  assert not (tmp_path / "ended" / "result.json").exists()
  with pytest.raises(UserError, match=rf"valid data is NaN after step {step}, so"):
    evaluate_workdir(ended, str(tmp_path / "ended"), "latest")


def test_finished_run_removes_the_record_of_a_divergence(tmp_path):
  """The workdir is that of a run that diverged."""
  (tmp_path / "diverged.json").write_text('{"step": 3}')
  run(experiment(max_steps=5), tmp_path)
  assert not (tmp_path / "diverged.json").exists()


def test_refused_start_keeps_the_record_of_a_divergence(tmp_path):
  run(experiment(max_steps=5), tmp_path)
  (tmp_path / "result.json").unlink()
  (tmp_path / "diverged.json").write_text('{"step": 7}')
  with pytest.raises(UserError, match=r"config\.data\.name = 'data', not 'o'"):
    train(experiment(max_steps=5), CONFIG | {"data": {"name": "o"}}, str(tmp_path))
  assert (tmp_path / "diverged.json").exists()


def test_labels_that_are_not_classes_are_named(tmp_path, monkeypatch):
  """They are named once the loss is not finite, whatever a head makes of them."""
  exp = dataclasses.replace(experiment(max_steps=9), model=NotANumber(embed=6))

  batch = TokenBatches.batch

  def batch_with_wrong_ids(batches, step, *rows):
    read = batch(batches, step, *rows)
    ids_NP = np.where(read.y.ids_NP == 2, V, read.y.ids_NP)
    return read._replace(y=read.y._replace(ids_NP=ids_NP))

  monkeypatch.setattr(TokenBatches, "batch", batch_with_wrong_ids)
  message = f"labels include the id {V}, but there are {V} classes"
  with pytest.raises(UserError, match=message):
    run(exp, tmp_path)


def test_last_step_is_monitored_once_if_training_stops_early(tmp_path, caplog):
  exp = experiment("sampled/unigram", max_steps=100, patience=1, lr=1e-12)
  per_epoch = exp.data.load().training_batches(B, T).steps_per_epoch
  evaluating = dataclasses.replace(exp.eval, every_epochs=2 / per_epoch)
  logging_ = dataclasses.replace(exp.log, monitor_every_steps=2)
  caplog.set_level("INFO", logger="largevocab")
  run(dataclasses.replace(exp, eval=evaluating, log=logging_), tmp_path)
  said = [record.getMessage() for record in caplog.records]
  assert [line.split("  ")[0] for line in said if "log_z_bias" in line] == [
    "step 2",
    "step 4",
  ]


def test_monitoring_is_logged_and_does_not_change_training(tmp_path):
  runs = []
  for every in (0, 2):
    exp = experiment("sampled/unigram", max_steps=5)
    logging = dataclasses.replace(exp.log, monitor_every_steps=every)
    exp = dataclasses.replace(exp, log=logging)
    workdir = tmp_path / str(every)
    run(exp, workdir)
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    lines = [line for line in map(json.loads, lines) if line["split"] == "monitor"]
    assert [line["step"] for line in lines] == ([2, 4, 5] if every else [])
    assert all(line["relvar"] > 0 and line["chi2"] > 0 for line in lines)
    runs.append(leaves(restore(exp, str(workdir), "latest")[1]))
  for a, b in zip(*runs, strict=True):
    np.testing.assert_array_equal(a, b)
