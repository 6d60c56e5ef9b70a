"""Inputs that an example does not have, as before a short history."""

import jax
import jax.numpy as jnp


def given(x_BTE: jax.Array) -> jax.Array:
  """Which inputs there are, bool[B, T]: the row of a missing one is zeros.

  >>> given(jnp.array([[[0.0, 0.0], [0.0, 0.5]]])).tolist()
  [[False, True]]

  Source: Kang and McAuley 2018, whose code masks keys of attention in this way.
  """
  return jnp.any(x_BTE != 0, axis=2)
