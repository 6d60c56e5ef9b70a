"""The tasks' networks in TensorFlow, which map batches to h_ND for any output layer.

The formulas and initial scales are those of `largevocab.models`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from largevocab.bench.adapter import Given
from largevocab.bench.adapters.choice import chosen
from largevocab.data.batches import Batch

Drop = Callable[[Any], Any]


class _Network:
  """A table of inputs, and the layers over its rows that a subclass defines.

  Missing inputs and padding look up zeros. The gradient of the table is sparse.

  Attributes:
    width: D.
    variables: all variables of the network.
  """

  def __init__(self, tf: Any, given: Given):
    self._tf, self._model = tf, given.model
    self._num, self.width = given.data.num_inputs, given.model.width
    self._rows = self._uniform(given.model.init_scale, self._num, given.model.embed)
    self.variables = [self._rows, *self._layers(given.model)]

  def begin(self, batch: Batch) -> Any:
    """The recurrent state at the start of a text; here there is none."""
    return []

  def inputs(self, batch: Batch) -> Any:
    """The parts of a batch that `__call__` reads, as tensors."""
    return self._tf.constant(np.asarray(batch.x), self._tf.int32)

  def __call__(self, inputs: Any, state: Any, drop: Drop) -> tuple[Any, Any]:
    """h_ND and the next state, with `drop` as dropout."""
    raise NotImplementedError

  def _layers(self, model: Any) -> list[Any]:
    """Makes the other variables, and returns them."""
    raise NotImplementedError

  def _uniform(self, a: float, *shape: int) -> Any:
    return self._tf.Variable(self._tf.random.uniform(shape, -a, a))

  def _zeros(self, size: int) -> Any:
    return self._tf.Variable(self._tf.zeros(size))

  def _look_up(self, ids: Any) -> Any:
    tf = self._tf
    is_given = tf.cast(ids < self._num, tf.float32)
    return tf.gather(self._rows, tf.minimum(ids, self._num - 1)) * is_given[..., None]


class LSTM(_Network):
  """Stacked LSTM, unrolled, whose state is h and c of each layer."""

  def _layers(self, model: Any) -> list[Any]:
    sizes = [model.embed, *[model.hidden] * (model.layers - 1)]
    # For each layer: the weights of its input and its state, and its biases.
    self._own = [
      (
        self._uniform(model.init_scale, size + model.hidden, 4 * model.hidden),
        self._zeros(4 * model.hidden),
      )
      for size in sizes
    ]
    return [variable for each in self._own for variable in each]

  def begin(self, batch: Batch) -> Any:
    zeros = self._tf.zeros((len(np.asarray(batch.x)), self.width))
    return [(zeros, zeros) for _ in self._own]

  def __call__(self, inputs: Any, state: Any, drop: Drop) -> tuple[Any, Any]:
    tf, ended = self._tf, []
    x_BTE = self._look_up(inputs)
    for (w, b), (h_BD, c_BD) in zip(self._own, state, strict=True):
      outputs = []
      for x_BE in tf.unstack(drop(x_BTE), axis=1):
        gates = tf.matmul(tf.concat([x_BE, h_BD], 1), w) + b
        i, f, g, o = tf.split(gates, 4, axis=1)
        f = tf.sigmoid(f + self._model.forget_bias)
        c_BD = f * c_BD + tf.sigmoid(i) * tf.tanh(g)
        h_BD = tf.sigmoid(o) * tf.tanh(c_BD)
        outputs.append(h_BD)
      x_BTE = tf.stack(outputs, axis=1)
      ended.append((h_BD, c_BD))
    return tf.reshape(drop(x_BTE), (-1, self.width)), ended


class MLP(_Network):
  """ReLU layers over the concatenated rows of the last items."""

  def _layers(self, model: Any) -> list[Any]:
    sizes = [model.history * model.embed, *[model.hidden] * (model.layers - 1)]
    self._own = [
      (self._uniform((6 / size) ** 0.5, size, model.hidden), self._zeros(model.hidden))
      for size in sizes
    ]
    return [variable for each in self._own for variable in each]

  def __call__(self, inputs: Any, state: Any, drop: Drop) -> tuple[Any, Any]:
    tf, x_BKE = self._tf, self._look_up(inputs)
    h_BD = drop(tf.reshape(x_BKE, (-1, x_BKE.shape[1] * x_BKE.shape[2])))
    for w, b in self._own:
      h_BD = drop(tf.nn.relu(tf.matmul(h_BD, w) + b))
    return h_BD, state


class Bag(_Network):
  """Sums of the rows of features, weighted by their values."""

  def _layers(self, model: Any) -> list[Any]:
    self._b = self._zeros(model.embed)
    return [self._b]

  def inputs(self, batch: Batch) -> Any:
    tf: Any = self._tf
    bag: Any = batch.x
    return tf.constant(bag.ids_BF, tf.int32), tf.constant(bag.values_BF, tf.float32)

  def __call__(self, inputs: Any, state: Any, drop: Drop) -> tuple[Any, Any]:
    ids_BF, values_BF = inputs
    sums_BE = self._tf.einsum("bf,bfe->be", values_BF, self._look_up(ids_BF))
    return drop(self._tf.nn.relu(sums_BE + self._b)), state


NETWORKS = {"LSTM": LSTM, "MLP": MLP, "Bag": Bag}  # by class of `largevocab.models`


def network(tf: Any, given: Given) -> _Network:
  """The network that `given.model` describes; raises a UserError if there is none."""
  return chosen("network", type(given.model).__name__, NETWORKS)(tf, given)
