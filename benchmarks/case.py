"""A measured comparison, and a check that its two sides agree."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Case(NamedTuple):
  """One measured comparison.

  Attributes:
    name: what is compared, as 'above / below', and the main sizes.
    sizes: all sizes, and the error between the results.
    figures: measurements such as `ratio`, and its goal `at_least` or `at_most`.
  """

  name: str
  sizes: dict[str, Any]
  figures: dict[str, Any]


def check_close(got: Any, want: Any, tolerance: float) -> float:
  """The largest difference in a leaf, relative to the leaf's largest absolute value.

  Raises:
    AssertionError: the difference is above the tolerance.
  """
  errors = jax.tree.map(
    lambda a, b: float(jnp.abs(a - b).max() / jnp.abs(b).max()), got, want
  )
  error = float(np.max(jax.tree.leaves(errors)))  # which keeps a NaN
  assert error <= tolerance, f"the answers differ by {error}"
  return error
