"""Benchmarks of exact rankings: the best classes of each example."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks.case import Case
from benchmarks.zipf import zipf_counts
from largevocab.heads import Adaptive, Full, Head, Hierarchical
from largevocab.tools.reports.measure import compare

D, N, K = 200, 400, 10


def ranker(head: Head, V: int) -> Callable[[], Any]:
  """A compiled ranking of all classes, by freshly initialised rows."""
  state = head.init(jax.random.key(0), zipf_counts(V), D)
  h_ND = jax.random.normal(jax.random.key(1), (N, D))
  rank = jax.jit(functools.partial(head.top_k, k=K))
  return lambda: rank(state, h_ND)


def best_classes() -> Iterator[Case]:
  """The ten best of all classes: head / full softmax.

  All logits are computed, because none of these heads leaves a class out.
  """
  for V in (10_000, 100_000):
    full = ranker(Full(), V)
    for name, head in (
      ("hierarchical", Hierarchical()),
      ("adaptive", Adaptive(batch_examples=N)),
    ):
      own = ranker(head, V)
      yield Case(
        f"best {K} of V={V:,}, {name} / full",
        {"V": V, "D": D, "N": N},
        compare(own, full, seconds=5),
      )


ROWS: dict[str, Callable[[], Iterator[Case]]] = {"best_classes": best_classes}
