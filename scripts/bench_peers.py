"""Benchmarks against PyTorch and TensorFlow, where they are installed.

Both sides have the same rows, activations, labels and negatives; answers are compared
before anything is timed. What is above the `/` in a name is the peer.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_rows import Stepper, zipf_ids
from measure import Case, check_close, compare

from largevocab import single_targets
from largevocab.heads import Sampled
from largevocab.labels import Counts
from largevocab.ops.full_softmax import softmax_loss
from largevocab.ops.softmax_plan import plan
from largevocab.ops.top_k import top_k
from largevocab.rows import SGD, Adam, RowOptimizer
from largevocab.samplers.base import Draw

M = 1000  # negatives
# Adam moves every number of a row by its rate: from larger ones logits soon saturate,
# and exponentials that underflow take torch longer.
RATES = {"sgd": 0.1, "adam": 1e-5}
TINY = 1e-16  # Adam's eps: libraries add it in different places


def module(name: str) -> Any:
  """A peer, or None if it is not installed."""
  try:
    return importlib.import_module(name)
  except ImportError:
    print(f"{name} is missing: pip install {name}", file=sys.stderr)
    return None


def rows_and_batch(V: int, D: int, N: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """w f32[V, D], h f32[N, D], ids i32[N]."""
  rng = np.random.default_rng(0)
  w_VD = rng.uniform(-0.05, 0.05, (V, D)).astype(np.float32)
  h_ND = rng.standard_normal((N, D)).astype(np.float32)
  return w_VD, h_ND, np.asarray(zipf_ids(N, V))


@dataclass(frozen=True)
class Given:
  """A sampler whose draw is always the same, log-uniform one, as peers are given it."""

  def law(self, ids: Any, V: int) -> Any:
    """Log of the expected number of times that classes occur."""
    ranks = ids.astype(jnp.float32)
    return jnp.log(M * jnp.log1p(1 / (ranks + 1)) / np.log(V + 1))

  def init(self, counts, w_VD, m):
    return zipf_ids(m, len(w_VD), seed=1)

  def sample(self, stats, w_VD, key, h_ND, y, m):
    return Draw(stats, self.law(stats, len(w_VD)), jnp.ones(m, bool))

  def log_expected(self, stats, w_VD, h_ND, y, ids, m):
    return self.law(ids, len(w_VD))

  def update(self, stats, w_VD, ids_R, old_RD, new_RD):
    return stats

  def refresh(self, stats, w_VD, key):
    return stats


class TorchSampled:
  """Sampled softmax over `torch.nn.Embedding(sparse=True)`."""

  def __init__(self, torch: Any, w_VD, h_ND, ids_N, optimizer: str):
    V, sampler = len(w_VD), Given()
    drawn_M = sampler.init(None, w_VD, M)
    tensor = lambda x: torch.tensor(np.array(x))
    self._torch, self._h = torch, tensor(h_ND).requires_grad_()
    self.table = torch.nn.Embedding(V, w_VD.shape[1], sparse=True)
    with torch.no_grad():
      self.table.weight.copy_(tensor(w_VD))
    self._ids, self._drawn = tensor(ids_N).long(), tensor(drawn_M).long()
    self._law_ids = tensor(sampler.law(jnp.asarray(ids_N), V))
    self._law_drawn = tensor(sampler.law(drawn_M, V))
    make = {
      "sgd": torch.optim.SGD,
      "adam": functools.partial(torch.optim.SparseAdam, eps=TINY),
    }[optimizer]
    self._optimizer = make(self.table.parameters(), lr=RATES[optimizer])

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

  def results(self) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and the gradient of the activations in the last step."""
    return self.table.weight.detach().numpy(), self._h.grad.numpy()


class TensorFlowSampled:
  """`tf.nn.sampled_softmax_loss` with the same negatives."""

  def __init__(self, tf: Any, w_VD, h_ND, ids_N, optimizer: str):
    V, sampler = len(w_VD), Given()
    drawn_M = sampler.init(None, w_VD, M)
    w, h = tf.Variable(w_VD), tf.constant(h_ND)
    labels = tf.constant(ids_N[:, None], tf.int64)
    zeros = tf.zeros(V)
    values = (
      tf.constant(np.asarray(drawn_M), tf.int64),
      tf.constant(np.exp(sampler.law(jnp.asarray(ids_N), V))[:, None]),
      tf.constant(np.exp(sampler.law(drawn_M, V))),
    )
    make = {
      "sgd": tf.keras.optimizers.SGD,
      "adam": functools.partial(tf.keras.optimizers.Adam, epsilon=TINY),
    }[optimizer]
    how = make(RATES[optimizer])
    how.build([w])

    @tf.function
    def step():
      with tf.GradientTape() as tape:
        tape.watch(h)
        loss = tf.nn.sampled_softmax_loss(
          w, zeros, labels, h, M, V, sampled_values=values
        )
        loss = tf.reduce_mean(loss)
      dw, dh = tape.gradient(loss, [w, h])
      how.apply_gradients([(dw, w)])
      return dh

    self._step, self._w = step, w

  def __call__(self) -> None:
    self._dh = self._step()

  def results(self) -> tuple[np.ndarray, np.ndarray]:
    return self._w.numpy(), self._dh.numpy()


PEERS = {"torch": TorchSampled, "tensorflow": TensorFlowSampled}


def mean_error(got: Any, want: Any, tolerance: float = 1e-2) -> float:
  """The mean difference over the mean size. Not the largest one: Adam's first step is
  the sign of the gradient, also where that is rounding only.

  Raises:
    AssertionError: it is above the tolerance: there is nothing to time.
  """
  error = float(np.abs(got - want).mean() / np.abs(want).mean())
  assert error <= tolerance, f"the answers differ by {error}"
  return error


def once(ids_N: np.ndarray, V: int) -> np.ndarray:
  """Classes that are true or drawn, and that only once."""
  drawn_M = Given().init(None, range(V), M)
  ids, counts = np.unique(np.concatenate([ids_N, drawn_M]), return_counts=True)
  return ids[counts == 1]


def state_of(head: Sampled, w_VD: np.ndarray) -> Any:
  """State with these rows."""
  table = head.optimizer.init(jnp.asarray(w_VD))
  return head.init_state(table, Counts(np.ones(len(w_VD), int)))


def peers_sampled(N: int = 512) -> Iterator[Case]:
  """A step of a sampled softmax with 1,000 shared negatives: forward, backward, update.

  Goals: torch twice as slow; TensorFlow 1.3 times, and 50 times with Adam at V = 800 k,
  where it updates all rows.
  """
  optimizers: dict[str, RowOptimizer] = {"sgd": SGD(), "adam": Adam(eps=TINY)}
  for peer, build in PEERS.items():
    package = module(peer)
    if not package:
      continue
    for V, D in ((100_000, 512), (800_000, 200)):
      w_VD, h_ND, ids_N = rows_and_batch(V, D, N)
      for name, optimizer in optimizers.items():
        head = Sampled(
          bias=False,
          num_samples=M,
          sampler=Given(),
          correct_positive=True,
          optimizer=optimizer,
        )
        state = state_of(head, w_VD)
        batch = jnp.asarray(h_ND), single_targets(ids_N), jax.random.key(0)

        def step(state, h_ND, y, key, head=head, lr=RATES[name]):
          out = head.backward(state, h_ND, y, key)
          return head.update(state, out.grads, lr, 1.0), out.dh_ND

        ours = Stepper(step, state, *batch)
        theirs = build(package, w_VD, h_ND, ids_N, name)
        theirs(), ours()
        rows_VD, dh_ND = theirs.results()
        mean_error(jax.jit(step)(state_of(head, w_VD), *batch)[1], dh_ND)
        # Keras squares before it adds up what several ids give the same row.
        compared = once(ids_N, V) if peer == "tensorflow" else slice(None)
        change = lambda now_VD: np.asarray(now_VD)[compared] - w_VD[compared]  # noqa: B023
        error = mean_error(change(ours.state.table.w_VD), change(rows_VD))
        goal = 2.0 if peer == "torch" else 1.3
        if peer == "tensorflow" and name == "adam":
          goal = {100_000: 10.0, 800_000: 50.0}[V]
        yield Case(
          f"sampled step, {name}: {peer} / rows, V={V:,} D={D} N={N}",
          {"V": V, "D": D, "N": N, "M": M, "error": error},
          {**compare(theirs, ours, seconds=5), "at_least": goal},
        )
        del ours, theirs, state


def peers_softmax(V: int = 100_000) -> Iterator[Case]:
  """Loss and both gradients of the exact softmax.

  Goals: torch in float32 1.7 times as slow, in bfloat16 as slow, its
  `linear_cross_entropy` 8 times.
  """
  torch = module("torch")
  if not torch:
    return
  functional = torch.nn.functional
  for N, D in ((512, 200), (512, 512)):
    w_VD, h_ND, ids_N = rows_and_batch(V, D, N)
    args = jnp.asarray(h_ND), jnp.asarray(w_VD), jnp.asarray(ids_N)[:, None]
    args = *args, jnp.full((N, 1), 1 / N)
    loss = functools.partial(softmax_loss, how=plan(N, V, D, 64 * 2**20))
    program = jax.jit(jax.value_and_grad(loss, (0, 1)))
    ours = functools.partial(program, *args)
    ids = torch.tensor(ids_N).long()
    plain = lambda h, w, ids=ids: functional.cross_entropy((h @ w.T).float(), ids)
    chunks = lambda h, w, ids=ids: functional.linear_cross_entropy(
      h, w, ids, options=torch.nn.LinearCrossEntropyOptions()
    )
    cases = [("float32", "cross_entropy", plain, 1.7)]
    cases += [("bfloat16", "cross_entropy", plain, 1.0)]
    if hasattr(functional, "linear_cross_entropy") and D == 200:  # else minutes a call
      cases += [("float32", "linear_cross_entropy", chunks, 8.0)]
    for dtype, name, function, goal in cases:
      h, w = (torch.tensor(x).to(getattr(torch, dtype)) for x in (h_ND, w_VD))
      h, w = h.requires_grad_(), w.requires_grad_()

      def theirs(h=h, w=w, function=function):
        h.grad = w.grad = None
        function(h, w).backward()

      theirs()
      _, got = ours()
      want = tuple(x.grad.float().numpy() for x in (h, w))
      error = check_close(got, want, 1e-3 if dtype == "float32" else 0.1)
      yield Case(
        f"exact softmax: torch {name}, {dtype} / chunks, V={V:,} D={D} N={N}",
        {"V": V, "D": D, "N": N, "error": error},
        {**compare(theirs, ours, seconds=8), "at_least": goal},
      )


def peers_top_k(D: int = 200, N: int = 512, k: int = 5) -> Iterator[Case]:
  """The best five classes. Goal: 1.3 times as fast as torch's product and topk."""
  torch = module("torch")
  if not torch:
    return
  for V in (100_000, 800_000):
    w_VD, h_ND, _ = rows_and_batch(V, D, N)
    h, w = torch.tensor(h_ND), torch.tensor(w_VD)
    theirs = lambda: torch.topk(h @ w.T, k)  # noqa: B023
    best = jax.jit(functools.partial(top_k, k=k))
    ours = functools.partial(best, jnp.asarray(h_ND), jnp.asarray(w_VD))
    error = check_close(ours()[1], theirs().values.numpy(), 1e-4)
    yield Case(
      f"top {k}: torch / streamed, V={V:,} D={D} N={N}",
      {"V": V, "D": D, "N": N, "error": error},
      {**compare(theirs, ours, seconds=8), "at_least": 1.3},
    )


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "peers_sampled": peers_sampled,
  "peers_softmax": peers_softmax,
  "peers_top_k": peers_top_k,
}
