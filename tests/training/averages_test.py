"""Averages of weights: of rarely touched rows, of a network, and of a run."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab import config as c
from largevocab.errors import UserError
from largevocab.evaluation import predict
from largevocab.evaluation.evaluate import Evaluate, evaluate_workdir, held_out
from largevocab.rows import (
  SGD,
  Adagrad,
  Adam,
  AdamW,
  Momentum,
  RowGrads,
  Table,
  carry_rows,
  lazy_average,
)
from largevocab.tools.reports.trained import trained
from largevocab.train import train
from largevocab.training.averages import averaged, init_network, settled, step_network
from largevocab.training.state import init_state, restore
from largevocab.training.step import compiled_settled, compiled_steps

V, D, R = 12, 3, 4
B, T = 4, 3
DECAY = 0.7
FAR = 1e-3  # a wrong average differs by at least this


def naive(each, decay=DECAY):
  """The average of float64 arrays, with weights decay^(t - i)."""
  weights = [decay ** (len(each) - i) for i in range(1, len(each) + 1)]
  return np.average(np.float64(each), axis=0, weights=weights)


def some(seed):
  """Rows, never the last two, and padding."""
  rng = np.random.default_rng(seed)
  ids_R = rng.permutation(V)[:R].astype(np.int32)
  ids_R = np.where(ids_R < V - 2, ids_R, V + ids_R)
  return RowGrads(jnp.asarray(ids_R), jnp.asarray(rng.normal(size=(R, D)), "f4"))


def average_of(opt, table):
  return lazy_average.swapped(lazy_average.settled(table, opt.average)).w_VD


def rows_over(opt, steps=10):
  """A table after some steps, and its rows after each step."""
  w_VD = np.random.default_rng(1).normal(size=(V, D))
  table, each = opt.init(jnp.asarray(w_VD, "f4")), []
  sparse, dense = jax.jit(opt.update), jax.jit(opt.dense_update)
  for number in range(steps):
    if number == 4:
      table = opt.settled(table)  # as at a refresh
    lr = 0.5 / (1 + number)
    if number == 6:
      g_VD = np.random.default_rng(2).normal(size=(V, D)) * np.arange(V)[:, None]
      table = dense(table, jnp.asarray(g_VD, "f4").at[V - 2 :].set(0), lr, 1.0)
    else:
      table = sparse(table, some(number), lr, 1.0)
    each.append(np.float64(table.w_VD))
  return table, each


@pytest.mark.parametrize(
  "opt",
  [
    Adagrad(average=DECAY),
    Adam(average=DECAY),
    Momentum(average=DECAY),
    AdamW(average=DECAY, decoupled_decay=0.2),
    Adagrad(average=DECAY, row_dtype="bfloat16"),
  ],
)
def test_average_of_rows_is_over_all_steps(opt):
  """To 1e-6, for rows as stored.

  Averages over touched steps only, or before they are settled, differ.
  """
  table, each = rows_over(opt)
  want_VD = naive(each)
  got_VD = average_of(opt, table)
  assert got_VD.dtype == jnp.float32
  np.testing.assert_allclose(got_VD, want_VD, rtol=2e-6, atol=1e-6)
  assert np.abs(each[-1] - want_VD).max() > FAR
  if not isinstance(opt, Momentum):  # which moves all rows in all steps
    assert np.abs(table.slots["average_VD"] - want_VD).max() > FAR
    row = int(some(9).ids_R.min())
    moved = [
      w
      for w, old in zip(each[1:], each[:-1], strict=True)
      if np.any(w[row] != old[row])
    ]
    assert 1 < len(moved) < 9
    assert np.abs(naive(moved) - want_VD)[row].max() > FAR


def test_untouched_rows_equal_their_average():
  opt = SGD(average=0.999999)
  table = opt.init(jnp.asarray(np.random.default_rng(0).normal(size=(V, D)), "f4"))
  np.testing.assert_array_equal(average_of(opt, table), table.w_VD)
  for number in range(3):
    table = opt.update(table, some(number), 0.1, 1.0)
  np.testing.assert_array_equal(average_of(opt, table)[V - 2 :], table.w_VD[V - 2 :])


def test_rows_carried_to_another_table_keep_their_averages():
  """A new row equals its average, however many steps the table has had."""
  opt = Adagrad(average=DECAY)
  old, _ = rows_over(opt, steps=3)
  fresh = opt.init(jnp.full((V, D), 5.0))
  was = np.append(np.arange(V - 1), -1)
  got_VD = average_of(opt, carry_rows(fresh, old, was))
  np.testing.assert_array_equal(got_VD[:-1], average_of(opt, old)[:-1])
  np.testing.assert_array_equal(got_VD[-1], 5.0)


def test_average_with_a_large_decay_is_accurate_after_many_steps():
  """Tests the weights of the first steps, and of steps after a long gap."""
  decay, late = 0.9999, 2**29
  for since, step in ((0, 1), (1, 2), (1, 5), (late - 3, late)):
    want = -np.expm1((step - since) * np.log(decay)) / -np.expm1(step * np.log(decay))
    got = float(lazy_average.share(since, step, decay))
    assert got == pytest.approx(want, rel=1e-5)


def test_average_of_a_network_equals_optax():
  opt, params = Adagrad(average=DECAY), {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}
  ema = optax.ema(DECAY, debias=True)
  state, of_optax = init_network(opt, params), ema.init(params)
  for number in range(5):
    rng = np.random.default_rng(number)
    grads = jax.tree.map(
      lambda p, rng=rng: jnp.asarray(rng.normal(size=p.shape)), params
    )
    params, state = step_network(opt, grads, state, params, jnp.float32(0.3))
    want, of_optax = ema.update(params, of_optax)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
      *(state.params, want),
    )
  assert np.abs(state.params["w"] - params["w"]).max() > FAR


def settings(head="sampled/pps", blocks=1, average=DECAY, optimizer="adagrad", **train):
  return c.experiment(
    data=c.part("data", "zipf", num_classes=30, num_tokens=500),
    model=c.part("model", "lstm", embed=6, hidden=6, layers=1, dropout=0.0),
    head=c.head(head, num_samples=8, init_scale=0.5),
    optimizer=c.part("optimizer", optimizer, average=average),
    train=c.Training(batch_size=B, unroll=T, lr=0.5, **train),
    eval=c.Evaluating(batch_size=B, unroll=T, every_epochs=0.05),  # 2 steps
    checkpoint=c.Checkpointing(every_steps=3, keep=20),
    mesh=c.Devices(blocks=blocks, num=1),
  )


def tables_of(state):
  is_table = lambda x: isinstance(x, Table)
  found = jax.tree.leaves((state.inputs, state.head), is_leaf=is_table)
  return [x for x in found if is_table(x)]


def with_tables(state, rows):
  """The state with these rows in its tables."""
  rows, is_table = iter(rows), lambda x: isinstance(x, Table)
  put = lambda x: x._replace(w_VD=next(rows)) if is_table(x) else x
  tables = jax.tree.map(put, (state.inputs, state.head), is_leaf=is_table)
  return state._replace(inputs=tables[0], head=tables[1])


def bits(state):
  leaves = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
  return [np.asarray(x).tobytes() for x in leaves]


@pytest.mark.parametrize(
  ("head", "blocks", "optimizer"),
  [
    ("full", 1, "adam"),
    pytest.param("sampled/pps", 2, "adam", marks=pytest.mark.long),
    pytest.param("adaptive", 1, "adagrad", marks=pytest.mark.long),
    ("nce/unigram", 1, "adagrad"),  # which learns log-partition functions
  ],
)
def test_metrics_are_measured_with_the_averages(head, blocks, optimizer):
  exp = c.build(settings(head, blocks, optimizer=optimizer))
  data = exp.data.load()
  batches = data.training_batches(B, T)
  state, step, _ = compiled_steps(exp, init_state(exp, data))
  settle, each = compiled_settled(exp, state), []
  evaluate, valid = Evaluate(exp, data.counts), held_out(exp, data)["valid"]
  for number in range(5):
    state = step(state, batches.batch(number), 0.5)
    weights = state.params, [table.w_VD for table in tables_of(state)]
    each.append(jax.tree.map(np.asarray, weights))
  state = settle(state)
  before = bits(state)
  seen = averaged(exp.optimizer, state)
  got = evaluate(seen, valid)
  average = lambda *each: jnp.asarray(naive(each), jnp.float32)
  params, rows = jax.tree.map(average, *each)
  by_hand = with_tables(state._replace(params=params), rows)
  want, raw = (evaluate(state, valid) for state in (by_hand, state))
  assert got == pytest.approx(want, rel=1e-4)
  assert abs(got["nll"] - raw["nll"]) > FAR
  # No array was made to read the averages, and training goes on with the same bits.
  arrays = {id(x) for x in jax.tree.leaves(state)}
  assert {id(x) for x in jax.tree.leaves(seen)} <= arrays
  assert bits(state) == before
  assert bits(settle(jax.tree.map(jnp.copy, state))) == before


@pytest.mark.parametrize("row_dtype", ["float32", "bfloat16"])
def test_tables_are_updated_and_settled_in_place(row_dtype):
  """No array of a table's size is copied or made."""
  opt, num, width = Adam(average=DECAY, row_dtype=row_dtype), 50_000, 64
  table = jax.eval_shape(opt.init, jax.ShapeDtypeStruct((num, width), jnp.float32))
  settle = jax.jit(lambda t: lazy_average.settled(t, DECAY), donate_argnums=0)
  programs = [settle.lower(table)]
  if row_dtype == "float32":  # a CPU converts the others
    update = jax.jit(opt.update, donate_argnums=0)
    grads = RowGrads(jnp.arange(R), jnp.ones((R, width)))
    programs.append(update.lower(table, grads, 0.1, 1.0))
  for program in programs:
    memory = program.compile().memory_analysis()
    assert memory.alias_size_in_bytes >= num * width * 4
    assert memory.temp_size_in_bytes < 2**20


def run(config, workdir):
  result = train(c.build(config), config.to_dict(), str(workdir))
  timing = ("seconds", "tokens_per_second", "train_seconds", "ms_per_step", "peak_mib")
  _, state = restore(c.build(config), str(workdir), "latest")
  return {k: v for k, v in result.items() if k not in timing}, state


@pytest.mark.long
def test_resumed_run_ends_with_the_same_averages_and_uses_them(tmp_path):
  """It resumes from an evaluated state, whose averages were settled."""
  config = settings(optimizer="adam", max_steps=11)
  exp = c.build(config)
  result, state = run(config, tmp_path)
  lines = (tmp_path / "metrics.jsonl").read_text()
  assert [f'"step": {n}, "split": "valid"' in lines for n in (7, 8)] == [False, True]
  (tmp_path / "result.json").unlink()
  for step in (9, 10, 11):
    shutil.rmtree(tmp_path / "checkpoints" / str(step))
  again, resumed = run(config, tmp_path)
  assert again == result
  assert bits(resumed) == bits(state)
  found = evaluate_workdir(exp, str(tmp_path), "latest")
  assert found["valid_nll"] == result["valid_nll"]
  seen = averaged(exp.optimizer, settled(exp.optimizer, state))
  assert bits(predict.load(exp, str(tmp_path), "latest").state) == bits(seen)
  assert bits(trained(str(tmp_path), "latest").state) == bits(seen)  # of reports
  data = exp.data.load()
  raw = Evaluate(exp, data.counts)(state, held_out(exp, data)["valid"])
  assert abs(raw["nll"] - result["valid_nll"]) > FAR


def test_state_without_averaging_has_no_averages():
  exp = c.build(settings(average=0.0))
  state = init_state(exp, exp.data.load())
  assert averaged(exp.optimizer, state) is state
  assert compiled_settled(exp, state)(state) is state
  assert not any("average" in name for t in tables_of(state) for name in t.slots)


def test_impossible_averaging_is_refused():
  with pytest.raises(
    UserError, match=r"average is 0\.7, but the head Spherical has no"
  ):
    settings("spherical/taylor")
  with pytest.raises(UserError, match=r"average is 1\.0; it must be at most"):
    settings(average=1.0)
  exp = c.build(settings("full"))
  other = dataclasses.replace(exp, head=dataclasses.replace(exp.head, optimizer=SGD()))
  with pytest.raises(UserError, match="no averages of its rows: give the head the opt"):
    averaged(other.optimizer, init_state(other, other.data.load()))
