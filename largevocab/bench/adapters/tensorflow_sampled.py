r"""TensorFlow's sampled softmax over a TensorFlow network.

largevocab-bench run ptb --set num_samples=512 \
  --adapter=largevocab.bench.adapters.tensorflow_sampled:TensorFlowSampled ...
"""

import importlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from largevocab.bench.adapter import Device, Given, Step
from largevocab.bench.adapters.choice import chosen
from largevocab.bench.adapters.ranks import Ranks
from largevocab.bench.adapters.tensorflow_networks import Drop, network
from largevocab.data.batches import Batch
from largevocab.errors import Diverged

# Names in `tf.compat.v1.train`, whose updates of rows are sparse, and their arguments.
# Gradients are means over the batch, in which most classes are rare. With Adagrad's
# default initial accumulator of 0.1, they would hardly move a row.
OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
  "sgd": ("GradientDescentOptimizer", {}),
  "adagrad": ("AdagradOptimizer", {"initial_accumulator_value": 1e-6}),
  "adam": ("AdamOptimizer", {}),
}
CHUNK = 8192  # number of classes whose logits are held at a time, in evaluation


class TensorFlowSampled:
  """`tf.nn.sampled_softmax_loss` with its own draw, and a TensorFlow optimiser.

  Negatives are log-uniform by rank, and are shared by the batch. An example with
  several labels counts as one example for each label, with a share of the weight. Its
  other labels may therefore be among its negatives. The gradients of class rows and
  input rows are sparse. The norm that is clipped counts a row once for each example
  that uses it. Evaluation uses the exact softmax, over the classes in chunks.

  Args:
    given: what the benchmark gives.
    num_samples: number of negatives of a batch.
    optimizer: 'sgd', 'adagrad' or 'adam'.
    unique: whether the negatives of a batch are all different, which is TensorFlow's
      default; otherwise they are independent draws.

  Raises:
    ImportError: TensorFlow is not installed.
    UserError: the task has another network, or there is no such optimiser.
  """

  packages = ("tensorflow",)

  def __init__(
    self,
    given: Given,
    num_samples: int = 512,
    optimizer: str = "sgd",
    unique: bool = True,
  ):
    name, fields = chosen("optimizer", optimizer, OPTIMIZERS)
    tf: Any = importlib.import_module("tensorflow")
    tf.random.set_seed(given.seed)
    self._tf, self._num, self._unique = tf, num_samples, unique
    self._clip = given.train.clip_norm
    counts, a = given.data.counts, given.model.init_scale
    self._ranks, self._V = Ranks(counts.unigram_V), counts.num_classes
    self._network = network(tf, given)
    shape = (self._V, self._network.width)
    self._w = tf.Variable(tf.random.uniform(shape, -a, a))
    self._b = tf.Variable(tf.zeros(self._V))
    self._variables = [*self._network.variables, self._w, self._b]
    rate = given.model.dropout
    self._drop: Drop = (lambda x: tf.nn.dropout(x, rate)) if rate else tf.identity
    self._lr = tf.Variable(0.0)
    self._optimizer = getattr(tf.compat.v1.train, name)(self._lr, **fields)
    self._state: Any = None
    self._num_steps = 0
    # The number of labels in a batch varies.
    self._step = tf.function(self._train_step, reduce_retracing=True)
    self._nll = tf.function(self._nll_step)
    self._best = tf.function(self._best_step)

  def train(self, steps: Iterable[Step]) -> None:
    """Takes all steps; raises `Diverged` after them if a loss was not finite."""
    total: Any = 0.0
    for batch, lr in steps:
      self._lr.assign(lr)
      pairs = map(self._tf.constant, self._ranks.pairs(batch.y))
      state = self._begin(batch, self._state)
      self._state, loss = self._step(self._network.inputs(batch), state, *pairs)
      total += loss
      self._num_steps += 1
    self._b.numpy()  # waits for the last step
    if not math.isfinite(total):
      raise Diverged("the loss is not finite", self._num_steps)

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    state: Any = None
    for batch in batches:
      inputs, state = self._network.inputs(batch), self._begin(batch, state)
      if k:
        best_NK, state = self._best(inputs, state, k)
        yield self._ranks.classes(best_NK.numpy())
      else:
        rank_N = self._ranks.of(np.asarray(batch.y.ids_NP)[:, 0])
        nll_N, state = self._nll(inputs, state, rank_N)
        yield nll_N.numpy()

  def device(self) -> Device | None:
    found = self._tf.config.list_physical_devices("GPU")
    if not found:
      return None
    details = self._tf.config.experimental.get_device_details(found[0])
    peak = self._tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return Device(details["device_name"], peak / 2**20)

  def _begin(self, batch: Batch, state: Any) -> Any:
    """The recurrent state for a batch."""
    return self._network.begin(batch) if batch.start else state

  def _train_step(
    self, inputs: Any, state: Any, example_R: Any, rank_R: Any, share_R: Any
  ) -> tuple[Any, Any]:
    """The next state, and the loss."""
    tf = self._tf
    with tf.GradientTape() as tape:
      h_ND, state = self._network(inputs, state, self._drop)
      drawn = tf.random.log_uniform_candidate_sampler(
        rank_R[:, None], 1, self._num, self._unique, self._V
      )
      loss_R = tf.nn.sampled_softmax_loss(
        *(self._w, self._b, rank_R[:, None], tf.gather(h_ND, example_R)),
        *(self._num, self._V),
        sampled_values=drawn,
      )
      loss = tf.reduce_sum(share_R * loss_R)
    gradients = tape.gradient(loss, self._variables)
    if self._clip:
      gradients, _ = tf.clip_by_global_norm(gradients, self._clip)
    self._optimizer.apply_gradients(zip(gradients, self._variables, strict=True))
    return state, loss

  def _logits(self, h_ND: Any) -> Iterator[Any]:
    """The logits of each chunk of classes, f32[N, C]."""
    for start in range(0, self._V, CHUNK):
      w, b = self._w[start : start + CHUNK], self._b[start : start + CHUNK]
      yield self._tf.matmul(h_ND, w, transpose_b=True) + b

  def _nll_step(self, inputs: Any, state: Any, rank_N: Any) -> tuple[Any, Any]:
    """-log p of classes, f32[N], and the next state."""
    tf = self._tf
    h_ND, state = self._network(inputs, state, tf.identity)
    log_z = [tf.reduce_logsumexp(o_NC, axis=1) for o_NC in self._logits(h_ND)]
    w_ND, b_N = tf.gather(self._w, rank_N), tf.gather(self._b, rank_N)
    logit_N = tf.reduce_sum(h_ND * w_ND, axis=1) + b_N
    return tf.reduce_logsumexp(tf.stack(log_z), axis=0) - logit_N, state

  def _best_step(self, inputs: Any, state: Any, k: int) -> tuple[Any, Any]:
    """Ranks of the k classes of largest logit, best first, and the next state."""
    tf = self._tf
    h_ND, state = self._network(inputs, state, tf.identity)
    values, ranks = [], []
    for chunk, o_NC in enumerate(self._logits(h_ND)):
      found = tf.math.top_k(o_NC, min(k, o_NC.shape[1]))
      values.append(found.values)
      ranks.append(found.indices + chunk * CHUNK)
    _, place_NK = tf.math.top_k(tf.concat(values, axis=1), k)
    return tf.gather(tf.concat(ranks, axis=1), place_NK, batch_dims=1), state
