"""Benchmarks of what reads all classes against PyTorch and TensorFlow, where they are
installed.

As in `bench_peers.py`: same arguments, answers compared first, the peer above the `/`.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_peers import module, rows_and_batch, timed
from measure import Case, check_close

from largevocab.ops.full_softmax import softmax_loss
from largevocab.ops.softmax_plan import plan
from largevocab.ops.top_k import top_k

BUDGET_MIB = 64  # of temporary memory, for our chunks


class TorchSoftmax:
  """Gradients of a loss of activations and table, in some precision."""

  def __init__(self, torch: Any, loss: Callable[..., Any], dtype: str, w_VD, h_ND):
    tensor = lambda x: torch.tensor(x).to(getattr(torch, dtype)).requires_grad_()
    self._loss, self._h, self._w = loss, tensor(h_ND), tensor(w_VD)

  def __call__(self) -> None:
    self._h.grad = self._w.grad = None
    self._loss(self._h, self._w).backward()

  def results(self) -> tuple[np.ndarray, ...]:
    """The gradients of the activations and of the table."""
    return tuple(x.grad.float().numpy() for x in (self._h, self._w))


class TensorFlowSoftmax:
  """`tf.nn.sparse_softmax_cross_entropy_with_logits` of all logits."""

  def __init__(self, tf: Any, w_VD, h_ND, ids_N):
    self._args = tf.constant(h_ND), tf.constant(w_VD), tf.constant(ids_N)
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

  def results(self) -> tuple[np.ndarray, ...]:
    return tuple(x.numpy() for x in self._gradients)


def softmax_peers(w_VD, h_ND, ids_N) -> Iterator[tuple[str, str, Any, float]]:
  """Of each peer that is there: name, precision, itself, and the goal."""
  torch, tf = module("torch"), module("tensorflow")
  if torch:
    functional, ids = torch.nn.functional, torch.tensor(ids_N).long()
    plain = lambda h, w: functional.cross_entropy((h @ w.T).float(), ids)
    peer = functools.partial(TorchSoftmax, torch, w_VD=w_VD, h_ND=h_ND)
    for dtype, goal in (("float32", 1.7), ("bfloat16", 1.0)):
      yield "torch cross_entropy", dtype, peer(plain, dtype), goal
    # Where D is larger it takes minutes a call.
    if hasattr(functional, "linear_cross_entropy") and h_ND.shape[1] <= 200:
      chunks = lambda h, w: functional.linear_cross_entropy(
        h, w, ids, options=torch.nn.LinearCrossEntropyOptions()
      )
      name = "torch linear_cross_entropy"
      yield name, "float32", peer(chunks, "float32"), 8.0
  if tf:
    yield "tensorflow", "float32", TensorFlowSoftmax(tf, w_VD, h_ND, ids_N), 0.95


def peers_softmax(
  V: int = 100_000, N: int = 512, Ds: Sequence[int] = (200, 512)
) -> Iterator[Case]:
  """Loss and both gradients of the exact softmax.

  Goals: torch in float32 1.7 times as slow, in bfloat16 as slow, its
  `linear_cross_entropy` 8 times; TensorFlow 0.95 times.
  """
  for D in Ds:
    w_VD, h_ND, ids_N = rows_and_batch(V, D, N)
    args = jnp.asarray(h_ND), jnp.asarray(w_VD), jnp.asarray(ids_N)[:, None]
    args = *args, jnp.full((N, 1), 1 / N)
    loss = functools.partial(softmax_loss, how=plan(N, V, D, BUDGET_MIB * 2**20))
    program = jax.jit(jax.value_and_grad(loss, (0, 1)))
    ours = functools.partial(program, *args)
    for name, dtype, theirs, goal in softmax_peers(w_VD, h_ND, ids_N):
      theirs()
      tolerance = 1e-3 if dtype == "float32" else 0.1
      error = check_close(ours()[1], theirs.results(), tolerance)
      what = f"exact softmax: {name}, {dtype} / chunks"
      yield timed(what, theirs, ours, goal, V=V, D=D, N=N, error=error)


def peers_top_k(
  Vs: Sequence[int] = (100_000, 800_000), D: int = 200, N: int = 512, k: int = 5
) -> Iterator[Case]:
  """The best five classes. Goal: 1.3 times as fast as torch's product and topk."""
  torch = module("torch")
  if not torch:
    return
  for V in Vs:
    w_VD, h_ND, _ = rows_and_batch(V, D, N)
    h, w = torch.tensor(h_ND), torch.tensor(w_VD)
    theirs = lambda: torch.topk(h @ w.T, k)  # noqa: B023
    best = jax.jit(functools.partial(top_k, k=k))
    ours = functools.partial(best, jnp.asarray(h_ND), jnp.asarray(w_VD))
    error = check_close(ours()[1], theirs().values.numpy(), 1e-4)
    what = f"top {k}: torch / streamed"
    yield timed(what, theirs, ours, 1.3, V=V, D=D, N=N, error=error)


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "peers_softmax": peers_softmax,
  "peers_top_k": peers_top_k,
}
