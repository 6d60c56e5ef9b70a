"""Benchmarks of the exact softmax and of top-k against PyTorch and TensorFlow.

As in `against_peers.py`, both sides have the same arguments, results are compared
first, and the peer is left of the `/`.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.against_peers import rows_and_batch, timed
from benchmarks.case import Case, check_close
from benchmarks.peer_process import Missing, PeerProcess, is_there
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.plan import plan
from largevocab.ops.softmax.top_k import top_k

BUDGET_MIB = 64  # temporary memory for our chunks


class Peer(NamedTuple):
  """A softmax of a peer.

  Attributes:
    name: name of the softmax; the first word is the package.
    dtype: dtype of the operands.
    goal: least ratio of its time to ours; None: it is only measured.
    settings: settings of its program.
    on_gpu: whether it needs a GPU; ours then has the same dtype.
  """

  name: str
  dtype: str
  goal: float | None
  settings: dict[str, str]
  on_gpu: bool = False


def torch_peer(
  loss: str, dtype: str, goal: float | None = None, on_gpu: bool = False
) -> Peer:
  return Peer(f"torch {loss}", dtype, goal, {"loss": loss, "dtype": dtype}, on_gpu)


PEERS = [
  torch_peer("cross_entropy", "float32", 1.7),
  torch_peer("cross_entropy", "bfloat16", 1.0),
  torch_peer("linear_cross_entropy", "float32", 8.0),
  Peer("tensorflow", "float32", 0.95, {}),
  *(
    torch_peer(loss, "bfloat16", on_gpu=True)
    for loss in ("compiled cross_entropy", "Liger", "cut cross-entropy")
  ),
]
WIDEST = {"torch linear_cross_entropy": 200}  # D; above it, a call takes minutes


def softmax_peers(w_VD, h_ND, ids_N) -> Iterator[tuple[Peer, PeerProcess]]:
  """Each installed peer in turn, in its own process."""
  packages = dict.fromkeys(peer.name.partition(" ")[0] for peer in PEERS)
  there = {package for package in packages if is_there(package)}
  has_gpu = jax.default_backend() == "gpu"
  given = {"w_VD": w_VD, "h_ND": h_ND, "ids_N": ids_N}
  for peer in PEERS:
    package = peer.name.partition(" ")[0]
    if package not in there or h_ND.shape[1] > WIDEST.get(peer.name, h_ND.shape[1]):
      continue
    if peer.on_gpu and not has_gpu:
      continue
    try:
      with PeerProcess(f"{package} softmax", given, **peer.settings) as process:
        yield peer, process
    except Missing as error:
      print(error, file=sys.stderr)


def peers_softmax(
  V: int = 100_000, N: int = 512, Ds: Sequence[int] = (200, 512)
) -> Iterator[Case]:
  """Loss and both gradients of the exact softmax.

  Goals for the peer's time over ours: PyTorch 1.7 in float32, 1.0 in bfloat16, and 8
  with `linear_cross_entropy`; TensorFlow 0.95. On a GPU, PyTorch's compiled
  cross-entropy, Liger's kernels and cut cross-entropy are measured, too, if installed.
  """
  for D in Ds:
    w_VD, h_ND, ids_N = rows_and_batch(V, D, N)
    labels = jnp.asarray(ids_N)[:, None], jnp.full((N, 1), 1 / N)
    loss = functools.partial(softmax_loss, how=plan(N, V, D, BUDGET_MIB * 2**20))
    program = jax.jit(jax.value_and_grad(loss, (0, 1)))
    for peer, theirs in softmax_peers(w_VD, h_ND, ids_N):
      dtype = peer.dtype if peer.on_gpu else "float32"
      tables = jnp.asarray(h_ND, dtype), jnp.asarray(w_VD, dtype)
      ours = functools.partial(program, *tables, *labels)
      theirs()
      tolerance = 1e-3 if peer.dtype == "float32" else 0.1
      error = check_close(ours()[1], theirs.results(), tolerance)
      what = f"exact softmax: {peer.name}, {peer.dtype} / chunks"
      yield timed(what, theirs, ours, peer.goal, V=V, D=D, N=N, error=error)


def peers_top_k(
  Vs: Sequence[int] = (100_000, 800_000), D: int = 200, N: int = 512, k: int = 5
) -> Iterator[Case]:
  """The k best classes. Goal: 1.3 times as fast as PyTorch's product and `topk`."""
  if not is_there("torch"):
    return
  for V in Vs:
    w_VD, h_ND, _ = rows_and_batch(V, D, N)
    best = jax.jit(functools.partial(top_k, k=k))
    ours = functools.partial(best, jnp.asarray(h_ND), jnp.asarray(w_VD))
    what = f"top {k}: torch / streamed"
    with PeerProcess("torch top_k", {"h_ND": h_ND, "w_VD": w_VD}, k=k) as theirs:
      theirs()
      error = check_close(ours()[1], theirs.results()[0], 1e-4)
      yield timed(what, theirs, ours, 1.3, V=V, D=D, N=N, error=error)


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "peers_softmax": peers_softmax,
  "peers_top_k": peers_top_k,
}
