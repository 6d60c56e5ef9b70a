"""Memory layouts of arrays on a device."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout, with_layout_constraint

PyTree = Any

LANES = 128  # columns that a TPU stores together; a narrow table has fewer
_ROW_MAJOR = Layout(major_to_minor=(0, 1))


def row_major(tree: PyTree, others: PyTree = None) -> PyTree:
  """Formats that keep the matrices of a pytree row-major, for arguments of `jax.jit`.

  A step of a sampled head reads and writes single rows of its tables. On TPU, the
  default layout of a matrix with few columns, or with a width that is not a multiple of
  128, is column-major. Without these formats, every step would copy each table in and
  out. For dense steps, such as those of `full`, the opposite is true. On CPU and GPU,
  matrices are row-major anyway. On TPU, a row-major matrix takes a multiple of 128
  columns of memory.

  Args:
    tree: arrays, or `jax.ShapeDtypeStruct` with shardings.
    others: the entries for leaves that are not matrices; None: the default format.

  Returns:
    A pytree of the same structure, with a `Format` for each matrix. Pass it as
    `in_shardings` and `out_shardings`.

  >>> import jax.numpy as jnp
  >>> state = {"table": jnp.zeros((4, 2)), "step": jnp.int32(0)}
  >>> how = row_major(state)
  >>> how["table"].layout.major_to_minor, how["step"]
  ((0, 1), None)
  >>> advance = lambda s: {"table": s["table"].at[1].add(1.0), "step": s["step"] + 1}
  >>> step = jax.jit(advance, in_shardings=(how,), out_shardings=how, donate_argnums=0)
  >>> step(state)["table"][1].tolist()
  [1.0, 1.0]
  """

  def of_leaf(leaf, other):
    return Format(_ROW_MAJOR, leaf.sharding) if leaf.ndim == 2 else other

  leaves, structure = jax.tree.flatten(tree)
  rest = len(leaves) * [None] if others is None else structure.flatten_up_to(others)
  return structure.unflatten(map(of_leaf, leaves, rest))


def in_rows(w_VD: jax.Array) -> jax.Array:
  """Keeps a matrix row-major within a compiled program, too.

  This is for matrices that a loop passes on, and for rows that a loop reads from a
  row-major table. On TPU, a compiled loop over rows of a narrow table would otherwise
  copy the table to a column-major one and back in every step. On CPU and GPU this
  function has no effect.

  >>> import jax.numpy as jnp
  >>> in_rows(jnp.ones((3, 2))).shape
  (3, 2)
  """
  return with_layout_constraint(w_VD, _ROW_MAJOR)


def placed(tree: PyTree, how: PyTree) -> PyTree:
  """Gives the arrays of a pytree the layouts of `how`, the result of `row_major`.

  A program that was compiled with these layouts refuses others, such as those of a
  restored checkpoint.

  All arrays are committed to their devices, as the arrays that the program returns are.
  Otherwise the program would be compiled for the first state and again for the second.

  >>> import jax.numpy as jnp
  >>> state = {"table": jnp.zeros((4, 2)), "step": jnp.int32(0)}
  >>> placed(state, row_major(state))["table"].format.layout.major_to_minor
  (0, 1)
  """

  def put(how, x):
    if how is None:
      arrays = jax.tree.map(jnp.asarray, x)
      return jax.tree.map(lambda leaf: jax.device_put(leaf, leaf.sharding), arrays)
    return jax.device_put(x, how, donate=isinstance(how, Format))  # only matrices move

  return jax.tree.map(put, how, tree, is_leaf=lambda leaf: leaf is None)
