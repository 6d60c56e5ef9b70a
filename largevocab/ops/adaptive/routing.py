"""Variable-size subsets of a batch, processed in fixed-size rounds.

Shapes stay static: each round has a capacity of K, and unused places are padding. Here
T is the largest possible number of rounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Route(NamedTuple):
  """A subset of N examples, in rounds of a static capacity K.

  Attributes:
    count: i32[], size of the subset.
    turns: i32[], number of rounds needed.
    at_TK: i32[T, K], indices of the examples of each round, with T large enough for all
      N; N in unused places, which come last.
  """

  count: jax.Array
  turns: jax.Array
  at_TK: jax.Array


def route(needs_N: jax.Array, capacity: int) -> Route:
  """Routes the examples with needs_N in rounds of `capacity`.

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
  """`lax.fori_loop` over the rounds needed: body(carry, at_K) -> carry.

  >>> r = route(jnp.array([True, False, True, True]), 2)
  >>> int(over_turns(lambda n, at_K: n + (at_K < 4).sum(), 0, r))
  3
  """
  turn = lambda i, carry: body(carry, route.at_TK[i])
  return lax.fori_loop(0, route.turns, turn, init)


def sum_of_turns(body: Callable[[jax.Array], Any], zeros: Any, route: Route) -> Any:
  """body(at_K), summed over the rounds needed.

  If there are no rounds or one, the usual cases, no addition is made. This saves time
  if the result is large.

  Args:
    body: a function whose result has the shapes and types of zeros.
    zeros: the result if there are no rounds.
    route: the rounds.

  >>> r = route(jnp.array([True, False, True, True]), 2)
  >>> int(sum_of_turns(lambda at_K: (at_K < 4).sum(), jnp.int32(0), r))
  3
  """
  one = lambda: body(route.at_TK[0])

  def several():
    add = lambda i, total: jax.tree.map(jnp.add, total, body(route.at_TK[i]))
    return lax.fori_loop(1, route.turns, add, one())

  return lax.switch(route.turns, (lambda: zeros, one, several))
