"""Tables with rows of bfloat16: stochastic rounding, and writing rows.

Rounding uses a hash in place of random keys.
"""

import jax
import jax.numpy as jnp
import numpy as np

_LARGEST = np.uint32(0x7F7F)  # bits of the largest finite bfloat16


def random_bits(count: jax.Array, ids_R: jax.Array, width: int) -> jax.Array:
  """Pseudo-random words for the entries of rows, u32[R, D].

  The high bits are the better ones. The words are a pure function of the number of
  updates so far, the row's id and the column. They depend neither on where a row is in
  a gradient, nor on how a table is cut.

  Args:
    count: i32[], number of updates so far.
    ids_R: i32[R].
    width: D.

  Source: Jarzynski and Olano 2020, the hash `pcg3d`, of which the last word is kept.
  Cost: six multiplications of words for each entry, besides three for rows and columns.

  >>> bits = random_bits(jnp.int32(7), jnp.array([3, 5]), 2)
  >>> bool((bits[::-1] == random_bits(jnp.int32(7), jnp.array([5, 3]), 2)).all())
  True
  """
  x = jnp.asarray(count, jnp.uint32)
  y = jnp.asarray(ids_R).astype(jnp.uint32)[:, None]
  z = jnp.arange(width, dtype=jnp.uint32)[None]
  x, y, z = (v * np.uint32(1664525) + np.uint32(1013904223) for v in (x, y, z))
  x = x + y * z
  y = y + z * x
  z = z + x * y
  x, y, z = (v ^ (v >> 16) for v in (x, y, z))
  x = x + y * z
  y = y + z * x
  return z + x * y


def to_bfloat16(x: jax.Array, bits: jax.Array) -> jax.Array:
  """One of the two bfloat16 next to x, at random, so that E[result] = x.

  The upper 16 of the 32 bits of a float32 are a bfloat16, rounded towards 0. A uniform
  number of 16 bits is first added to the other bits, so that their carry has the
  probability of the part that is lost. A bfloat16 stays as it is, and so do infinities
  and NaNs. Beyond the largest bfloat16, where one neighbour is infinite, the result is
  the largest bfloat16.

  Args:
    x: f32, any shape.
    bits: u32, same shape, uniform; the upper 16 bits are used.

  Returns:
    bf16, same shape.

  Source: Gupta et al. 2015, there for fixed-point numbers.

  >>> x, bits = jnp.full(4, 1 + 2**-8), jnp.arange(4, dtype=jnp.uint32) << 30
  >>> to_bfloat16(x, bits).tolist()
  [1.0, 1.0, 1.0078125, 1.0078125]
  """
  word = jax.lax.bitcast_convert_type(x, jnp.uint32)
  high = (word + (bits >> 16)) >> 16
  sign, size = high & 0x8000, jnp.minimum(high & 0x7FFF, _LARGEST)
  rounded = jax.lax.bitcast_convert_type((sign | size).astype(jnp.uint16), jnp.bfloat16)
  return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))


def as_kept(
  w_RD: jax.Array, dtype: np.dtype, count: jax.Array, ids_R: jax.Array
) -> jax.Array:
  """New rows of a table of `dtype`, as they are stored.

  Rows of bfloat16 are rounded at random, others stay as they are.

  Args:
    w_RD: f32[R, D].
    dtype: type of the rows of the table.
    count: i32[], number of updates so far.
    ids_R: i32[R], the rows' numbers in the whole table.

  >>> row_12 = jnp.array([[1.0, 0.1]])
  >>> as_kept(row_12, jnp.float32, jnp.int32(0), jnp.zeros(1, int)) is row_12
  True
  >>> as_kept(row_12, jnp.bfloat16, jnp.int32(0), jnp.zeros(1, int)).dtype
  dtype(bfloat16)
  """
  if dtype != jnp.bfloat16:
    return w_RD
  bits_RD = random_bits(count, ids_R, w_RD.shape[1])
  return to_bfloat16(w_RD.astype(jnp.float32), bits_RD)


def with_rows(w_VD: jax.Array, ids_R: jax.Array, new_RD: jax.Array) -> jax.Array:
  """A table with new rows of these distinct ids; ids >= V are padding.

  Cost: O(R D), if the table is donated. On a CPU, for rows of bfloat16, it costs a pass
    over the table, since scatters of bfloat16 convert all of it to float32 and back.

  >>> new_RD = jnp.array([[3.0], [4.0]])
  >>> with_rows(jnp.zeros((2, 1)), jnp.array([1, 2]), new_RD).tolist()
  [[0.0], [3.0]]
  """
  if w_VD.dtype != jnp.bfloat16:
    return _scattered(w_VD, ids_R, new_RD)
  return jax.lax.platform_dependent(
    w_VD, ids_R, new_RD, cpu=_selected, default=_scattered
  )


def _scattered(w_VD, ids_R, new_RD):
  return w_VD.at[ids_R].set(new_RD, mode="drop", unique_indices=True)


def _selected(w_VD, ids_R, new_RD):
  def select(w_VD):
    at_R = jnp.arange(len(ids_R), dtype=jnp.int32)
    at_V = _scattered(jnp.full(len(w_VD), -1, jnp.int32), ids_R, at_R)
    rows_VD = new_RD.at[at_V].get(mode="clip")
    return jnp.where(at_V[:, None] < 0, w_VD, rows_VD)

  # A branch, since the compiler does not move the computation of new rows into it:
  # there they would be computed V times.
  return jax.lax.cond(jnp.any(ids_R < len(w_VD)), select, lambda w_VD: w_VD, w_VD)
