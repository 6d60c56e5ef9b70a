"""How far ahead of the device steps may be handed to it."""

import time

import jax
import jax.numpy as jnp


class RunAhead:
  """Bounds the steps that are dispatched and not yet done.

  So many that the device always has work, and so few that a signal is heeded soon: two
  steps, or of short ones as many as take some tenths of a second, 128 at most.
  """

  def __init__(self):
    self._steps, self._every = 0, 1
    self._mark: jax.Array | None = None
    self._waited = time.perf_counter()

  def bound(self, result: jax.Array) -> None:
    """Waits, after every so many steps, for what there was so many before.

    Args:
      result: a scalar of the step just dispatched; the next one may take it over.
    """
    self._steps += 1
    if self._steps % self._every:
      return
    # A copy, since what is donated to the next step cannot be waited for.
    before, self._mark = self._mark, jnp.copy(result)
    if before is None:
      return
    before.block_until_ready()
    seconds = time.perf_counter() - self._waited
    self._waited += seconds
    if seconds < 0.05:
      self._every = min(2 * self._every, 64)
    elif seconds > 0.2:
      self._every = max(self._every // 2, 1)
