"""Examples that need something, in arrays of a static size: as many as there are."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Route(NamedTuple):
  """Which of N examples need something, a static number K of them a turn.

  Attributes:
    count: i32[], how many need it.
    turns: i32[], turns that it takes for all.
    at_TK: i32[T, K], which they are, for the turns that all N would take; N on free
      places, which come last.
  """

  count: jax.Array
  turns: jax.Array
  at_TK: jax.Array


def route(needs_N: jax.Array, capacity: int) -> Route:
  """The examples for which needs_N, in turns of `capacity`.

  >>> r = route(jnp.array([True, False, True, True]), 2)
  >>> int(r.count), int(r.turns), r.at_TK.tolist()
  (3, 2, [[0, 2], [3, 4]])
  """
  num = len(needs_N)
  most = -(-num // capacity)
  (at_N,) = jnp.nonzero(needs_N, size=most * capacity, fill_value=num)
  count = needs_N.sum(dtype=jnp.int32)
  at_TK = at_N.astype(jnp.int32).reshape(most, capacity)
  return Route(count, -(-count // capacity), at_TK)


def over_turns(body: Callable[[Any, jax.Array], Any], init: Any, route: Route) -> Any:
  """`lax.fori_loop` over the turns there are: body(carry, at_K) -> carry.

  >>> r = route(jnp.array([True, False, True, True]), 2)
  >>> int(over_turns(lambda n, at_K: n + (at_K < 4).sum(), 0, r))
  3
  """
  turn = lambda i, carry: body(carry, route.at_TK[i])
  return lax.fori_loop(0, route.turns, turn, init)


def sum_of_turns(body: Callable[[jax.Array], Any], zeros: Any, route: Route) -> Any:
  """body(at_K), summed over the turns there are.

  Like a loop, but none and one turn, the usual cases, add nothing up: that pays where
  the sum is large.

  Args:
    body: its result has the shapes and types of zeros.
    zeros: of what there is without a turn.
    route: whose turns.

  >>> r = route(jnp.array([True, False, True, True]), 2)
  >>> int(sum_of_turns(lambda at_K: (at_K < 4).sum(), jnp.int32(0), r))
  3
  """
  one = lambda: body(route.at_TK[0])

  def several():
    add = lambda i, total: jax.tree.map(jnp.add, total, body(route.at_TK[i]))
    return lax.fori_loop(1, route.turns, add, one())

  return lax.switch(route.turns, (lambda: zeros, one, several))
