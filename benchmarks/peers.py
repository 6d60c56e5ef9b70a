"""Programs of peers, each for a process of its own that loads only one peer.

  python -m benchmarks.peers PROGRAM DIRECTORY

PyTorch, TensorFlow and JAX each have their own compiler and threads, and a process with
two of them may crash. `peer_process.py` starts this script, which reads arrays from
DIRECTORY/given.npz and settings from settings.json, and then executes commands from its
standard input, one per line. Results are written to answers.npz.
"""

import functools
import importlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

TINY = 1e-16  # Adam's eps: libraries add it in different places


def torch_there() -> Any:
  """PyTorch, with its arrays on the GPU if there is one."""
  torch: Any = importlib.import_module("torch")
  if torch.cuda.is_available():
    torch.set_default_device("cuda")
  return torch


def tensorflow_there() -> Any:
  """TensorFlow, with products that are not rounded to TF32 on a GPU, as for others."""
  tf: Any = importlib.import_module("tensorflow")
  tf.config.experimental.enable_tensor_float_32_execution(False)
  return tf


def wait_for(torch: Any) -> None:
  """Waits until the GPU, if any, has finished its work."""
  if torch.cuda.is_available():
    torch.cuda.synchronize()


def in_numpy(torch: Any, *arrays: Any) -> tuple[np.ndarray, ...]:
  """Values of tensors, in float32."""
  return tuple(array.detach().to("cpu", torch.float32).numpy() for array in arrays)


class TorchSampled:
  """Sampled softmax over `torch.nn.Embedding(sparse=True)`."""

  def __init__(self, given: dict[str, np.ndarray], optimizer: str, lr: float):
    torch = torch_there()
    w_VD = given["w_VD"]
    self._torch, self._h = torch, torch.tensor(given["h_ND"]).requires_grad_()
    self.table = torch.nn.Embedding(*w_VD.shape, sparse=True)
    with torch.no_grad():
      self.table.weight.copy_(torch.tensor(w_VD))
    self._ids = torch.tensor(given["ids_N"]).long()
    self._drawn = torch.tensor(given["drawn_M"]).long()
    self._law_ids = torch.tensor(given["log_expected_N"])
    self._law_drawn = torch.tensor(given["log_expected_M"])
    make = {
      "sgd": torch.optim.SGD,
      "adam": functools.partial(torch.optim.SparseAdam, eps=TINY),
    }[optimizer]
    self._optimizer = make(self.table.parameters(), lr=lr)

  def __call__(self) -> None:
    self._optimizer.zero_grad()
    self._h.grad = None
    rows = self.table(self._torch.cat([self._ids, self._drawn]))
    true, drawn = rows[: len(self._ids)], rows[len(self._ids) :]
    o_true = (self._h * true).sum(1) - self._law_ids
    o_drawn = self._h @ drawn.T - self._law_drawn
    is_hit = self._ids[:, None] == self._drawn[None]
    o_drawn = o_drawn.masked_fill(is_hit, -1e30)
    logits = self._torch.cat([o_true[:, None], o_drawn], 1)
    (self._torch.logsumexp(logits, 1) - o_true).mean().backward()
    self._optimizer.step()
    wait_for(self._torch)

  def results(self) -> tuple[np.ndarray, ...]:
    """The rows, and the gradient of the activations in the last step."""
    return in_numpy(self._torch, self.table.weight, self._h.grad)


class TensorFlowSampled:
  """`tf.nn.sampled_softmax_loss`, or `nce_loss`, with the same negatives."""

  def __init__(
    self, given: dict[str, np.ndarray], optimizer: str, lr: float, loss: str
  ):
    tf = tensorflow_there()
    V, M = len(given["w_VD"]), len(given["drawn_M"])
    w, h = tf.Variable(given["w_VD"]), tf.constant(given["h_ND"])
    labels = tf.constant(given["ids_N"][:, None], tf.int64)
    zeros = tf.zeros(V)
    values = (
      tf.constant(given["drawn_M"], tf.int64),
      tf.constant(np.exp(given["log_expected_N"])[:, None]),
      tf.constant(np.exp(given["log_expected_M"])),
    )
    make = {
      "sgd": tf.keras.optimizers.SGD,
      "adam": functools.partial(tf.keras.optimizers.Adam, epsilon=TINY),
    }[optimizer]
    how = make(lr)
    how.build([w])
    losses = getattr(tf.nn, loss)

    @tf.function
    def step():
      with tf.GradientTape() as tape:
        tape.watch(h)
        loss = tf.reduce_mean(losses(w, zeros, labels, h, M, V, sampled_values=values))
      dw, dh = tape.gradient(loss, [w, h])
      how.apply_gradients([(dw, w)])
      return dh

    self._step, self._w = step, w

  def __call__(self) -> None:
    self._dh = self._step()
    self._dh[0, 0].numpy()  # waits for the device

  def results(self) -> tuple[np.ndarray, ...]:
    return self._w.numpy(), self._dh.numpy()


def torch_loss(torch: Any, name: str) -> Callable[[Any, Any, Any], Any]:
  """The mean cross-entropy of activations, a table and labels.

  Raises:
    ImportError: the package is not installed, or this torch lacks the loss.
  """
  functional = torch.nn.functional
  plain = lambda h, w, ids: functional.cross_entropy((h @ w.T).float(), ids)
  if name == "cross_entropy":
    return plain
  if name == "compiled cross_entropy":
    return torch.compile(plain)
  if name == "Liger":
    liger = importlib.import_module("liger_kernel.transformers")
    fused = liger.LigerFusedLinearCrossEntropyLoss()
    return lambda h, w, ids: fused(w, h, ids)
  if name == "cut cross-entropy":
    return importlib.import_module("cut_cross_entropy").linear_cross_entropy
  if not hasattr(functional, "linear_cross_entropy"):
    raise ImportError(f"torch {torch.__version__} has no linear_cross_entropy")
  options = torch.nn.LinearCrossEntropyOptions()
  return functools.partial(functional.linear_cross_entropy, options=options)


class TorchSoftmax:
  """Gradients of a `torch_loss` in a given dtype."""

  def __init__(self, given: dict[str, np.ndarray], loss: str, dtype: str):
    torch = torch_there()
    tensor = lambda x: torch.tensor(x).to(getattr(torch, dtype)).requires_grad_()
    self._torch, self._loss = torch, torch_loss(torch, loss)
    self._h, self._w = tensor(given["h_ND"]), tensor(given["w_VD"])
    self._ids = torch.tensor(given["ids_N"]).long()

  def __call__(self) -> None:
    self._h.grad = self._w.grad = None
    self._loss(self._h, self._w, self._ids).backward()
    wait_for(self._torch)

  def results(self) -> tuple[np.ndarray, ...]:
    """The gradients of the activations and of the table."""
    return in_numpy(self._torch, self._h.grad, self._w.grad)


class TensorFlowSoftmax:
  """`tf.nn.sparse_softmax_cross_entropy_with_logits` of all logits."""

  def __init__(self, given: dict[str, np.ndarray]):
    tf = tensorflow_there()
    self._args = tuple(tf.constant(given[key]) for key in ("h_ND", "w_VD", "ids_N"))
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    @tf.function
    def step(h, w, ids):
      with tf.GradientTape() as tape:
        tape.watch((h, w))
        loss = tf.reduce_mean(cross_entropy(ids, tf.matmul(h, w, transpose_b=True)))
      return loss, tape.gradient(loss, (h, w))

    self._step = step

  def __call__(self) -> None:
    _, self._gradients = self._step(*self._args)
    self._gradients[1][0, 0].numpy()  # waits for the device

  def results(self) -> tuple[np.ndarray, ...]:
    return tuple(x.numpy() for x in self._gradients)


class TorchAdaptive:
  """A step of `torch.nn.AdaptiveLogSoftmaxWithLoss` with SGD."""

  def __init__(
    self,
    given: dict[str, np.ndarray],
    num_classes: int,
    cutoffs: list[int],
    lr: float,
  ):
    torch = torch_there()
    dim = given["h_ND"].shape[1]
    head = torch.nn.AdaptiveLogSoftmaxWithLoss(dim, num_classes, cutoffs)
    with torch.no_grad():
      head.head.weight.copy_(torch.tensor(given["head"]))
      for i, (down, rows) in enumerate(head.tail):
        down.weight.copy_(torch.tensor(given[f"down_{i}"]))
        rows.weight.copy_(torch.tensor(given[f"tail_{i}"]))
    self._h = torch.tensor(given["h_ND"]).requires_grad_()
    self._ids = torch.tensor(given["ids_N"]).long()
    self._torch, self._head = torch, head
    self._sgd = torch.optim.SGD(head.parameters(), lr=lr)

  def __call__(self) -> None:
    self._sgd.zero_grad()
    self._h.grad = None
    self._head(self._h, self._ids).loss.backward()
    self._sgd.step()
    wait_for(self._torch)

  def results(self) -> tuple[np.ndarray, ...]:
    """Rows of the short-list and of each tail."""
    tails = (tail[1].weight for tail in self._head.tail)
    return in_numpy(self._torch, self._head.head.weight, *tails)


class TorchTopK:
  """A matrix product and `torch.topk`."""

  def __init__(self, given: dict[str, np.ndarray], k: int):
    torch = torch_there()
    self._torch, self._k = torch, k
    self._h, self._w = torch.tensor(given["h_ND"]), torch.tensor(given["w_VD"])

  def __call__(self) -> None:
    self._best = self._torch.topk(self._h @ self._w.T, self._k)
    wait_for(self._torch)

  def results(self) -> tuple[np.ndarray, ...]:
    return in_numpy(self._torch, self._best.values)


class NumpyProduct:
  """A product of activations and rows, to test the process without a peer."""

  def __init__(self, given: dict[str, np.ndarray]):
    self._args = given["h_ND"], given["w_VD"].T

  def __call__(self) -> None:
    self._o_NV = self._args[0] @ self._args[1]

  def results(self) -> tuple[np.ndarray, ...]:
    return (self._o_NV,)


PROGRAMS: dict[str, Callable[..., Any]] = {
  "torch sampled": TorchSampled,
  "tensorflow sampled": TensorFlowSampled,
  "torch softmax": TorchSoftmax,
  "tensorflow softmax": TensorFlowSoftmax,
  "torch adaptive": TorchAdaptive,
  "torch top_k": TorchTopK,
  "numpy product": NumpyProduct,
}


def turn(program: Callable[[], None], seconds: float) -> list[float]:
  """Like `measure.turn`, but without JAX."""
  program()
  wall, cpu, calls = time.perf_counter(), time.process_time(), 0
  while not calls or time.perf_counter() < wall + seconds:
    program()
    calls += 1
  took = time.perf_counter() - wall, time.process_time() - cpu
  return [seconds / calls for seconds in took]


def main() -> None:
  name, directory = sys.argv[1], pathlib.Path(sys.argv[2])
  replies = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)  # output of peers must not mix with replies

  def reply(content: Any) -> None:
    replies.write(json.dumps(content) + "\n")
    replies.flush()

  settings = json.loads((directory / "settings.json").read_text())
  with np.load(directory / "given.npz") as given:
    arrays = dict(given)
  try:
    program = PROGRAMS[name](arrays, **settings)
  except ImportError as error:
    reply({"missing": str(error)})
    return
  reply({})
  for line in sys.stdin:
    what, *args = line.split()
    if what == "call":
      program()
      reply({})
    elif what == "turn":
      reply({"seconds": turn(program, float(args[0]))})
    elif what == "answers":
      np.savez(directory / "answers.npz", *program.results())
      reply({})


if __name__ == "__main__":
  main()
