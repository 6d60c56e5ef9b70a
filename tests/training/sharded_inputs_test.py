"""Input rows on up to eight devices match a naive reference, and are not sent."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.data.batches import FeatureBag
from largevocab.heads import class_mesh
from largevocab.rows import SGD, AdamW
from largevocab.training.inputs import Inputs
from largevocab.training.sharded_inputs import ShardedInputs
from tests.training.inputs_on_devices import (
  BLOCKS,
  CLIP,
  DECAY,
  LR,
  SHAPES,
  STEPS,
  E,
  N,
  V,
  batch,
)

ONE = class_mesh(jax.devices()[:1])


@pytest.fixture(scope="module")
def trained(on_devices):
  """The results of each kind of input, by number of devices."""
  printed = on_devices(8, "-m", "tests.training.inputs_on_devices")
  rows = map(json.loads, printed.splitlines())
  return {row["kind"]: row["results"] for row in rows}


def reference(kind, first_VE):
  """The same steps with a dense matrix of inputs, dense Adagrad and float64."""
  rows_VE, sum_sq_VE = np.float64(first_VE), np.full((V, E), 0.1)
  looked_up, norms = [], []
  for i in range(STEPS):
    x, target = batch(kind, i)
    if isinstance(x, FeatureBag):
      ids_BTF, values_BTF = x.ids_BF[:, None], x.values_BF[:, None]
    else:
      ids_BTF, values_BTF = x[..., None], np.ones((*x.shape, 1))
    dense_BTV = np.sum(values_BTF[..., None] * (ids_BTF[..., None] == np.arange(V)), 2)
    looked_up.append(dense_BTV @ rows_VE)
    g_VE = np.einsum("btv,bte->ve", dense_BTV, looked_up[-1] - target)
    norms.append(np.linalg.norm(g_VE))
    is_touched_V = np.isin(np.arange(V), ids_BTF)
    g_VE = g_VE * CLIP / max(CLIP, norms[-1]) + DECAY * rows_VE
    g_VE[~is_touched_V] = 0
    sum_sq_VE += g_VE**2
    rows_VE = rows_VE - LR * g_VE / np.sqrt(sum_sq_VE + 1e-7)
  return {"looked_up": looked_up, "norms": norms, "rows": rows_VE, "slots": sum_sq_VE}


@pytest.mark.long
@pytest.mark.parametrize("kind", SHAPES)
def test_steps_equal_a_dense_reference(trained, kind):
  for got in trained[kind].values():
    want = reference(kind, got["first"])
    assert max(want["norms"]) > CLIP  # it is clipped
    for name, expected in want.items():
      np.testing.assert_allclose(
        got[name], expected, rtol=1e-4, atol=1e-5, err_msg=name
      )


@pytest.mark.long
@pytest.mark.parametrize("kind", SHAPES)
def test_initial_rows_do_not_depend_on_devices_and_padding_updates_no_row(
  trained, kind
):
  first = trained[kind]["1"]["first"]
  assert len(np.unique(first, axis=0)) == V
  for got in trained[kind].values():
    np.testing.assert_array_equal(got["first"], first)
    assert got["rows"][0] == first[0]  # in no batch: it does not decay
    moved = np.any(np.asarray(got["rows"]) != first, axis=1)
    assert moved[1]
    assert moved.sum() > 10


@pytest.mark.long
@pytest.mark.parametrize("kind", SHAPES)
def test_step_sends_no_rows_and_updates_in_place(trained, kind):
  length = 1 if kind == "bags" else SHAPES[kind][1]
  for num_devices, got in trained[kind].items():
    assert got["in_place"]
    even = N + -N % int(num_devices)
    assert 0 < got["sent"] <= even * length * E


def test_features_without_a_table_pass_through():
  inputs = ShardedInputs(Inputs(SGD(), E), ONE, 4)
  x_BTE = np.ones((3, 1, E), np.float32)
  table = inputs.init(jax.random.key(0), 0)
  assert table is None
  np.testing.assert_array_equal(inputs.look_up(table, x_BTE), x_BTE)
  assert inputs.gradient(table, x_BTE, x_BTE) is None
  assert inputs.update(table, None, 0.1, 1.0) is None


def test_fewer_inputs_than_blocks_are_supported():
  inputs = ShardedInputs(Inputs(SGD(), E), ONE, 8)
  table = inputs.init(jax.random.key(0), 3)
  rows_E = inputs.look_up(table, np.arange(10)[:, None])[:, 0]
  assert np.any(rows_E, axis=1).tolist() == [True] * 3 + [False] * 7


def test_scalars_of_an_optimiser_are_kept_on_each_device():
  """Decoupled decay of occasionally touched rows is the same as on one device."""
  plain = Inputs(AdamW(decoupled_decay=0.1), E)
  inputs = ShardedInputs(plain, ONE, BLOCKS)
  table = inputs.init(jax.random.key(0), V)
  want = plain.optimizer.init(table.rows.w_VD)

  @jax.jit
  def step(table, want, x, target):
    new = inputs.update(table, inputs.gradient(table, x, target), LR, 0.5)
    grads = plain.gradient(want, table.blocks.row(x), target)
    return new, plain.update(want, grads, LR, 0.5)

  for i in range(3):
    table, want = step(table, want, *map(jnp.asarray, batch("words", i)))
  assert float(want.slots["log_decay"]) < 0
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
    table.rows,
    want,
  )
