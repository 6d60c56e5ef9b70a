"""Inputs of a network in a training step: rows that learn, or features of the data."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c
from largevocab.data.batches import Batch, FeatureBag
from largevocab.errors import UserError
from largevocab.evaluation.evaluate import Evaluate
from largevocab.labels import as_counts, single_targets
from largevocab.rows import SGD
from largevocab.training.inputs import Inputs
from largevocab.training.state import init_state
from largevocab.training.step import train_step

N, E, V = 6, 4, 9
LR = 0.5


def experiment(width=E):
  return c.build(
    c.experiment(
      data=c.part("data", "zipf_items", num_classes=V, num_items=200),
      model=c.part("model", "mlp", history=1, embed=width, hidden=5),
      head=c.head("full", init_scale=0.5),
      optimizer=c.part("optimizer", "sgd"),
      train=c.Training(batch_size=N, unroll=1, clip_norm=0.1),
    )
  )


def data(num_inputs):
  """The attributes of data that `init_state` needs."""
  return SimpleNamespace(counts=as_counts(np.ones(V)), num_inputs=num_inputs)


def batch_of(x):
  return Batch(x, single_targets(np.arange(N)), np.bool_(True))


def test_bfloat16_rows_and_their_gradients_are_read_as_float32():
  rows_VE = jax.random.normal(jax.random.key(0), (V, E)).astype(jnp.bfloat16)
  table = SGD(row_dtype="bfloat16").init(rows_VE)
  wide = SGD().init(rows_VE)
  inputs = Inputs(SGD(), E)
  bag = FeatureBag(jnp.array([[2, 0, V]]), jnp.array([[0.5, 2.0, 1.0]]))
  for x in (jnp.array([[0, 3, V]]), bag):
    got = inputs.look_up(table, x)
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got, inputs.look_up(wide, x))
    g_BTE = jnp.full(got.shape, 1.001)
    grads = inputs.gradient(table, x, g_BTE)
    assert grads.rows_RD.dtype == jnp.float32
    jax.tree.map(np.testing.assert_array_equal, grads, inputs.gradient(wide, x, g_BTE))
    new = inputs.update(table, grads, LR, 1.0)
    assert new.w_VD.dtype == jnp.bfloat16
    of_wide = inputs.update(wide, grads, LR, 1.0)
    np.testing.assert_allclose(np.float32(new.w_VD), of_wide.w_VD, rtol=2**-7)


def test_features_train_like_fixed_rows_with_the_same_values():
  """The loss is the same whether the numbers are read from a table or from the data.

  Features have no gradient; only network and head learn.
  """
  exp = experiment()
  rows_NE = jax.random.normal(jax.random.key(0), (N, E))
  dense = init_state(exp, data(num_inputs=0))
  assert dense.inputs is None
  by_id = dense._replace(inputs=SGD().init(rows_NE))
  step = jax.jit(functools.partial(train_step, exp=exp))
  from_rows = step(by_id, batch_of(np.arange(N)[:, None]), LR)
  read = step(dense, batch_of(np.asarray(rows_NE)[:, None]), LR)
  assert read.inputs is None
  assert float(read.loss_sum) == float(from_rows.loss_sum)

  learnt = lambda state: (state.params, state.head.table.w_VD)

  def moved(new):
    change = jax.tree.map(jnp.subtract, learnt(new), learnt(dense))
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(change)])

  # The clipped norm lacks one part, so the other parts are longer in proportion.
  ratio = np.linalg.norm(moved(read)) / np.linalg.norm(moved(from_rows))
  np.testing.assert_allclose(moved(read), ratio * moved(from_rows), atol=1e-6)
  assert ratio > 1.01
  assert np.linalg.norm(moved(read)) == pytest.approx(LR * 0.1, rel=1e-3)


def test_evaluation_reads_features():
  exp = experiment()
  state = init_state(exp, data(num_inputs=0))
  x_NTE = np.ones((N, 1, E), np.float32)
  other_NTE = x_NTE * np.arange(N)[:, None, None].astype(np.float32)

  def nll(x):
    batch = jax.tree.map(np.asarray, batch_of(x))

    class Batches(list):
      batch_size = N

      def read(self, rows):
        return iter(self)

    return Evaluate(exp, as_counts(np.ones(V)))(state, Batches([batch]))["nll"]

  h_BTD, _ = exp.model.apply({"params": state.params}, x_NTE, ())
  y = single_targets(np.arange(N))
  expected = exp.head.evaluate(state.head, h_BTD[:, 0], y)["nll"].mean()
  assert nll(x_NTE) == pytest.approx(float(expected), rel=1e-6)
  assert nll(other_NTE) != pytest.approx(float(expected), rel=1e-3)


def test_features_of_wrong_width_are_refused():
  exp = experiment(width=E + 1)
  state = init_state(exp, data(num_inputs=0))
  with pytest.raises(UserError, match=r"shape \(6, 1, 4\), but model.embed is 5"):
    train_step(state, batch_of(np.zeros((N, 1, E), np.float32)), LR, exp=exp)


def test_ids_outside_the_table_read_zeros_and_do_not_learn():
  inputs = Inputs(SGD(), E)
  table = inputs.init(jax.random.key(1), V)
  x_BT = np.array([[0, V], [V - 1, V + 5]])
  rows_BTE = inputs.look_up(table, x_BT)
  np.testing.assert_array_equal(rows_BTE[:, 0], table.w_VD[np.array([0, V - 1])])
  assert not np.any(rows_BTE[:, 1])
  grads = inputs.gradient(table, x_BT, jnp.ones((2, 2, E)))
  new = inputs.update(table, grads, 1.0, 1.0)
  moved_V = np.any(np.asarray(new.w_VD != table.w_VD), axis=1)
  assert np.flatnonzero(moved_V).tolist() == [0, V - 1]
