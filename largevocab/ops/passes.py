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
  rank_A = jnp.cumsum(live_A, dtype=jnp.int32)
  nth_K = jnp.arange(1, at_once + 1, dtype=jnp.int32)

  def take(i, carry):
    return body(carry, jnp.searchsorted(rank_A, i * at_once + nth_K))

  num = jnp.max(rank_A, initial=0)
  return lax.fori_loop(0, (num + at_once - 1) // at_once, take, init)
