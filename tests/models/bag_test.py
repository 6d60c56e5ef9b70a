"""Bags of features: the network, and a training step against dense autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c
from largevocab.data.batches import Batch, FeatureBag as Features
from largevocab.errors import UserError
from largevocab.labels import Targets, as_counts
from largevocab.models import Bag
from largevocab.training.inputs import Inputs
from largevocab.training.state import init_state
from largevocab.training.step import train_step

N, F, E, V, NUM_FEATURES = 5, 4, 3, 7, 11
LR = 0.5


def test_h_is_the_positive_part_of_sum_and_bias():
  model = Bag(embed=2)
  params = {"b": jnp.array([1.0, -1.0])}
  h_B1D, carry = model.apply({"params": params}, jnp.array([[[0.5, 0.5]]]), ())
  assert (h_B1D.tolist(), carry, model.width, model.history) == (
    [[[1.5, 0.0]]],
    (),
    2,
    1,
  )
  with pytest.raises(UserError, match="one bag of features"):
    model.apply({"params": params}, jnp.zeros((1, 2, 2)), ())
  with pytest.raises(UserError, match=r"^Bag\.embed is 0"):
    Bag(embed=0)


class SparseData:
  """What `init_state` asks of data."""

  counts = as_counts(np.ones(V))
  num_inputs = NUM_FEATURES


def test_step_equals_that_of_dense_features():
  """Several labels, repeated features, padding of both: the gradient of the mean loss
  of softmax(W relu(X R + b)), X dense."""
  exp = c.build(
    c.experiment(
      data=c.part("data", "zipf_items"),
      model=c.part("model", "bag", embed=E),
      head=c.head("full", init_scale=0.5, bias=False),
      optimizer=c.part("optimizer", "sgd"),
      train=c.Training(batch_size=N, unroll=1, clip_norm=0.0),
    )
  )
  rng = np.random.default_rng(0)
  ids_BF = rng.integers(0, NUM_FEATURES, (N, F)).astype(np.int32)
  values_BF = rng.normal(size=(N, F)).astype(np.float32)
  ids_BF[1, 2:], values_BF[1, 2:] = NUM_FEATURES, 0
  ids_BF[2, 1] = ids_BF[2, 0]
  ids_NP = np.array([[0, 1], [2, V], [3, 4], [5, 6], [1, V]], np.int32)
  w_NP = np.where(ids_NP < V, 1 / (ids_NP < V).sum(1, keepdims=True), 0)
  y = Targets(*map(jnp.asarray, (ids_NP, w_NP.astype("f"), np.arange(N))))
  batch = Batch(Features(ids_BF, values_BF), y, np.bool_(True))
  state = init_state(exp, SparseData())

  dense_NF = np.zeros((N, NUM_FEATURES + 1), np.float32)
  np.add.at(dense_NF, (np.arange(N)[:, None], ids_BF), values_BF)
  dense_NF = dense_NF[:, :NUM_FEATURES]

  def loss(tables):
    rows_FE, b_E, w_VD = tables
    h_ND = jax.nn.relu(dense_NF @ rows_FE + b_E[None])
    log_p_NV = jax.nn.log_softmax(h_ND @ w_VD.T)
    at_NP = jnp.take_along_axis(log_p_NV, jnp.minimum(ids_NP, V - 1), axis=1)
    return -jnp.sum(w_NP * at_NP) / N

  read = lambda s: (s.inputs.w_VD, s.params["b"], s.head.table.w_VD)
  expected, gradient = jax.value_and_grad(loss)(read(state))
  after = jax.jit(lambda s, b: train_step(s, b, LR, exp=exp))(state, batch)
  np.testing.assert_allclose(after.loss_sum, expected, rtol=1e-5)
  for new, old, g in zip(read(after), read(state), gradient, strict=True):
    np.testing.assert_allclose(new, old - LR * g, rtol=1e-4, atol=1e-6)
    assert np.abs(g).max() > 1e-3


def test_only_the_rows_of_the_features_are_touched():
  x = Features(np.array([[2, NUM_FEATURES]]), np.array([[0.5, 0.0]], np.float32))
  inputs = Inputs(c.part("optimizer", "sgd"), E)
  table = inputs.optimizer.init(jnp.ones((NUM_FEATURES, E)))
  grads = inputs.gradient(table, x, jnp.ones((1, 1, E)))
  kept = {
    int(i): r.tolist()
    for i, r in zip(grads.ids_R, grads.rows_RD, strict=True)
    if i < NUM_FEATURES
  }
  assert kept == {2: [0.5] * E}
