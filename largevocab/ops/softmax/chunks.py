"""Class tables in even chunks, to compute logits without holding [N, V]."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards


class Chunks(NamedTuple):
  """`num` chunks of `size`: (num - 1) * size < total <= num * size."""

  num: int
  size: int


def even_chunks(total: int, at_most: int) -> Chunks:
  """Chunks of at most `at_most`, of even size, so that the last one wastes little.

  With several chunks, the size is a multiple of 8, unless that exceeds `at_most`. If
  possible it is not a multiple of 1024: rows 4 KiB apart map to the same cache lines.

  >>> even_chunks(10_000, 8192)
  Chunks(num=2, size=5000)
  >>> even_chunks(4096, 1100)
  Chunks(num=4, size=1032)
  >>> even_chunks(10, 100)
  Chunks(num=1, size=10)
  """
  at_most = max(1, min(at_most, total))
  num = -(-total // at_most)
  size = -(-total // num)
  if num > 1:
    size = -(-size // 8) * 8
    size = min(size + 8 * (size % 1024 == 0), at_most)
  return Chunks(-(-total // size), size)


class ClassChunk(NamedTuple):
  """One chunk of a class table.

  Attributes:
    start: i32[], the class of its first row.
    w_VD: its rows (here V is the size of the chunk).
    is_new_V: bool, False on rows that are in the previous chunk too.
    is_class_V: bool, False on those rows and on unused rows.
  """

  start: jax.Array
  w_VD: jax.Array
  is_new_V: jax.Array
  is_class_V: jax.Array


def class_chunk(w_VD: jax.Array, i: jax.Array, size: int) -> ClassChunk:
  """Chunk i of the table.

  The last one starts earlier, so that it is full without padding the table; repeated
  rows are marked.

  >>> class_chunk(jnp.arange(5.)[:, None], jnp.int32(1), 3).is_new_V
  Array([False,  True,  True], dtype=bool)
  """
  start = jnp.minimum(i * size, w_VD.shape[0] - size)
  rows_VD = lax.dynamic_slice_in_dim(w_VD, start, size)
  at_V = start + jnp.arange(size, dtype=jnp.int32)
  is_new_V = at_V >= i * size
  return ClassChunk(start, rows_VD, is_new_V, shards.used(at_V, len(w_VD), is_new_V))


class RowChunk(NamedTuple):
  """One chunk of the rows of several arrays that all have the same number of rows.

  Attributes:
    start: i32[], its first row.
    ids_C: i32, its rows.
    is_new_C: bool, False on rows that are in the previous chunk too.
  """

  start: jax.Array
  ids_C: jax.Array
  is_new_C: jax.Array

  def rows(self, x: jax.Array) -> jax.Array:
    """Rows of an array [V, ...]: [C, ...]."""
    return lax.dynamic_slice_in_dim(x, self.start, len(self.ids_C))

  def put(self, x: jax.Array, new: jax.Array) -> jax.Array:
    """The array [V, ...] with rows `new` [C, ...] in place of the chunk's."""
    return lax.dynamic_update_slice_in_dim(x, new, self.start, axis=0)


def fold_rows(
  body: Callable[[Any, RowChunk], Any], init: Any, num_rows: int, size: int
) -> Any:
  """body(carry, chunk) over all rows, at most `size` at a time.

  The last chunk starts early enough to be full, and marks the rows that it repeats.

  >>> x_V = jnp.arange(12.0)
  >>> add = lambda total, chunk: total + jnp.sum(chunk.rows(x_V) * chunk.is_new_C)
  >>> [float(fold_rows(add, 0.0, 12, size)) for size in (4, 7, 100)]
  [66.0, 66.0, 66.0]
  """
  chunks = even_chunks(num_rows, size)

  def step(carry, i):
    start = jnp.minimum(i * chunks.size, num_rows - chunks.size)
    ids_C = start + jnp.arange(chunks.size, dtype=jnp.int32)
    return body(carry, RowChunk(start, ids_C, ids_C >= i * chunks.size)), None

  return lax.scan(step, init, jnp.arange(chunks.num, dtype=jnp.int32))[0]


def scan_classes(
  body: Callable[[Any, ClassChunk, Any], tuple[Any, Any]],
  init: Any,
  w_VD: jax.Array,
  size: int,
  xs: Any = None,
) -> tuple[Any, Any]:
  """`lax.scan` over the chunks of a table: body(carry, chunk, x) -> carry, y.

  A single chunk is the table itself, without slice or loop.

  >>> add = lambda total, chunk, _: (total + (chunk.w_VD.T @ chunk.is_new_V)[0], None)
  >>> [float(scan_classes(add, 0.0, jnp.ones((5, 1)), size)[0]) for size in (2, 5)]
  [5.0, 5.0]
  """
  chunks = even_chunks(w_VD.shape[0], size)
  if chunks.num == 1:
    all_V = jnp.ones(chunks.size, bool)
    x = jax.tree.map(lambda x: x[0], xs)
    used_V = shards.used(jnp.arange(chunks.size), len(w_VD), all_V)
    carry, y = body(init, ClassChunk(jnp.int32(0), w_VD, all_V, used_V), x)
    return carry, jax.tree.map(lambda y: y[None], y)

  def step(carry, i_and_x):
    i, x = i_and_x
    return body(carry, class_chunk(w_VD, i, chunks.size), x)

  return lax.scan(step, init, (jnp.arange(chunks.num, dtype=jnp.int32), xs))


def ids_in_chunk(ids: jax.Array, start: jax.Array, is_new_V: jax.Array) -> jax.Array:
  """Class ids relative to a chunk; `size` (out of range) for ids not new in it.

  >>> ids_in_chunk(jnp.array([1, 2, 3, 5]), 2, jnp.array([False, True, True]))
  Array([3, 3, 1, 3], dtype=int32)
  """
  size = is_new_V.shape[0]
  first_new = start + size - is_new_V.sum(dtype=jnp.int32)
  return jnp.where((ids >= first_new) & (ids < start + size), ids - start, size)


def compute_dtype(h_ND: jax.Array, w_VD: jax.Array, dtype=None) -> jnp.dtype:
  """`dtype`, or by default the promoted type of both arguments."""
  with jax.numpy_dtype_promotion("standard"):
    return jnp.dtype(dtype or jnp.promote_types(h_ND.dtype, w_VD.dtype))


def sum_dtype(dtype) -> jnp.dtype:
  """Accumulation type of products of `dtype`: at least float32."""
  return jnp.dtype(jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32)


def wide(x: jax.Array) -> jax.Array:
  """x in at least float32, for sums, differences and gradients of x.

  >>> wide(jnp.zeros(1, jnp.bfloat16)).dtype, wide(jnp.zeros(1)).dtype
  (dtype('float32'), dtype('float32'))
  """
  return x.astype(sum_dtype(x.dtype))


def product(spec: str, a: jax.Array, b: jax.Array, dtype) -> jax.Array:
  """`jnp.einsum(spec, a, b)` with operands of `dtype`, summed in at least float32.

  Products are in the precision of the cast operands: float32 means float32, also on
  devices that use fewer bits by default.
  """
  return jnp.einsum(
    spec,
    a.astype(dtype),
    b.astype(dtype),
    preferred_element_type=sum_dtype(dtype),
    precision=lax.Precision.HIGHEST,
  )


def logits(h_ND: jax.Array, w_VD: jax.Array, dtype) -> jax.Array:
  """o_NV = h_ND @ w_VD.T, operands of `dtype`, summed in at least float32."""
  return product("nd,vd->nv", h_ND, w_VD, dtype)
