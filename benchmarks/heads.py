"""Benchmarks of sampled losses against the sampled softmax."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from benchmarks.case import Case, check_close
from benchmarks.rows import dense_step
from benchmarks.zipf import zipf_batch, zipf_counts, zipf_ids
from largevocab.heads import Sampled
from largevocab.losses import NCE, BlackOut, NegativeSampling, Ranking
from largevocab.samplers import Bernoulli, Unigram
from largevocab.tools.reports.measure import Stepper, compare, row_step


class Size(NamedTuple):
  """V classes, width D, N examples, M negatives per batch or (`own`) per example."""

  V: int
  D: int
  N: int
  M: int
  own: bool


# The last three are the sizes of experiments/likelihood_ptb (Penn Treebank).
SIZES = [
  Size(V=100_000, D=64, N=256, M=512, own=False),
  Size(V=100_000, D=64, N=256, M=32, own=True),
  *(Size(V=10_000, D=200, N=400, M=M, own=True) for M in (20, 100, 500)),
]


def head_step() -> Iterator[Case]:
  """A step of each head / a step of `sampled`, with the same number of negatives."""
  for size in SIZES:
    V, D, N, M, own = size
    counts = zipf_counts(V)
    h_ND, y, key = zipf_batch(N, V, D)
    batch = h_ND, y._replace(context_N=zipf_ids(N, V, seed=1)), key
    drawn: dict[str, Any] = {"num_samples": M, "sampler": Unigram(per_example=own)}
    heads = {
      "nce": Sampled(loss=NCE(), **drawn),
      "nce, z of contexts": Sampled(loss=NCE(normalizer="context"), **drawn),
      "negative_sampling": Sampled(loss=NegativeSampling(), **drawn),
      "ranking": Sampled(loss=Ranking(), **drawn),
      "blackout": Sampled(loss=BlackOut(), **drawn),
      "sampled/bernoulli": Sampled(num_samples=M, sampler=Bernoulli(per_example=own)),
    }
    start = lambda head: head.init(jax.random.key(0), counts, D)  # noqa: B023
    yardstick = Sampled(**drawn)
    below = Stepper(row_step(yardstick), start(yardstick), *batch)
    whose = "own" if own else "shared"
    for name, head in heads.items():
      above = Stepper(row_step(head), start(head), *batch)
      state = start(head)
      opt = head.optimizer.transformation().init(state.table.w_VD)
      dense = Stepper(dense_step(head), (state, opt), *batch)
      error = check_close(above().table.w_VD, dense()[0].table.w_VD, 1e-4)
      del dense, state, opt
      yield Case(
        f"step, {name} / sampled, V={V:,} D={D} N={N}, {M} negatives, {whose}",
        {**size._asdict(), "error": error},
        compare(above, below, seconds=4),
      )


ROWS: dict[str, Callable[[], Iterator[Any]]] = {"head_step": head_step}
