"""Traces a few steps for TensorBoard's page of profiles."""

from typing import Any

import jax

STEPS = 5  # number of steps in a trace


class Profiler:
  """Writes a trace of the five steps that follow a given step.

  The trace includes anything else that is done during these steps, such as an
  evaluation.

  Args:
    directory: the trace is written to `plugins/profile/TIME` in this directory, where
      TensorBoard looks for it.
    start: the step after which tracing starts; 0: nothing is traced.
  """

  def __init__(self, directory: str, start: int):
    self._directory, self._start, self._is_on = directory, start, False

  def __enter__(self) -> "Profiler":
    return self

  def __exit__(self, *_: Any) -> None:
    self._stop()

  def look(self, step: int, state: Any) -> None:
    """Starts or ends the trace; called after each step, with the step's result."""
    if step == self._start > 0:
      jax.block_until_ready(state)
      jax.profiler.start_trace(self._directory)
      self._is_on = True
    elif self._is_on and step >= self._start + STEPS:
      jax.block_until_ready(state)
      self._stop()

  def _stop(self) -> None:
    if self._is_on:
      jax.profiler.stop_trace()
    self._is_on = False
