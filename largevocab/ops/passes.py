"""Passes over the few live entries of a long list, a fixed number at a time.

Among the labels of a batch, a device has those of its own classes. How many these are
is known only when the program runs, so the device works through them in passes of a
fixed size. Usually one pass is enough; more are needed if one class is most of a batch.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from largevocab.ops import shards

LEAST = 1024  # fewer entries take about as long as a pass without any


def capacity(num: int) -> int:
  """Entries of a pass over a list of the whole batch, shared by C devices.

  It is num / C plus six standard deviations of a Poisson distribution, so that one pass
  is enough if classes are spread evenly; at most `num`, as on one device.

  >>> capacity(5000)
  5000
  """
  if not shards.is_sharded():
    return num
  mean = num / lax.axis_size(shards.AXIS)
  return min(num, max(LEAST, math.ceil(mean + 6 * math.sqrt(mean))))


def over_live(
  body: Callable[[Any, jax.Array], Any], init: Any, live_A: jax.Array, at_once: int
) -> Any:
  """body(carry, at_K) over the indices of live entries, in order, K at a time.

  The last pass is filled up with A.

  Args:
    body: function that returns the next carry, of the same shapes.
    init: the first carry.
    live_A: bool[A].
    at_once: K.

  Cost: O(A), and O(K log A) for each pass besides `body`.

  >>> x_A, live_A = jnp.arange(5.0), jnp.array([True, False, True, True, False])
  >>> at = lambda at_K: x_A.at[at_K].get(mode="fill", fill_value=0)
  >>> float(over_live(lambda total, at_K: total + at(at_K).sum(), 0.0, live_A, 2))
  5.0
  """
  num, at = _passes(live_A, at_once)
  return lax.fori_loop(0, num, lambda i, carry: body(carry, at(i)), init)


def sum_over_live(
  body: Callable[[jax.Array], Any], zeros: Any, live_A: jax.Array, at_once: int
) -> Any:
  """body(at_K), summed over the passes of `over_live`.

  If there are no passes or one, the usual cases, no addition is made. This saves time
  if the result is large.

  Args:
    body: function whose result has the shapes and types of zeros.
    zeros: the result if there are no passes.
    live_A, at_once: see `over_live`.

  >>> live_A = jnp.array([True, False, True, True])
  >>> int(sum_over_live(lambda at_K: jnp.sum(at_K < 4), jnp.int32(0), live_A, 2))
  3
  """
  num, at = _passes(live_A, at_once)
  one = lambda: body(at(0))

  def several():
    add = lambda i, total: jax.tree.map(jnp.add, total, body(at(i)))
    return lax.fori_loop(1, num, add, one())

  return lax.switch(num, (lambda: zeros, one, several))


def _passes(
  live_A: jax.Array, at_once: int
) -> tuple[jax.Array, Callable[[ArrayLike], jax.Array]]:
  """The number of passes, and the indices of the entries of a pass by its number."""
  rank_A = jnp.cumsum(live_A, dtype=jnp.int32)
  nth_K = jnp.arange(1, at_once + 1, dtype=jnp.int32)
  num = jnp.max(rank_A, initial=0)
  at = lambda i: jnp.searchsorted(rank_A, i * at_once + nth_K)
  return (num + at_once - 1) // at_once, at
