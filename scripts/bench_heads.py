"""Benchmarks of heads that draw negatives, against the sampled softmax."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_rows import Stepper, dense_step, row_step, zipf_ids
from measure import Case, check_close, compare

from largevocab import single_targets
from largevocab.heads import NCE, BlackOut, NegativeSampling, Ranking, Sampled
from largevocab.samplers import Bernoulli, Unigram


def head_step(V: int = 100_000, D: int = 64, N: int = 256) -> Iterator[Case]:
  """A step of each head over one of `sampled`, both with as many unigram negatives."""
  counts = np.ceil(1e7 / np.arange(1, V + 1)).astype(np.int64)
  h_ND = jax.random.normal(jax.random.key(1), (N, D))
  y = single_targets(zipf_ids(N, V))
  y = y._replace(context_N=zipf_ids(N, V, seed=1))
  batch = h_ND, y, jax.random.key(2)
  for own, M in ((False, 512), (True, 32)):
    drawn: dict[str, Any] = {"num_samples": M, "sampler": Unigram(per_example=own)}
    yardstick = Sampled(**drawn)
    heads = {
      "nce": NCE(**drawn),
      "nce, z of contexts": NCE(**drawn, normalizer="context"),
      "negative_sampling": NegativeSampling(**drawn),
      "ranking": Ranking(**drawn),
      "blackout": BlackOut(**drawn),
      "sampled/bernoulli": Sampled(num_samples=M, sampler=Bernoulli(per_example=own)),
    }
    start = lambda head: head.init(jax.random.key(0), counts, D)
    below = Stepper(row_step(yardstick), start(yardstick), *batch)
    jax.block_until_ready(below())
    whose = "own" if own else "shared"
    for name, head in heads.items():
      above = Stepper(row_step(head), start(head), *batch)
      opt = head.optimizer.transformation().init(jnp.zeros((V, D)))
      dense = Stepper(dense_step(head), (start(head), opt), *batch)
      errors = [
        check_close(above().table.w_VD, dense()[0].table.w_VD, 1e-4) for _ in range(2)
      ]
      yield Case(
        f"step, {name} / sampled, V={V:,} D={D} N={N}, {M} negatives, {whose}",
        {"D": D, "N": N, "M": M, "error": max(errors)},
        compare(above, below, seconds=5),
      )


ROWS: dict[str, Callable[[], Iterator[Any]]] = {"head_step": head_step}
