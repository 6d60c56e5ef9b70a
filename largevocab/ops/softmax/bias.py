"""A bias per class, as the weight of a constant feature, kept in the class table."""

import jax
import jax.numpy as jnp

from largevocab.ops.shapes import check_shapes


def extended_width(dim: int) -> int:
  """Width of class rows for activations of width dim and a bias.

  It is the next multiple of 8 above dim, which is faster to read.

  >>> extended_width(64), extended_width(71), extended_width(7)
  (72, 72, 8)
  """
  return (dim // 8 + 1) * 8


def extend(h_ND: jax.Array) -> jax.Array:
  """[h_ND, 1, 0 ... 0]: column D of the class table holds the biases.

  The columns after it have no effect and no gradient.

  Args:
    h_ND: float[N, D], activations.

  Returns:
    float[N, extended_width(D)]. The gradient to h_ND is that of its first D columns.

  >>> extend(jnp.full((1, 3), 0.5))
  Array([[0.5, 0.5, 0.5, 1. , 0. , 0. , 0. , 0. ]], dtype=float32)
  """
  num, dim = (check_shapes(h_ND=h_ND)[axis] for axis in "ND")
  constant = jnp.zeros((num, extended_width(dim) - dim), h_ND.dtype).at[:, 0].set(1)
  return jnp.concatenate([h_ND, constant], axis=1)
