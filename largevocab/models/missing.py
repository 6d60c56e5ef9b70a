"""Detects missing inputs, as before a short history or between two sequences."""

import jax
import jax.numpy as jnp


def given(x_BTE: jax.Array) -> jax.Array:
  """Which inputs are present, bool[B, T]; the row of a missing input is zeros.

  >>> given(jnp.array([[[0.0, 0.0], [0.0, 0.5]]])).tolist()
  [[False, True]]

  Source: Kang and McAuley 2018, whose code masks keys of attention in this way.
  """
  return jnp.any(x_BTE != 0, axis=2)


def starts(given_BT: jax.Array) -> jax.Array:
  """Where a new sequence begins in a row, after missing inputs, bool[B, T].

  >>> starts(jnp.array([[True, True, False, True], [False, True, True, True]])).tolist()
  [[False, False, False, True], [False, True, False, False]]
  """
  before_BT = jnp.pad(given_BT[:, :-1], ((0, 0), (1, 0)), constant_values=True)
  return given_BT & ~before_BT
