"""Learning-rate schedules by step: warm-up and decay, built with optax."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import optax

_AT_ONCE = 4096  # steps whose rates are computed in one call, on the device


# All schedules take the same arguments, including any that only one of them needs.
def cosine(lr: float, steps: int, end: float, warmup: int) -> optax.Schedule:
  """Decays from lr to end * lr after `steps` steps, along a cosine."""
  return optax.cosine_decay_schedule(lr, steps, alpha=end)


def linear(lr: float, steps: int, end: float, warmup: int) -> optax.Schedule:
  """Decays from lr to end * lr after `steps` steps, along a line."""
  return optax.linear_schedule(lr, end * lr, steps)


def inverse_sqrt(lr: float, steps: int, end: float, warmup: int) -> optax.Schedule:
  """lr sqrt(w / (w + t)), where w is the number of warm-up steps, but at least 1."""
  first = max(warmup, 1)
  return lambda count: lr * jnp.sqrt(first / (first + count))


SCHEDULES = {"cosine": cosine, "linear": linear, "inverse_sqrt": inverse_sqrt}


def warmed_up(after: optax.Schedule, lr: float, warmup: int) -> optax.Schedule:
  """Precedes a schedule by `warmup` steps in which the rate rises to lr.

  The rate rises in equal steps from lr / (warmup + 1).

  >>> schedule = warmed_up(optax.constant_schedule(8.0), lr=8.0, warmup=3)
  >>> [float(schedule(step)) for step in (0, 1, 2, 3, 4)]
  [2.0, 4.0, 6.0, 8.0, 8.0]
  """
  if not warmup:
    return after
  rise = optax.linear_schedule(lr / (warmup + 1), lr, warmup)
  return optax.join_schedules([rise, after], [warmup])


def by_step(schedule: optax.Schedule) -> Callable[[int], float]:
  """The rate as a function of the step, which returns a Python float.

  >>> by_step(optax.linear_schedule(0.0, 1.0, 8192))(6144)
  0.75
  """

  @functools.lru_cache(maxsize=1)
  def block(number: int) -> np.ndarray:
    first = number * _AT_ONCE
    steps = jnp.arange(first, first + _AT_ONCE)
    return np.broadcast_to(np.asarray(schedule(steps)), _AT_ONCE)

  return lambda step: float(block(step // _AT_ONCE)[step % _AT_ONCE])
