"""Benchmarks of bitwise reproducible steps, on devices that sum in any order."""

from collections.abc import Callable, Iterator

import jax
import numpy as np

from benchmarks.case import Case
from benchmarks.zipf import zipf_batch, zipf_counts
from largevocab.heads import Full, Head, Sampled
from largevocab.rows import Adagrad
from largevocab.tools.reports.measure import Stepper, compare, row_step

OPTIONS = {"xla_gpu_deterministic_ops": True}
STEPS = 5


def deterministic_step(
  V: int = 100_000, D: int = 128, N: int = 1024, M: int = 4096
) -> Iterator[Case]:
  """A step compiled for equal bits / as it is. Goal: at most 1.2 times as long.

  Labels repeat, so that the gradients of their rows are sums. Two runs of the step that
  is compiled for equal bits must give the same rows.
  """
  counts = zipf_counts(V)
  batch = zipf_batch(N, V, D)
  heads: dict[str, Head] = {
    "full": Full(optimizer=Adagrad()),
    "sampled": Sampled(num_samples=M, optimizer=Adagrad()),
  }
  for name, head in heads.items():

    def stepper(options, head=head):
      state = head.init(jax.random.key(0), counts, D)
      return Stepper(row_step(head), state, *batch, compiler_options=options)

    first, second, plain = stepper(OPTIONS), stepper(OPTIONS), stepper(None)
    for _ in range(STEPS):
      one_VD, other_VD = (run().table.w_VD for run in (first, second))
    np.testing.assert_array_equal(one_VD, other_VD)
    del second, other_VD
    yield Case(
      f"step with equal bits / any, {name}, V={V:,}",
      {"D": D, "N": N, "M": M},
      {**compare(first, plain), "at_most": 1.2},
    )


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "deterministic_step": deterministic_step
}
