"""Measures the time of functions, and the memory of compiled functions."""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

from largevocab.heads import Head
from largevocab.tools.sweeps.records import measured_here

TURN_SECONDS = 0.2
LEAST_SECONDS, LEAST_CALLS = 0.4, 4  # minima of `least_time`
_MOST_SECONDS = ContextVar("most_seconds", default=math.inf)
LR = 0.1


def compare(
  above: Callable[[], Any],
  below: Callable[[], Any],
  *,
  seconds: float = 20.0,
  min_turns: int = 7,
) -> dict[str, Any]:
  """Times two functions in turns.

  In its turn, a function is called once without timing, and then repeatedly for
  TURN_SECONDS, as in its own loop. The untimed call absorbs effects of the other
  function: the state of caches, and memory that is still being released.

  Args:
    above, below: functions. An object whose function runs in another process has a
      method `turn`, like the function here.
    seconds: minimum total time, without that of the first calls, which may compile; see
      also `shortened`.
    min_turns: minimum number of turns.

  Returns:
    `ratio`, the median over turns of above's time over below's; `cpu_ratio`, the same
    ratio for the processor time of all threads, which other programs disturb less; the
    median times in ms; and the number of turns.
  """
  functions = {"above": above, "below": below}
  for function in functions.values():
    jax.block_until_ready(function())
  walls: dict[str, list[float]] = {name: [] for name in functions}
  cpus: dict[str, list[float]] = {name: [] for name in functions}
  end = time.perf_counter() + min(seconds, _MOST_SECONDS.get())
  while time.perf_counter() < end or len(walls["above"]) < min_turns:
    for name, function in functions.items():
      own = getattr(function, "turn", None)
      wall, cpu = own(TURN_SECONDS) if own else turn(function, TURN_SECONDS)
      walls[name].append(wall)
      cpus[name].append(cpu)

  def ratio(times: dict[str, list[float]]) -> float:
    pairs = zip(times["above"], times["below"], strict=True)
    return statistics.median(a / b for a, b in pairs)

  return {
    "ratio": ratio(walls),
    "cpu_ratio": ratio(cpus),
    "above_ms": 1e3 * statistics.median(walls["above"]),
    "below_ms": 1e3 * statistics.median(walls["below"]),
    "turns": len(walls["above"]),
  }


def turn(function: Callable[[], Any], seconds: float) -> tuple[float, float]:
  """Mean wall and processor seconds per call, over calls for `seconds`."""
  jax.block_until_ready(function())
  wall, cpu, calls = time.perf_counter(), time.process_time(), 0
  while not calls or time.perf_counter() < wall + seconds:
    jax.block_until_ready(function())
    calls += 1
  return (time.perf_counter() - wall) / calls, (time.process_time() - cpu) / calls


def temp_bytes(compiled: jax.stages.Compiled) -> int:
  """Temporary memory of a compiled function in bytes, without arguments and results."""
  analysis = compiled.memory_analysis()
  assert analysis is not None, "this device does not report the memory of a program"
  return analysis.temp_size_in_bytes


class Stepper:
  """A step with donated state, which can be called repeatedly without arguments.

  `step(state, *args)` returns (state, output). Both are computed, and the attributes
  `state` and `output` hold the results of the last call. `compiler_options` is passed
  to `jax.jit`.
  """

  def __init__(
    self,
    step: Callable[..., Any],
    state: Any,
    *args: Any,
    compiler_options: dict[str, Any] | None = None,
  ):
    self._step = jax.jit(step, donate_argnums=0, compiler_options=compiler_options)
    self.state, self.output, self._args = state, None, args

  def __call__(self) -> Any:
    self.state, self.output = self._step(self.state, *self._args)
    return self.state


def row_step(head: Head, lr: float = LR) -> Callable[..., Any]:
  """The head's part of a training step, including the gradient for the network."""

  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, lr, 1.0), out.dh_ND

  return step


@contextmanager
def shortened(seconds: float) -> Iterator[None]:
  """Ends comparisons within the block after `seconds`, if they have had their turns."""
  token = _MOST_SECONDS.set(seconds)
  try:
    yield
  finally:
    _MOST_SECONDS.reset(token)


def milliseconds(function: Callable[[], Any]) -> float:
  """Median milliseconds of five calls, after one untimed call."""
  jax.block_until_ready(function())
  times = []
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(function())
    times.append(1e3 * (time.perf_counter() - start))
  return statistics.median(times)


def least_time(call: Callable[[], Any]) -> float:
  """Seconds per call, as the minimum of many calls."""
  jax.block_until_ready(call())
  jax.block_until_ready(call())
  times: list[float] = []
  end = time.perf_counter() + LEAST_SECONDS
  while len(times) < LEAST_CALLS or time.perf_counter() < end:
    start = time.perf_counter()
    jax.block_until_ready(call())
    times.append(time.perf_counter() - start)
  return min(times)


def about_this_run() -> dict[str, object]:
  """The device, versions, settings and revision, on which times depend."""
  tunables = os.environ.get("GLIBC_TUNABLES", "")
  page_faults = "glibc.malloc" not in tunables or "hugetlb=0" in tunables
  return measured_here() | {"page_faults": page_faults}
