"""One model on several devices: each class row lives on one device, its owner.

A head is written for one device. Inside `over(...)`, in a `jax.shard_map` over the mesh
axis `AXIS`, its table is the part of this device. The functions here combine the
results: sums and maxima over the devices, a few numbers for each example. Rows are sent
only where a function asks for those of some classes (`rows_of`). Outside `over`, these
functions return their argument, so that one device computes what it would without them.

Here C is the number of devices, B the number of blocks, and L the number of rows on a
device.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from largevocab.errors import UserError
from largevocab.ops.class_blocks import Blocks

AXIS = "classes"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()  # places, for `on_each_device`
PyTree = Any


_now: ContextVar[Blocks | None] = ContextVar("blocks", default=None)


@contextlib.contextmanager
def over(blocks: Blocks | None) -> Iterator[None]:
  """Heads that are traced inside combine results over `AXIS`; None: they do not."""
  token = _now.set(blocks)
  try:
    yield
  finally:
    _now.reset(token)


def on_each_device(
  local: Callable, mesh: Mesh, blocks: Blocks, places: PyTree, result: PyTree
) -> Callable:
  """`local` as every device of a mesh computes it, inside `over(blocks)`.

  Args:
    local: a function of this device's part of each argument.
    mesh: mesh with the one axis `AXIS`.
    blocks: blocks of the tables among the arguments.
    places, result: how arguments and results are divided, as for `jax.shard_map`.
  """

  def traced(*args):
    with over(blocks):
      return local(*args)

  return jax.shard_map(
    traced, mesh=mesh, in_specs=places, out_specs=result, check_vma=False
  )


def add_device_axis(tree: PyTree) -> PyTree:
  """Prepares arrays that stay on their device for a result whose place is `SPLIT`.

  They get a first axis of devices.
  """
  return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def drop_device_axis(tree: PyTree) -> PyTree:
  """The arrays of this device that `add_device_axis` was given.

  >>> drop_device_axis(add_device_axis({"a": jnp.ones(2)}))["a"].tolist()
  [1.0, 1.0]
  """
  return jax.tree.map(lambda x: x[0], tree)


@contextlib.contextmanager
def table(num_classes: int | None) -> Iterator[None]:
  """Computes with one of several tables in what is traced inside.

  The table has `num_classes` classes in the same number of blocks; None: that of all
  classes.
  """
  blocks = _now.get()
  if blocks is not None and num_classes is not None:
    blocks = Blocks(num_classes, blocks.num)
  with over(blocks):
    yield


def one_block() -> contextlib.AbstractContextManager[None]:
  """Computes with one block, as on one device, in what is traced inside."""
  return over(None)


def is_sharded() -> bool:
  """Whether other devices have rows of the same tables."""
  return _now.get() is not None


def num_classes(num_rows: int) -> int:
  """V, for a table with this many rows on this device."""
  blocks = _now.get()
  return num_rows if blocks is None else blocks.num_classes


def block_size(num_classes: int) -> int:
  """Rows of a block of a table with this many classes."""
  blocks = _now.get()
  return num_classes if blocks is None else Blocks(num_classes, blocks.num).size


def own_rows(ids: jax.Array, num_rows: int) -> jax.Array:
  """The rows of classes in the table of this device, which has `num_rows` rows.

  Classes of other devices, and ids outside 0 ... V - 1, get rows outside of the table.
  None of them are negative, since JAX counts negative rows from the end.
  """
  blocks = _now.get()
  if blocks is None:
    return jnp.where(ids < 0, num_rows, ids)
  return rows_here(blocks.row(ids), num_rows)


def rows_here(rows: jax.Array, num_rows: int) -> jax.Array:
  """Rows of the whole table, as rows in the table of this device.

  The result is `num_rows` for rows of other devices.
  """
  if _now.get() is None:
    return rows
  row = rows - lax.axis_index(AXIS) * num_rows
  return jnp.where((row >= 0) & (row < num_rows), row, num_rows)


def whole_rows(rows: jax.Array, num_rows: int) -> jax.Array:
  """Rows of this device's table, as rows in the whole table."""
  if _now.get() is None:
    return rows
  return rows + lax.axis_index(AXIS) * num_rows


def class_ids(rows: jax.Array, num_rows: int) -> jax.Array:
  """The classes of rows of this device's table; at least V for unused rows."""
  blocks = _now.get()
  if blocks is None:
    return rows
  return blocks.class_of(whole_rows(rows, num_rows))


def used(rows: jax.Array, num_rows: int, mask: jax.Array) -> jax.Array:
  """A mask of rows of this device's table, False for rows that are not classes."""
  blocks = _now.get()
  if blocks is None or blocks.num_rows == blocks.num_classes:
    return mask
  return mask & (class_ids(rows, num_rows) < blocks.num_classes)


def only_used(x_LD: jax.Array) -> jax.Array:
  """Rows of this device's table, with 0 in rows that are not classes."""
  blocks = _now.get()
  if blocks is None or blocks.num_rows == blocks.num_classes:
    return x_LD
  num = len(x_LD)
  is_class_L = used(jnp.arange(num), num, jnp.ones(num, bool))
  return jnp.where(is_class_L[:, None], x_LD, 0)


def blocks_here() -> jax.Array:
  """The numbers of this device's blocks, i32[B / C]."""
  blocks = _now.get()
  if blocks is None:
    return jnp.zeros(1, jnp.int32)
  num = blocks.num // lax.axis_size(AXIS)
  return lax.axis_index(AXIS) * num + jnp.arange(num, dtype=jnp.int32)


def num_blocks() -> int:
  """The number of blocks of classes on all devices.

  >>> num_blocks()
  1
  """
  blocks = _now.get()
  return 1 if blocks is None else blocks.num


def sums_by_block(x_NA: jax.Array, rows_NA: jax.Array, num_rows: int) -> jax.Array:
  """The sums over the rows of each block on this device, [N, B / C].

  >>> sums_by_block(jnp.ones((1, 3)), jnp.array([[0, 1, 2]]), 3).tolist()
  [[3.0]]
  """
  blocks = _now.get()
  if blocks is None:
    return jnp.sum(x_NA, axis=1, keepdims=True)
  sums = lambda b: jnp.sum(jnp.where(rows_NA // blocks.size == b, x_NA, 0), axis=1)
  return lax.map(sums, jnp.arange(num_rows // blocks.size, dtype=rows_NA.dtype)).T


def of_block(x_NB: jax.Array, rows_NA: jax.Array) -> jax.Array:
  """The values of blocks on this device, [N, B / C], for rows of its table.

  For other rows the result is undefined. [N, 1] if there is only one block.
  """
  blocks = _now.get()
  if blocks is None:
    return x_NB
  at_NA = jnp.minimum(rows_NA // blocks.size, x_NB.shape[1] - 1)
  return jnp.take_along_axis(x_NB, at_NA, axis=1)


def per_block(num: int) -> int:
  """A number of draws, divided by the number of blocks.

  Raises:
    UserError: the number of draws is not a multiple of the number of blocks.
  """
  blocks = _now.get()
  if blocks is None:
    return num
  if num % blocks.num:
    low = num // blocks.num * blocks.num
    raise UserError(
      f"head.num_samples is {num}, which is not a multiple of the number of blocks of "
      f"classes, {blocks.num}: set it to "
      f"{' or '.join(str(n) for n in (low, low + blocks.num) if n)}"
    )
  return num // blocks.num


def num_examples(num_here: int) -> int:
  """N, the number of all examples, of which this device has n."""
  return num_here if _now.get() is None else num_here * lax.axis_size(AXIS)


def all_examples(tree: PyTree) -> PyTree:
  """The examples of all devices, in order, from those of this one: arrays [n, ...]."""
  if _now.get() is None:
    return tree

  def gathered(x):
    for groups in reversed(_steps()):
      x = lax.all_gather(x, AXIS, axis_index_groups=groups, tiled=True)
    return x

  return jax.tree.map(gathered, tree)


def sum_for_own_examples(x_ND: jax.Array) -> jax.Array:
  """The sum over the devices, for this device's examples: [n, ...] from [N, ...]."""
  if _now.get() is None:
    return x_ND
  for groups in _steps():
    x_ND = lax.psum_scatter(x_ND, AXIS, axis_index_groups=groups, tiled=True)
  return x_ND


def _steps() -> Sequence[list[list[int]] | None]:
  """Groups of devices that scatter a sum, one step after another.

  To gather, use the steps in the opposite order.

  For many devices of a square mesh, XLA for TPU implements either operation in one step
  as a sum over all devices, without parts, which sends twice as much. Other backends
  choose well by themselves.
  """
  C = lax.axis_size(AXIS)
  return columns_and_rows(C) if jax.default_backend() == "tpu" and C >= 16 else [None]


def columns_and_rows(num_devices: int) -> list[list[list[int]]]:
  """The columns and the rows of devices in a rectangle, as near to a square as can be.

  A sum that is scattered in columns, and then in rows, gives each device the same part
  as a sum that is scattered among all devices, and sends as many bytes.

  >>> columns_and_rows(6)
  [[[0, 3], [1, 4], [2, 5]], [[0, 1, 2], [3, 4, 5]]]
  """
  C = num_devices
  height = max(r for r in range(1, math.isqrt(C) + 1) if C % r == 0)
  at = np.arange(C).reshape(height, -1)
  return [at.T.tolist(), at.tolist()]


def own_examples(x_ND: jax.Array) -> jax.Array:
  """This device's examples, from what all devices know: [n, ...] from [N, ...]."""
  if _now.get() is None:
    return x_ND
  n = len(x_ND) // lax.axis_size(AXIS)
  return lax.dynamic_slice_in_dim(x_ND, lax.axis_index(AXIS) * n, n)


@jax.custom_vjp
def _psum(x: jax.Array) -> jax.Array:
  return lax.psum(x, AXIS)


# Every device computes what follows a sum, so each has the whole cotangent.
_psum.defvjp(lambda x: (_psum(x), None), lambda _, g: (g,))


def psum(x: jax.Array) -> jax.Array:
  """The sum over the devices.

  Its gradient is right if everything that is computed from it is the same on all
  devices, as a loss is.
  """
  return x if _now.get() is None else _psum(x)


@jax.custom_vjp
def _replicated(x: jax.Array) -> jax.Array:
  return x


_replicated.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(g, AXIS),))


def replicated(x: jax.Array) -> jax.Array:
  """What all devices know, to be combined with what each has of its own.

  The gradient is summed over the devices.

  >>> float(replicated(jnp.ones(1))[0])
  1.0
  """
  return x if _now.get() is None else _replicated(x)


def from_owner(x: jax.Array, is_here: jax.Array) -> jax.Array:
  """The value of the one device where `is_here`; 0 if there is none."""
  return x if _now.get() is None else _psum(jnp.where(is_here, x, 0))


def rows_of(x_VD: jax.Array, ids: jax.Array) -> jax.Array:
  """The rows of classes that all devices ask for, [..., D], each from its owner.

  0 for ids of no class. Entries of a vector likewise.

  >>> rows_of(jnp.array([[1.0], [2.0]]), jnp.array([1, 2])).tolist()
  [[2.0], [0.0]]
  """
  here = own_rows(ids, len(x_VD))
  return psum(x_VD.at[here].get(mode="fill", fill_value=0))


def on_first_device(x: jax.Array, otherwise: float) -> jax.Array:
  """x on the first device, another value on the others."""
  if _now.get() is None:
    return x
  return jnp.where(lax.axis_index(AXIS) == 0, x, otherwise)


def pmax(x: jax.Array) -> jax.Array:
  """The maximum over the devices, without a gradient."""
  return x if _now.get() is None else lax.pmax(lax.stop_gradient(x), AXIS)


def log_softmax(x: jax.Array) -> jax.Array:
  """Log-softmax along the last axis, which continues on other devices.

  >>> log_softmax(jnp.zeros((1, 1))).tolist()
  [[0.0]]
  """
  if _now.get() is None:
    return jax.nn.log_softmax(x)
  return x - logsumexp(x)[..., None]


def log_share_of_first(first: jax.Array, x: jax.Array) -> jax.Array:
  """log of exp(first) over the sum of exp(x) on all devices, along the last axis.

  The first entry of this axis on the first device is `first`.

  >>> float(log_share_of_first(jnp.zeros(1), jnp.zeros((1, 1)))[0])
  0.0
  """
  if _now.get() is None:
    return jax.nn.log_softmax(x, axis=-1)[..., 0]
  return first - logsumexp(x)


def logsumexp_elsewhere(x: jax.Array, nothing: float) -> jax.Array:
  """log of the sum of exp(x) over the other devices; `nothing` if there are none.

  Unlike after `psum`, each device may continue with a result of its own.
  """
  if _now.get() is None:
    return jnp.full_like(x, nothing)
  every = lax.all_gather(x, AXIS)
  is_here = jnp.arange(len(every)) == lax.axis_index(AXIS)
  is_here = is_here.reshape(-1, *[1] * x.ndim)
  return jax.nn.logsumexp(jnp.where(is_here, nothing, every), axis=0)


def logsumexp(x: jax.Array, axis: int = -1) -> jax.Array:
  """log of the sum of exp(x) along an axis that continues on other devices.

  >>> float(logsumexp(jnp.zeros((1, 1)))[0])
  0.0
  """
  if _now.get() is None:
    return jax.nn.logsumexp(x, axis=axis)
  top = pmax(jnp.max(x, axis=axis, keepdims=True))
  top = jnp.where(jnp.isfinite(top), top, 0)  # -inf if there is nothing to sum
  return jnp.log(psum(jnp.sum(jnp.exp(x - top), axis=axis))) + jnp.squeeze(top, axis)
