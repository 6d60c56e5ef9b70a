"""Softmax regression without a network: training, saving and restoring."""

import functools
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab import config as c, main
from largevocab.errors import UserError
from largevocab.evaluation.predict import load
from largevocab.models import Linear
from largevocab.train import train
from largevocab.training.state import init_state, restore
from largevocab.training.step import train_step
from tests.long import others_long

CONFIG = pathlib.Path(__file__).parents[2] / "configs" / "softmax_regression.py"
LR = 0.1


def test_h_is_the_input():
  model = Linear(embed=3)
  x_BTE = jnp.arange(12.0).reshape(2, 2, 3)
  assert model.init(jax.random.key(0), x_BTE, ()) == {}
  h_BTD, carry = model.apply({"params": {}}, x_BTE, (), train=True)
  np.testing.assert_array_equal(h_BTD, x_BTE)
  assert (carry, model.width, model.history) == ((), 3, 1)
  with pytest.raises(UserError, match=r"^Linear\.embed is 0"):
    Linear(embed=0)


def experiment(data, optimizer="momentum"):
  return c.build(
    c.experiment(
      data=data,
      model=c.part("model", "linear", embed=4),
      head=c.head("full", bias=False, init_scale=0.5),
      optimizer=c.part("optimizer", optimizer),
      train=c.Training(batch_size=5, unroll=1, clip_norm=0.0),
      eval=c.Evaluating(batch_size=5, unroll=1),
    )
  )


def test_steps_equal_those_of_softmax_regression_in_optax():
  data = c.part("data", "softmax_regression", num_classes=6, num_examples=30, dim=4)
  exp = experiment(data)
  loaded = exp.data.load()
  state = init_state(exp, loaded)
  assert state.inputs is None
  assert not state.params
  w_VD, tx = state.head.table.w_VD, optax.sgd(LR, momentum=0.9)
  opt = tx.init(w_VD)

  def loss(w_VD, batch):
    o_NV = batch.x[:, 0] @ w_VD.T
    labels_N = batch.y.ids_NP[:, 0]
    return optax.softmax_cross_entropy_with_integer_labels(o_NV, labels_N).mean()

  step = jax.jit(functools.partial(train_step, exp=exp))
  batches = loaded.training_batches(5, 1)
  for i in range(8):
    state = step(state, batches.batch(i), LR)
    updates, opt = tx.update(jax.grad(loss)(w_VD, batches.batch(i)), opt)
    w_VD = w_VD + updates
    np.testing.assert_allclose(state.head.table.w_VD, w_VD, rtol=1e-4, atol=1e-5)
  assert np.abs(w_VD - init_state(exp, loaded).head.table.w_VD).max() > 0.1


def test_linear_network_on_text_is_a_bigram_model_of_low_rank():
  """Loss and both gradients equal those of the factorised table of logits."""
  exp = experiment(c.part("data", "zipf", num_classes=9, num_tokens=200), "sgd")
  corpus = exp.data.load()
  state = init_state(exp, corpus)
  batch = corpus.training_batches(5, 1).batch(0)

  def loss(rows_VE, w_VD):
    o_VV = rows_VE @ w_VD.T
    log_p_VV = jax.nn.log_softmax(o_VV)
    return -log_p_VV[batch.x[:, 0], batch.y.ids_NP[:, 0]].mean()

  tables = state.inputs.w_VD, state.head.table.w_VD
  value, grads = jax.value_and_grad(loss, (0, 1))(*tables)
  new = train_step(state, batch, LR, exp=exp)
  assert float(new.loss_sum) == pytest.approx(float(value), rel=1e-5)
  got = new.inputs.w_VD, new.head.table.w_VD
  for table, g, after in zip(tables, grads, got, strict=True):
    np.testing.assert_allclose(after, table - LR * g, rtol=1e-5, atol=1e-6)
    assert jnp.abs(after - table).max() > 1e-3


# Of which the state of a network is nothing, arrays, and arrays and a count.
@pytest.mark.parametrize(
  "optimizer", others_long(["sgd", "momentum", "adamw"], ["adamw"])
)
def test_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(optimizer, tmp_path):
  """Although network and inputs have no arrays to save or restore."""
  settings = c.experiment(
    data=c.part("data", "softmax_regression", num_classes=9, num_examples=30, dim=4),
    model=c.part("model", "linear", embed=4),
    head=c.head("sampled/unigram", num_samples=5),
    optimizer=c.part("optimizer", optimizer),
    train=c.Training(max_steps=5, batch_size=5, unroll=1, lr=LR),
    eval=c.Evaluating(batch_size=8, unroll=1),
    checkpoint=c.Checkpointing(every_steps=2, keep=9),
  )
  exp = c.build(settings)

  def run(workdir):
    train(exp, settings.to_dict(), str(workdir))
    _, state = restore(exp, str(workdir), "latest")
    return jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))

  whole = run(tmp_path / "whole")
  stopped = tmp_path / "stopped"
  shutil.copytree(tmp_path / "whole", stopped)
  (stopped / "result.json").unlink()
  for step in (4, 5):
    shutil.rmtree(stopped / "checkpoints" / str(step))
  assert int(restore(exp, str(stopped), "latest")[1].step) == 2
  for a, b in zip(run(stopped), whole, strict=True):
    np.testing.assert_array_equal(a, b)
  with pytest.raises(UserError, match="was not trained on text"):
    load(exp, str(stopped), "latest")


def test_features_of_another_width_are_named(tmp_path, capsys):
  flags = [f"--config={CONFIG}:full,runlocal", f"--workdir={tmp_path}"]
  assert main.run(["main", *flags, "--config.model.embed=6"]) == 1
  message = "features have shape (4, 1, 8), but model.embed is 6: set model.embed"
  assert message in capsys.readouterr().err
