"""Benchmarks of sampled steps against PyTorch and TensorFlow, if installed.

Each peer runs in its own process (`peers.py`), and the two processes take turns. Both
sides have the same rows, activations, labels and negatives. Results are compared before
timing. In names of cases, the peer is left of the `/`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case
from benchmarks.peer_process import PeerProcess, is_there
from benchmarks.peers import TINY
from benchmarks.zipf import zipf_ids
from largevocab import single_targets
from largevocab.heads import Sampled
from largevocab.labels import Counts
from largevocab.losses import NCE, SampledSoftmax
from largevocab.rows import SGD, Adam, RowOptimizer
from largevocab.samplers.base import Draw
from largevocab.tools.reports.measure import Stepper, compare, row_step

M = 1000  # negatives
SECONDS = 8.0  # per comparison
SIZES = ((100_000, 512), (800_000, 200))  # V, D
OPTIMIZERS: dict[str, RowOptimizer] = {"sgd": SGD(), "adam": Adam(eps=TINY)}
# Adam changes every number of a row by its learning rate. With larger rates, logits
# soon saturate, and PyTorch is slower with exponentials that underflow.
RATES = {"sgd": 0.1, "adam": 1e-5}
# Every step has the same batch: with 0.1, NCE has logits of 27 after 120 steps, which
# keep growing.
NCE_RATE = 0.01


def rows_and_batch(V: int, D: int, N: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """w f32[V, D], h f32[N, D], ids i32[N]."""
  rng = np.random.default_rng(0)
  w_VD = rng.uniform(-0.05, 0.05, (V, D)).astype(np.float32)
  h_ND = rng.standard_normal((N, D)).astype(np.float32)
  return w_VD, h_ND, np.asarray(zipf_ids(N, V))


@dataclass(frozen=True)
class Given:
  """A sampler with a single, log-uniform draw, which peers receive as well."""

  def law(self, ids: Any, V: int) -> Any:
    """Log expected counts of classes."""
    ranks = ids.astype(jnp.float32)
    return jnp.log(M * jnp.log1p(1 / (ranks + 1)) / np.log(V + 1))

  def init(self, counts, w_VD, m):
    return zipf_ids(m, len(w_VD), seed=1)

  def sample(self, stats, w_VD, key, h_ND, y):
    return Draw(stats, self.law(stats, len(w_VD)), jnp.ones(stats.shape, bool))

  def log_expected(self, stats, w_VD, h_ND, y, ids):
    return self.law(ids, len(w_VD))

  def update(self, stats, w_VD, ids_R, old_RD, new_RD):
    return stats

  def refresh(self, stats, w_VD, key):
    return stats


# Packages with a sampled step in `peers.PROGRAMS`, and their own settings.
PEERS: dict[str, dict[str, str]] = {
  "torch": {},
  "tensorflow": {"loss": "sampled_softmax_loss"},
}


def sampled_peer(
  package: str, w_VD, h_ND, ids_N, optimizer: str, lr: float, **settings: str
) -> PeerProcess:
  """A peer's sampled step, in its own process."""
  V, sampler = len(w_VD), Given()
  drawn_M = sampler.init(None, w_VD, M)
  given: dict[str, Any] = {
    **{"w_VD": w_VD, "h_ND": h_ND, "ids_N": ids_N, "drawn_M": drawn_M},
    "log_expected_N": sampler.law(jnp.asarray(ids_N), V),
    "log_expected_M": sampler.law(drawn_M, V),
  }
  return PeerProcess(
    f"{package} sampled", given, optimizer=optimizer, lr=lr, **settings
  )


def mean_error(got: Any, want: Any) -> float:
  """Mean absolute difference over mean absolute value.

  The largest difference is no criterion, because Adam's first step is the sign of the
  gradient, even of rounding errors.

  Raises:
    AssertionError: the error is above 1 %.
  """
  error = float(np.abs(got - want).mean() / np.abs(want).mean())
  assert error <= 0.01, f"the answers differ by {error}"
  return error


def once(ids_N: np.ndarray, V: int) -> np.ndarray:
  """Classes that occur exactly once among labels and negatives."""
  drawn_M = Given().init(None, range(V), M)
  ids, counts = np.unique(np.concatenate([ids_N, drawn_M]), return_counts=True)
  return ids[counts == 1]


def sampled(optimizer: str) -> Sampled:
  """Our sampled softmax."""
  return Sampled(
    bias=False,
    num_samples=M,
    sampler=Given(),
    loss=SampledSoftmax(correct_positive=True),
    optimizer=OPTIMIZERS[optimizer],
  )


def state_of(head: Sampled, w_VD: np.ndarray) -> Any:
  """The head's state with these rows."""
  table = head.optimizer.init(jnp.asarray(w_VD))
  return head.init_state(table, Counts(np.ones(len(w_VD), int)))


def batch_of(h_ND: np.ndarray, ids_N: np.ndarray) -> tuple[Any, ...]:
  """Arguments of our step, without the state."""
  return jnp.asarray(h_ND), single_targets(ids_N), jax.random.key(0)


def our_step(head: Sampled, lr: float, w_VD, h_ND, ids_N) -> Stepper:
  """Our step (forward, backward, update), from these rows."""
  return Stepper(row_step(head, lr), state_of(head, w_VD), *batch_of(h_ND, ids_N))


def check_first_step(
  theirs: Any, ours: Stepper, w_VD: np.ndarray, compared: Any = slice(None)
) -> float:
  """The error between the changes of rows `compared`, after a step from w_VD.

  Raises:
    AssertionError: the changes, or the gradients of the activations, differ.
  """
  theirs(), ours()
  rows_VD, dh_ND = theirs.results()
  mean_error(ours.output, dh_ND)
  change = lambda now_VD: np.asarray(now_VD)[compared] - w_VD[compared]
  return mean_error(change(ours.state.table.w_VD), change(rows_VD))


def timed(name: str, theirs: Any, ours: Any, goal: float | None, **sizes: Any) -> Case:
  """Times theirs / ours; the name of the case includes V, D and N."""
  at = f"V={sizes['V']:,} D={sizes['D']} N={sizes['N']}"
  figures = compare(theirs, ours, seconds=SECONDS, min_turns=3)
  bound = {} if goal is None else {"at_least": goal}
  return Case(f"{name}, {at}", sizes, {**figures, **bound})


def peers_sampled(
  sizes: Sequence[tuple[int, int]] = SIZES, N: int = 512
) -> Iterator[Case]:
  """A step of a sampled softmax with 1,000 shared negatives: forward, backward, update.

  Goals: PyTorch takes twice as long. TensorFlow takes 1.3 times as long with SGD; with
  Adam, which updates all rows, 50 times at V = 800 k and 10 times at V = 100 k.
  """
  for peer, settings in PEERS.items():
    if not is_there(peer):
      continue
    for V, D in sizes:
      batch = rows_and_batch(V, D, N)
      for name, lr in RATES.items():
        # Keras' Adam squares gradients before it sums those of duplicate ids.
        keras_adam = peer == "tensorflow" and name == "adam"
        compared = once(batch[-1], V) if keras_adam else slice(None)
        ours = our_step(sampled(name), lr, *batch)
        goal = 2.0 if peer == "torch" else 1.3
        if keras_adam:
          goal = 50.0 if V >= 800_000 else 10.0
        what = f"sampled step, {name}: {peer} / rows"
        with sampled_peer(peer, *batch, name, lr, **settings) as theirs:
          error = check_first_step(theirs, ours, batch[0], compared)
          yield timed(what, theirs, ours, goal, V=V, D=D, N=N, M=M, error=error)
        del ours


def peers_nce(sizes: Sequence[tuple[int, int]] = SIZES, N: int = 512) -> Iterator[Case]:
  """A step of noise-contrastive estimation with the same negatives and SGD.

  `tf.nn.nce_loss` equals our `NCE` with z = 1, without any factor: for each example,
  the sum of 1 + M logistic losses of score - log(expected count). Accidental hits are
  kept, which is the default of TensorFlow.

  Goal: TensorFlow takes 1.3 times as long.
  """
  if not is_there("tensorflow"):
    return
  head = Sampled(
    loss=NCE(), bias=False, num_samples=M, sampler=Given(), optimizer=SGD()
  )
  for V, D in sizes:
    batch = rows_and_batch(V, D, N)
    ours = our_step(head, NCE_RATE, *batch)
    name = "nce step, sgd: tensorflow / rows"
    settings = {"loss": "nce_loss"}
    with sampled_peer("tensorflow", *batch, "sgd", NCE_RATE, **settings) as theirs:
      error = check_first_step(theirs, ours, batch[0])
      yield timed(name, theirs, ours, 1.3, V=V, D=D, N=N, M=M, error=error)
    del ours


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "peers_sampled": peers_sampled,
  "peers_nce": peers_nce,
}
