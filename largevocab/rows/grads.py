"""Row-sparse gradients of tables, and their sums over batches."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.ops import shards
from largevocab.ops.factored import steps
from largevocab.ops.merge import merge_rows
from largevocab.ops.passes import capacity, over_live
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax import chunks
from largevocab.ops.softmax.chunks import RowChunk, wide
from largevocab.ops.tag import TAG, joined, valid
from largevocab.ops.tree.blocks import BlockGrads, fold_blocks, joined_blocks

_PART_BYTES = 8 * 2**20
_CACHED_PART_BYTES = 2**18


class RowGrads(NamedTuple):
  """Gradient of a table that is zero outside few rows.

  `a + b` is the gradient of the sum, with repeated ids merged. Adding leaf by leaf
  would add the ids. `update` then raises an error; under `jax.jit` it makes rows NaN.

  Attributes:
    ids_R: i32[R], distinct; ids >= V are padding.
    rows_RD: f32[R, D], zeros on padding.
    tag: i32[], see `largevocab.ops.tag`.

  >>> a = RowGrads(jnp.array([1, 3]), jnp.array([[1.0], [2.0]]))
  >>> b = RowGrads(jnp.array([3, 4]), jnp.array([[4.0], [0.0]]))
  >>> both = a + b
  >>> jnp.zeros((4, 1)).at[both.ids_R].add(both.rows_RD, mode="drop")[:, 0].tolist()
  [0.0, 1.0, 0.0, 6.0]
  """

  ids_R: jax.Array
  rows_RD: jax.Array
  tag: ArrayLike = TAG

  def __add__(self, other: "RowGrads") -> "RowGrads":  # pyrefly: ignore
    return _joined_rows([self, other], [1.0, 1.0])


class Table(NamedTuple):
  """A table with its optimiser's state. Donate it, otherwise an update copies it.

  Attributes:
    w_VD: f32[V, D] or bf16[V, D].
    slots: the optimiser's state: arrays with leading axis V, and scalars that all rows
      share.
    count: i32[], number of updates so far.
  """

  w_VD: jax.Array
  slots: dict[str, jax.Array]
  count: jax.Array

  def rows_at(self, ids: ArrayLike, **how: Any) -> jax.Array:
    """The rows of these ids, in at least float32.

    Args:
      ids: ids of any shape.
      **how: arguments of `jax.Array.at[...].get`, for ids out of range.

    >>> table = Table(jnp.ones((3, 2), jnp.bfloat16), {}, jnp.int32(0))
    >>> table.rows_at(jnp.array([2, 3]), mode="fill", fill_value=0).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    return wide(self.w_VD.at[ids].get(**how))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DeviceGrads:
  """A gradient over several devices, each with its own rows.

  `a + b` adds on each device.

  Attributes:
    parts: the gradients, with an axis of devices first.
    mesh: mesh of the devices. Static.
  """

  parts: Any
  mesh: Mesh = field(metadata={"static": True})

  def __add__(self, other: "DeviceGrads") -> "DeviceGrads":
    return accumulate([self, other])


def row_grads(ids_R: jax.Array, rows_RD: jax.Array, num_rows: int) -> RowGrads:
  """Row-sparse gradient from rows in the order in which they were looked up.

  Repeated ids are summed; ids outside 0 ... V - 1 are padding.

  >>> g = row_grads(jnp.array([3, 3]), jnp.array([[1.], [2.]]), 4)
  >>> float(sq_norm(g))
  9.0
  """
  ids_R = jnp.where(ids_R < 0, num_rows, ids_R)
  return RowGrads(*merge_rows(ids_R, rows_RD, num_rows))


def looked_up_grads(table: Table, ids_R: jax.Array, g_RD: jax.Array) -> RowGrads:
  """Row-sparse gradient of a table from that of rows that were looked up in it.

  Args:
    table: V rows of at least D columns; on several devices, the part of this device.
    ids_R: i32[R], may repeat. Ids >= V are padding, whose rows do not count.
    g_RD: float[R, D], the gradient of the first D columns of these rows.

  >>> table = Table(jnp.zeros((4, 3)), {}, jnp.int32(0))
  >>> g = looked_up_grads(table, jnp.array([3, 3, 4]), jnp.ones((3, 2)))
  >>> g.rows_RD[g.ids_R == 3].tolist(), float(sq_norm(g))
  ([[2.0, 2.0, 0.0]], 8.0)
  """
  check_shapes(w_VE=table.w_VD, ids_R=ids_R, g_RD=g_RD)
  num_rows, width = table.w_VD.shape
  g_RE = jnp.pad(wide(g_RD), ((0, 0), (0, width - g_RD.shape[1])))
  return row_grads(shards.own_rows(ids_R, num_rows), g_RE, num_rows)


def accumulate(grads: Sequence[Any], weights: Sequence[ArrayLike] = ()) -> Any:
  """Gradient accumulation over several batches: the sum of weight * gradient.

  It works for `HeadStep.grads` of any head, gradients of networks, and pytrees of
  these, all at the same state. A loss is a mean over its batch: if weights are the
  batches' shares of the total weight, the result is the gradient of the concatenated
  batch. Row-sparse gradients are concatenated, so the result is as large as all of
  them.

  Args:
    grads: gradients of the same structure.
    weights: one weight for each gradient; by default 1.

  Raises:
    UserError: `grads` is empty or no list, the number of weights is another, gradients
      are of several heads, or gradients with ids were added or scaled leaf by leaf.

  Cost: O(R D) for R rows in total.

  >>> row = lambda c: row_grads(jnp.array([c]), jnp.array([[1.0]]), 4)
  >>> grads = accumulate([(row(2), jnp.ones(1)), (row(2), jnp.ones(1))], [0.25, 0.5])
  >>> [float(jnp.sum(g)) for g in (grads[0].rows_RD, grads[1])]
  [0.75, 0.75]
  """
  if not isinstance(grads, list | tuple) or hasattr(grads, "_fields"):
    raise UserError(
      f"accumulate: grads is of type {type(grads).__name__}: pass a list of gradients"
    )
  weights = list(weights) or [1.0] * len(grads)
  if not grads or len(weights) != len(grads):
    raise UserError(
      f"accumulate: {len(grads)} gradients and {len(weights)} weights: pass at least "
      "one gradient, and either a weight for each gradient or no weights"
    )
  if len({jax.tree.structure(g) for g in grads}) > 1:
    raise UserError(
      "accumulate: gradients have different structures: pass gradients of one head"
    )

  def total(*parts):
    if isinstance(parts[0], RowGrads):
      return _joined_rows(parts, weights)
    if isinstance(parts[0], DeviceGrads):
      return _joined_on_devices(parts, weights)
    if isinstance(parts[0], steps.SphericalGrads):
      return steps.joined_grads(parts, weights)
    if isinstance(parts[0], BlockGrads):
      return joined_blocks(parts, weights)
    if jnp.issubdtype(parts[0].dtype, jnp.floating):
      scaled = (w * g for w, g in zip(weights, parts, strict=True))
      return functools.reduce(jnp.add, scaled).astype(parts[0].dtype)
    return functools.reduce(jnp.add, parts)

  kinds = RowGrads | steps.SphericalGrads | BlockGrads | DeviceGrads
  return jax.tree.map(total, *grads, is_leaf=lambda x: isinstance(x, kinds))


def added(a: Any, b: Any) -> Any:
  """`accumulate([a, b])`, as the `+` of gradients that are named tuples.

  It takes the place of concatenation.
  """
  return accumulate([a, b])


def _joined_rows(parts: Sequence[RowGrads], weights: Sequence[ArrayLike]) -> RowGrads:
  """The weighted sum of row-sparse gradients.

  V is not known here, so padding ids are merged like classes, and unused entries get
  ids beyond any table.
  """
  tag = joined(*zip(*((g.ids_R, g.tag, g.rows_RD) for g in parts), strict=True))
  scaled = [w * g.rows_RD for w, g in zip(weights, parts, strict=True)]
  rows_RD = jnp.concatenate(scaled).astype(parts[0].rows_RD.dtype)
  above = np.iinfo(np.int32).max - len(rows_RD)
  ids_R = jnp.concatenate([valid(g.ids_R, g.tag, g.rows_RD, above)[0] for g in parts])
  return RowGrads(*merge_rows(ids_R, rows_RD, above), tag)


def _joined_on_devices(
  grads: Sequence[DeviceGrads], weights: Sequence[ArrayLike]
) -> DeviceGrads:
  """The weighted sum on each device; nothing is sent."""
  mesh = grads[0].mesh

  def local(parts, weights):
    return shards.add_device_axis(accumulate(shards.drop_device_axis(parts), weights))

  places = shards.SPLIT, shards.WHOLE
  mapped = jax.shard_map(
    local, mesh=mesh, in_specs=places, out_specs=shards.SPLIT, check_vma=False
  )
  weights = [jnp.asarray(w) for w in weights]
  return DeviceGrads(mapped([g.parts for g in grads], weights), mesh)


def checked(table: Table, grads: RowGrads) -> RowGrads:
  """The gradient, if its ids are valid.

  If it was zeroed leaf by leaf, the result is a gradient without rows. If values are
  traced and ids were changed, it is one that makes rows NaN.

  Raises:
    UserError: ids were changed, see `largevocab.ops.tag`.

  >>> g = row_grads(jnp.array([3]), jnp.array([[2.0]]), 4)
  >>> checked(Table(jnp.zeros((4, 1)), {}, jnp.int32(0)), g).ids_R is g.ids_R
  True
  """
  check_shapes(w_VD=table.w_VD, ids_R=grads.ids_R, rows_RD=grads.rows_RD)
  found = valid(grads.ids_R, grads.tag, grads.rows_RD, len(table.w_VD))
  return RowGrads(*found, grads.tag)


def rows_and_scalars(slots: dict[str, jax.Array]) -> tuple[dict, dict]:
  """The state of each row, and the state that the rows of a table share."""
  rows = {name: slot for name, slot in slots.items() if jnp.ndim(slot)}
  return rows, {name: slot for name, slot in slots.items() if name not in rows}


def fold_rows(
  body: Callable[[Any, RowGrads], Any],
  init: Any,
  table: Table,
  grads: RowGrads | BlockGrads,
) -> Any:
  """body(carry, part) over parts of a gradient that have no row in common.

  Parts are some MiB in size, so that what is computed from them is not held for all
  rows at once. On a CPU, parts have a size that stays in its cache. For tables of
  bfloat16, which a CPU passes over to write rows, there is one part. On one of several
  devices, which has few of many rows, padding is left out (`in_passes`). For
  `BlockGrads`, some MiB of blocks are made at a time. Parts are `checked`.

  >>> g = row_grads(jnp.array([3, 0]), jnp.array([[2.0], [1.0]]), 4)
  >>> table = Table(jnp.zeros((4, 1)), {}, jnp.int32(0))
  >>> float(fold_rows(lambda total, part: total + part.rows_RD.sum(), 0.0, table, g))
  3.0
  """
  if isinstance(grads, BlockGrads):
    of_blocks = lambda carry, *part: body(carry, RowGrads(*part))
    return fold_blocks(of_blocks, init, grads, len(table.w_VD))
  whole, V = checked(table, grads), len(table.w_VD)
  R, D = whole.rows_RD.shape
  rows_of = lambda size: max(size // (4 * max(D, 1)), 1)
  if capacity(R) < R:
    return in_passes(body, init, whole, V, min(rows_of(_PART_BYTES), capacity(R)))
  is_short = table.w_VD.dtype == jnp.bfloat16
  cached, most = R if is_short else rows_of(_CACHED_PART_BYTES), rows_of(_PART_BYTES)
  if min(cached, most) >= R:
    return body(init, whole)

  def parts_of(at_once):
    if at_once >= R:
      return lambda init: body(init, whole)
    return lambda init: in_parts(body, init, whole, V, at_once)

  return jax.lax.platform_dependent(init, cpu=parts_of(cached), default=parts_of(most))


def in_passes(
  body: Callable[[Any, RowGrads], Any],
  init: Any,
  grads: RowGrads,
  num_rows: int,
  at_once: int,
) -> Any:
  """body(carry, part) over the rows of a gradient that are not padding.

  A part has at most `at_once` rows.

  >>> g = row_grads(jnp.array([3, 0, 4, 1]), jnp.array([[2.0], [1.0], [0.0], [5.0]]), 4)
  >>> add = lambda x_V, part: x_V.at[part.ids_R].add(part.rows_RD[:, 0], mode="drop")
  >>> in_passes(add, jnp.zeros(4), g, 4, at_once=2).tolist()
  [1.0, 5.0, 0.0, 2.0]
  """
  padding_K = num_rows + jnp.arange(at_once, dtype=grads.ids_R.dtype)

  def take(carry, at_K):
    is_row_K = at_K < len(grads.ids_R)
    ids_K = jnp.where(is_row_K, grads.ids_R.at[at_K].get(mode="clip"), padding_K)
    rows_KD = grads.rows_RD.at[at_K].get(mode="fill", fill_value=0)
    return body(carry, RowGrads(ids_K, rows_KD, grads.tag))

  return over_live(take, init, grads.ids_R < num_rows, at_once)


def in_parts(
  body: Callable[[Any, RowGrads], Any],
  init: Any,
  grads: RowGrads,
  num_rows: int,
  at_once: int,
) -> Any:
  """body(carry, part) over a gradient, at most `at_once` rows at a time.

  >>> g = row_grads(jnp.array([3, 0, 1]), jnp.array([[2.0], [1.0], [5.0]]), 4)
  >>> add = lambda x_V, part: x_V.at[part.ids_R].add(part.rows_RD[:, 0], mode="drop")
  >>> in_parts(add, jnp.zeros(4), g, 4, at_once=2).tolist()
  [1.0, 5.0, 0.0, 2.0]
  """

  def take(carry, chunk: RowChunk):
    # A row of an earlier part is padding.
    ids_C = jnp.where(chunk.is_new_C, chunk.rows(grads.ids_R), num_rows + chunk.ids_C)
    return body(carry, RowGrads(ids_C, chunk.rows(grads.rows_RD), grads.tag))

  return chunks.fold_rows(take, init, len(grads.ids_R), at_once)


def sq_norm(tree: Any, start: jax.Array | None = None) -> jax.Array:
  """Sum of squares of all float leaves, in at least float32, plus `start`.

  `start` is the sum of squares of other leaves. For gradients of a head use the head's
  method `sq_norm`: with several devices, some leaves are whole on each device.

  Raises:
    UserError: the tree has gradients whose leaves are factors.

  >>> float(sq_norm({"a": jnp.array([3.0, 4.0])}))
  25.0
  """
  kinds = steps.SphericalGrads | BlockGrads
  for part in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, kinds)):
    if isinstance(part, kinds):
      raise UserError(
        "sq_norm: the squares of these leaves do not add up to the squared norm of the "
        "gradient: use head.sq_norm(state, grads)"
      )
  leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
  start = jnp.float32(0.0) if start is None else start
  return sum((jnp.sum(jnp.square(wide(x))) for x in leaves), start)
