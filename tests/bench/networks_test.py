"""Networks of adapters compute the same h as the package, given its parameters."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config
from largevocab.bench.adapter import Given
from largevocab.bench.adapters import tensorflow_networks, torch_networks
from largevocab.bench.adapters.choice import chosen
from largevocab.errors import UserError
from largevocab.rows import SGD
from largevocab.training.activations import activations
from largevocab.training.inputs import Inputs
from tests.bench.counting import TINY

CONFIGS = {
  "LSTM": "ptb:{},runlocal",
  "MLP": "next_item:{},runlocal,data=diginetica",
  "Bag": "xmlc:{},runlocal,data=synthetic",
}
FORGET = 0.5


@pytest.fixture(params=CONFIGS)
def task(request):
  """Settings of a small task; the network has two layers if it has layers."""
  exp = config.build(
    dataclasses.replace(TINY, config=CONFIGS[request.param]).settings()
  )
  more = {"LSTM": {"layers": 2, "forget_bias": FORGET}, "MLP": {"layers": 2}}
  model = exp.model.clone(**more.get(request.param, {}))
  return dataclasses.replace(exp, model=model)


class Torch:
  """The network in PyTorch, with random parameters."""

  def __init__(self, given, rng):
    torch = pytest.importorskip("torch")
    self._network = torch_networks.network(torch, given, "cpu")
    self._network.parts.eval()
    with torch.no_grad():
      for parameter in self._network.parts.parameters():
        parameter += torch.tensor(rng.normal(0, 0.1, parameter.shape))
      self._network._rows.weight[-1] = 0

  def hidden(self, batch, state):
    h_ND, state = self._network(batch, state)
    return h_ND.detach().numpy(), state

  def parameters(self):
    """The table of inputs, and the other parameters in the layout of this package."""
    named = self._network.parts.named_parameters()
    table, *rest = [(name, p.detach().numpy()) for name, p in named]
    return table[1][:-1], _ours([(name, p.T) for name, p in rest])


def _ours(named):
  """Converts parameters of PyTorch, whose two biases include the forget bias."""
  if len(named) == 1:
    return {"b": named[0][1]}
  arrays = [array for _, array in named]
  if "weight_ih_l0" not in named[0][0]:
    return {f"layer_{i // 2}_{'wb'[i % 2]}": array for i, array in enumerate(arrays)}
  found = {}
  for layer in range(len(arrays) // 4):
    w, u, b, c = arrays[4 * layer : 4 * layer + 4]
    width = len(b) // 4
    b = b + c - FORGET * np.repeat([0, 1, 0, 0], width).astype(np.float32)
    found |= {f"layer_{layer}_w": w, f"layer_{layer}_u": u, f"layer_{layer}_b": b}
  return found


class TensorFlow:
  """The network in TensorFlow, with random parameters."""

  def __init__(self, given, rng):
    tf = pytest.importorskip("tensorflow")
    self._drop = tf.identity
    self._network = tensorflow_networks.network(tf, given)
    for variable in self._network.variables:
      variable.assign_add(rng.normal(0, 0.1, variable.shape))
    self._is_lstm = isinstance(self._network, tensorflow_networks.LSTM)

  def hidden(self, batch, state):
    state = self._network.begin(batch) if batch.start else state
    h_ND, state = self._network(self._network.inputs(batch), state, self._drop)
    return h_ND.numpy(), state

  def parameters(self):
    """The table of inputs, and the other parameters in the layout of this package."""
    table, *rest = [variable.numpy() for variable in self._network.variables]
    if len(rest) == 1:
      return table, {"b": rest[0]}
    found = {}
    for layer in range(len(rest) // 2):
      w, b = rest[2 * layer : 2 * layer + 2]
      found[f"layer_{layer}_b"] = b
      if self._is_lstm:
        size = len(w) - len(b) // 4
        w, found[f"layer_{layer}_u"] = w[:size], w[size:]
      found[f"layer_{layer}_w"] = w
    return table, found


@pytest.mark.parametrize("kind", [Torch, TensorFlow])
def test_hidden_activations_equal_those_of_the_package(task, kind):
  """For two batches in turn, so that the recurrent state matters."""
  data = task.data.load()
  given = Given(data, task.model, task.train, seed=0)
  own = kind(given, np.random.default_rng(0))
  rows, params = own.parameters()
  inputs, table = Inputs(SGD(), width=task.model.embed), SGD().init(jnp.asarray(rows))
  batches = data.training_batches(task.train.batch_size, task.train.unroll)
  carry, state = task.model.initial_carry(task.train.batch_size), None
  for step in range(2):
    batch = batches.batch(step)
    found, state = own.hidden(batch, state)
    rows_BTE = inputs.look_up(table, batch.x)
    expected, carry = activations(task, params, rows_BTE, carry, batch)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_gates_of_the_network_in_pytorch_learn_one_bias():
  torch = pytest.importorskip("torch")
  exp = config.build(TINY.settings())
  given = Given(exp.data.load(), exp.model, exp.train, 0)
  parts = torch_networks.network(torch, given, "cpu").parts
  learnt = [name for name, p in parts.named_parameters() if p.requires_grad]
  biases = [name for name in learnt if "bias" in name]
  assert len(biases) == exp.model.layers
  assert not any("bias_hh" in name for name in biases)


def test_unknown_network_is_named():
  for known in (torch_networks.NETWORKS, tensorflow_networks.NETWORKS):
    with pytest.raises(UserError, match=r"network is 'GRU'.*Bag, LSTM, MLP"):
      chosen("network", "GRU", known)
