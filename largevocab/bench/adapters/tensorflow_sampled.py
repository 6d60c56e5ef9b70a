r"""TensorFlow's sampled softmax over an LSTM in TensorFlow.

largevocab-bench run ptb --set num_samples=512 \
  --adapter=largevocab.bench.adapters.tensorflow_sampled:TensorFlowSampled ...
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from largevocab.bench.adapter import Device, Given, Step
from largevocab.data.batches import Batch
from largevocab.errors import UserError
from largevocab.models import MODELS

CHUNK = 8192  # classes whose logits are held at a time, in evaluation


class TensorFlowSampled:
  """`tf.nn.sampled_softmax_loss` with its own draw, trained by gradient descent.

  Its negatives are log-uniform by rank: classes are in order of decreasing count, as
  that needs. The gradients of the rows of classes and inputs are sparse; the norm that
  is clipped counts a row of several examples once for each of them. Evaluation is the
  exact softmax, over the classes in chunks.

  Args:
    given: of the benchmark.
    num_samples: negatives of a batch.

  Raises:
    ImportError: TensorFlow is not installed.
    UserError: the task has another network, or one with dropout.
  """

  packages = ("tensorflow",)

  def __init__(self, given: Given, num_samples: int = 512):
    tf: Any = importlib.import_module("tensorflow")
    model, V = given.model, given.data.counts.num_classes
    if not isinstance(model, MODELS["lstm"]) or model.dropout:
      raise UserError(
        "this adapter has the LSTM of the text tasks, without dropout, and no other"
      )
    tf.random.set_seed(given.seed)
    a, self._width = model.init_scale, model.hidden
    uniform = lambda *shape: tf.Variable(tf.random.uniform(shape, -a, a))
    self._tf, self._V, self._num = tf, V, num_samples
    self._forget, self._clip = model.forget_bias, given.train.clip_norm
    self._rows = uniform(given.data.num_inputs, model.embed)
    self._w, self._b = uniform(V, model.hidden), tf.Variable(tf.zeros(V))
    # Of each layer: weights of its input and its state, and biases.
    self._layers = [
      (
        uniform(size + self._width, 4 * self._width),
        tf.Variable(tf.zeros(4 * self._width)),
      )
      for size in (model.embed, *[model.hidden] * (model.layers - 1))
    ]
    self._variables = [self._rows, *(v for each in self._layers for v in each)]
    self._variables += [self._w, self._b]
    self._state: Any = None
    self._step = tf.function(self._train_step)
    self._nll = tf.function(self._evaluate_step)

  def train(self, steps: Iterable[Step]) -> None:
    for batch, lr in steps:
      state = self._begin(batch, self._state)
      lr = self._tf.constant(lr, self._tf.float32)
      self._state = self._step(*self._arrays(batch), state, lr)
    for h_BD, c_BD in self._state:  # waits for them
      h_BD.numpy(), c_BD.numpy()

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    if k:
      raise UserError("this adapter gives probabilities, and no best classes")
    state: Any = None
    for batch in batches:
      state = self._begin(batch, state)
      nll_N, state = self._nll(*self._arrays(batch), state)
      yield nll_N.numpy()

  def device(self) -> Device | None:
    found = self._tf.config.list_physical_devices("GPU")
    if not found:
      return None
    details = self._tf.config.experimental.get_device_details(found[0])
    peak = self._tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return Device(details["device_name"], peak / 2**20)

  def _arrays(self, batch: Batch) -> tuple[Any, Any]:
    """x_BT and the true classes, i64[N, 1]."""
    tensor = lambda array: self._tf.constant(np.asarray(array), self._tf.int64)
    return tensor(batch.x), tensor(batch.y.ids_NP)

  def _begin(self, batch: Batch, state: Any) -> Any:
    """The recurrent state for a batch: h and c of each layer."""
    zeros = self._tf.zeros((len(np.asarray(batch.x)), self._width))
    return [(zeros, zeros) for _ in self._layers] if batch.start else state

  def _hidden(self, x_BT: Any, state: Any) -> tuple[Any, Any]:
    """h_ND and the next state."""
    tf, ended = self._tf, []
    inputs = tf.unstack(tf.gather(self._rows, x_BT), axis=1)
    for (w, b), (h_BD, c_BD) in zip(self._layers, state, strict=True):
      outputs = []
      for x_BE in inputs:
        gates = tf.matmul(tf.concat([x_BE, h_BD], 1), w) + b
        i, f, g, o = tf.split(gates, 4, axis=1)
        c_BD = tf.sigmoid(f + self._forget) * c_BD + tf.sigmoid(i) * tf.tanh(g)
        h_BD = tf.sigmoid(o) * tf.tanh(c_BD)
        outputs.append(h_BD)
      inputs = outputs
      ended.append((h_BD, c_BD))
    return tf.reshape(tf.stack(inputs, axis=1), (-1, self._width)), ended

  def _train_step(self, x_BT: Any, ids_N1: Any, state: Any, lr: Any) -> Any:
    tf = self._tf
    with tf.GradientTape() as tape:
      h_ND, state = self._hidden(x_BT, state)
      loss_N = tf.nn.sampled_softmax_loss(
        self._w, self._b, ids_N1, h_ND, self._num, self._V
      )
      loss = tf.reduce_mean(loss_N)
    gradients = tape.gradient(loss, self._variables)
    if self._clip:
      gradients, _ = tf.clip_by_global_norm(gradients, self._clip)
    for variable, gradient in zip(self._variables, gradients, strict=True):
      if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(lr * gradient.values, gradient.indices))
      else:
        variable.assign_sub(lr * gradient)
    return state

  def _evaluate_step(self, x_BT: Any, ids_N1: Any, state: Any) -> tuple[Any, Any]:
    tf = self._tf
    h_ND, state = self._hidden(x_BT, state)
    of_chunks = []
    for start in range(0, self._V, CHUNK):
      w, b = self._w[start : start + CHUNK], self._b[start : start + CHUNK]
      logits = tf.matmul(h_ND, w, transpose_b=True) + b
      of_chunks.append(tf.reduce_logsumexp(logits, axis=1))
    log_z_N = tf.reduce_logsumexp(tf.stack(of_chunks), axis=0)
    w_ND, b_N = tf.gather(self._w, ids_N1[:, 0]), tf.gather(self._b, ids_N1[:, 0])
    return log_z_N - tf.reduce_sum(h_ND * w_ND, axis=1) - b_N, state
