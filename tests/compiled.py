"""Methods that a file of tests compiles once for each object, whatever the test."""

import collections
from collections.abc import Hashable
from typing import Any

import jax


class Compiled:
  """compiled(owner, *args) is owner.method(*args).

  Attributes:
    traces: how often, by the owner and the shapes of the arguments.
  """

  def __init__(self, method: str, static_argnums: tuple[int, ...] = ()):
    self.traces = collections.Counter()

    def call(owner, *args):
      self.traces[owner, tuple(map(_shape, jax.tree.leaves(args)))] += 1
      return getattr(owner, method)(*args)

    self._call = jax.jit(call, static_argnums=(0, *(1 + i for i in static_argnums)))

  def __call__(self, owner: Hashable, *args: Any) -> Any:
    return self._call(owner, *args)

  def most_traces(self, owner: Hashable) -> int:
    """More than 1: what is traced anew although no shape has changed."""
    return max(count for (whose, _), count in self.traces.items() if whose == owner)


def _shape(leaf: Any) -> Any:
  return leaf.shape if isinstance(leaf, jax.Array) else leaf
