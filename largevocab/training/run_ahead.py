"""Limits how far steps are dispatched ahead of the device."""

import time

import jax
import jax.numpy as jnp


class RunAhead:
  """Bounds the number of steps that are dispatched but not finished.

  There are enough such steps to keep the device busy, and few enough to react quickly
  to signals: two steps or, if steps are short, as many as take some tenths of a second,
  at most 128.
  """

  def __init__(self):
    self._steps, self._every = 0, 1
    self._mark: jax.Array | None = None
    self._waited = time.perf_counter()

  def bound(self, result: jax.Array) -> None:
    """Waits, once per interval of steps, for the result of the previous interval.

    Args:
      result: a scalar of the step just dispatched; the next step may donate it.
    """
    self._steps += 1
    if self._steps % self._every:
      return
    # Copies the result, since an array donated to the next step cannot be waited for.
    # Only a part on this process is copied, since other processes may not copy at the
    # same step.
    before, self._mark = self._mark, jnp.copy(result.addressable_data(0))
    if before is None:
      return
    before.block_until_ready()
    seconds = time.perf_counter() - self._waited
    self._waited += seconds
    if seconds < 0.05:
      self._every = min(2 * self._every, 64)
    elif seconds > 0.2:
      self._every = max(self._every // 2, 1)
