"""Kernels of logits whose sums over classes follow from sums of powers.

Source: Blanc & Rendle 2018, sections 3.3 and 4.2.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

QUARTIC_DIM = 16  # the largest width of rows for which fourth powers are summed


class Kernel(Protocol):
  """A polynomial K of the logit o, even and positive."""

  def __call__(self, o: jax.Array) -> jax.Array:
    """K(o)."""
    ...

  def degree(self, dim: int) -> int:
    """p, the even power whose sums are kept, for `dim` coordinates."""
    ...

  def mass(self, power_sum: jax.Array, weight: jax.Array, degree: int) -> jax.Array:
    """Sum of weight_c K(o_c) over a set of classes, or an approximation of it.

    Args:
      power_sum: sum of weight_c o_c^p, not negative.
      weight: sum of weight_c. Where it is positive, so is the result.
      degree: p.
    """
    ...


class Square(NamedTuple):
  """K(o) = alpha o^2 + 1.

  >>> Square(100.0)(jnp.array([0.0, -1.0])).tolist()
  [1.0, 101.0]
  """

  alpha: float

  def __call__(self, o: jax.Array) -> jax.Array:
    return self.alpha * jnp.square(o) + 1

  def degree(self, dim: int) -> int:
    return 2

  def mass(self, power_sum: jax.Array, weight: jax.Array, degree: int) -> jax.Array:
    return self.alpha * power_sum + weight


class FourthPower(NamedTuple):
  """K(o) = o^4 + 1.

  For rows of up to 16 numbers (including the constant feature of a bias, padded to a
  multiple of 8), fourth powers are summed: 3,876 features. For wider rows, the sum of
  fourth powers is approximated from sums of squares by (sum c o^2)^2 / sum c, which is
  exact if |o| is constant within the set.

  >>> FourthPower()(jnp.array([0.0, -2.0])).tolist()
  [1.0, 17.0]
  """

  def __call__(self, o: jax.Array) -> jax.Array:
    return jnp.square(jnp.square(o)) + 1

  def degree(self, dim: int) -> int:
    return 4 if dim <= QUARTIC_DIM else 2

  def mass(self, power_sum: jax.Array, weight: jax.Array, degree: int) -> jax.Array:
    if degree == 4:
      return power_sum + weight
    return jnp.square(power_sum) / jnp.where(weight > 0, weight, 1) + weight
