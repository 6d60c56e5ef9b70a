"""Exact top k classes, in chunks of the table."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largevocab.errors import UserError
from largevocab.ops import shards
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import (
  RowChunk,
  compute_dtype,
  even_chunks,
  fold_rows,
  logits,
  sum_dtype,
)
from largevocab.ops.softmax.log_partition import Change, Score, log_normalizer, logit
from largevocab.ops.softmax.parts import Parts, parts_nll
from largevocab.placement import in_rows

_LOGIT_BYTES = 8 * 2**20
_SMALLEST_BLOCK = 4  # classes in a block: smaller blocks save nothing
_FEW = 128  # classes for each one selected: with fewer, blocks save nothing
_ALIGNED = 64  # classes: chunks are multiples of this, so that blocks divide them


def top_k(
  h_ND: jax.Array,
  w_VD: jax.Array,
  k: int,
  *,
  size: int | None = None,
  score: Score = logit,
  dtype=None,
  change: Change | None = None,
  row_major: bool = False,
) -> tuple[jax.Array, jax.Array]:
  """The k classes of the largest scores of o_NV = h_ND @ w_VD.T, best first.

  Exact. Ties are broken by smaller class id, but on a device with several blocks of
  classes by row. NaN scores come first, so that they are not overlooked.

  Args:
    h_ND: float[N, D], activations.
    w_VD: float[V, D], class table.
    k: number of classes.
    size: approximate number of classes per chunk; by default 8 MiB of logits.
    score: ranking score as a function of a chunk of logits, [N, any].
    dtype: type of the operands of the products.
    change: transformation of the scores of given classes.
    row_major: whether the table is stored row-major (`largevocab.placement`).

  Returns:
    ids i32[N, k] and their scores f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: one product of N V D; holds [N, size].

  >>> w_VD = jnp.array([[1.], [3.], [2.], [3.]])
  >>> ids_NK, o_NK = top_k(jnp.ones((1, 1)), w_VD, 3, size=2)
  >>> ids_NK.tolist(), o_NK.tolist()
  ([[1, 3, 2]], [[3.0, 3.0, 2.0]])
  """
  check_k(k, shards.num_classes(check_shapes(h_ND=h_ND, w_VD=w_VD)["V"]))
  num, V = h_ND.shape[0], w_VD.shape[0]
  dtype = compute_dtype(h_ND, w_VD, dtype)
  size = _aligned(even_chunks(V, max(size or _LOGIT_BYTES // (4 * num), k)).size, V)
  first = V % size

  def merge(best, chunk):
    rows_CD = chunk.rows(w_VD)
    rows_CD = in_rows(rows_CD) if row_major else rows_CD
    o_NC = score(logits(h_ND, rows_CD, dtype))
    if change is not None:
      o_NC = change(o_NC, chunk.ids_C)
    is_class_C = shards.used(chunk.ids_C, V, jnp.ones(len(chunk.ids_C), bool))
    o_NC = jnp.where(is_class_C[None], o_NC, -jnp.inf)
    return merge_best(best, chunk.ids_C, o_NC.astype(best[1].dtype))

  # The first classes are a chunk of their own. In a last chunk that repeats classes,
  # they would be masked, which takes another pass over all logits.
  best = none_best(num, k, V, sum_dtype(dtype))
  if first:
    ids_C = jnp.arange(first, dtype=jnp.int32)
    best = merge(best, RowChunk(jnp.int32(0), ids_C, jnp.ones(first, bool)))

  def merge_others(best, chunk):
    start, ids_C, is_new_C = chunk
    return merge(best, RowChunk(first + start, first + ids_C, is_new_C))

  return of_all_devices(fold_rows(merge_others, best, V - first, size), V)


def _aligned(size: int, num_classes: int) -> int:
  """A multiple of _ALIGNED below the size, but not of 1024: see `even_chunks`.

  Only if the size is several times as large, and less than all classes.
  """
  if not 2 * _ALIGNED <= size < num_classes:
    return size
  size -= size % _ALIGNED
  return size - _ALIGNED * (size % 1024 == 0)


def softmax_top_k(
  h_ND: jax.Array,
  w_VD: jax.Array,
  k: int,
  *,
  score: Score = logit,
  dtype=None,
  change: Change | None = None,
) -> tuple[jax.Array, jax.Array]:
  """The k most probable classes of a softmax of the scores, as in `top_k`.

  Also returns their log-probabilities f32[N, k].

  Cost: two products of N V D.

  >>> w_VD = jnp.log(jnp.array([[1.0], [3.0]]))
  >>> ids_NK, log_p_NK = softmax_top_k(jnp.ones((1, 1)), w_VD, 1)
  >>> ids_NK.tolist(), f"{jnp.exp(log_p_NK[0, 0]):.2f}"
  ([[1]], '0.75')
  """
  how = {"score": score, "dtype": dtype, "change": change}
  ids_NK, s_NK = top_k(h_ND, w_VD, k, **how)
  return ids_NK, s_NK - log_normalizer(h_ND, w_VD, **how)[:, None]


def none_best(num: int, k: int, num_classes: int, dtype) -> tuple[jax.Array, jax.Array]:
  """Initial ids and scores [N, k] for `merge_best`, worse than those of any class."""
  return (
    jnp.full((num, k), num_classes, jnp.int32),
    jnp.full((num, k), -jnp.inf, dtype),
  )


def merge_best(
  best: tuple[jax.Array, jax.Array], ids_V: jax.Array, o_NV: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The best k of the best k so far and of more classes, whose ids must ascend.

  >>> best = jnp.array([[1, 2]]), jnp.array([[5.0, 3.0]])
  >>> ids_NK, o_NK = merge_best(best, jnp.array([0, 7]), jnp.array([[3.0, 4.0]]))
  >>> ids_NK.tolist(), o_NK.tolist()
  ([[1, 7]], [[5.0, 4.0]])
  """
  more_NK, at_NK = two_stage_top_k(o_NV, min(best[0].shape[1], o_NV.shape[1]))
  return best_of_both(best, (ids_V[at_NK], more_NK))


def two_stage_top_k(o_NV: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """`lax.top_k(o_NV, k)` from the k blocks of largest maxima; any NaN comes first.

  Exact, with ties broken by place: if a score is not in these blocks, k scores are
  larger, or equal and before it.

  Cost: a pass over the scores, then selection among V / B maxima and k B scores, for
    blocks of B classes. B is about sqrt(V / k) and a power of two that divides V. If
    there is none, selection is among all scores.

  >>> o_NV = jnp.array([[2.0, 9.0, 1.0, 9.0] + 508 * [0.0]])
  >>> [x.tolist() for x in two_stage_top_k(o_NV, 3)]
  [[[9.0, 9.0, 2.0]], [[1, 3, 0]]]
  """
  N, V = o_NV.shape
  divisor = V & -V
  if _FEW * k > V or divisor < _SMALLEST_BLOCK:
    return lax.top_k(_nan_first(o_NV), k)
  size = min(1 << round(math.log2(V / k) / 2), divisor)
  o_NBE = o_NV.reshape(N, V // size, size)
  block_NK = jnp.sort(lax.top_k(_nan_first(o_NBE.max(axis=2)), k)[1], axis=1)
  few_NKE = jnp.take_along_axis(o_NBE, block_NK[:, :, None], axis=1, mode="clip")
  best_NK, at_NK = lax.top_k(_nan_first(few_NKE.reshape(N, k * size)), k)
  of_NK = jnp.take_along_axis(block_NK, at_NK // size, axis=1, mode="clip")
  return best_NK, of_NK * size + at_NK % size


def _nan_first(o: jax.Array) -> jax.Array:
  return jnp.where(jnp.isnan(o), jnp.nan, o)  # a negative NaN would come last


def best_of_both(
  best: tuple[jax.Array, jax.Array], more: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
  """The best k of the best k so far and of other classes, for each example.

  >>> best = jnp.array([[1, 2]]), jnp.array([[5.0, 3.0]])
  >>> ids_NK, o_NK = best_of_both(best, (jnp.array([[0]]), jnp.array([[3.0]])))
  >>> ids_NK.tolist(), o_NK.tolist()
  ([[1, 0]], [[5.0, 3.0]])
  """
  k = best[0].shape[1]
  ids_NK, o_NK = (
    jnp.concatenate(both, axis=1) for both in zip(best, more, strict=True)
  )
  return _best(ids_NK, o_NK, k)


def _best(ids_NK: jax.Array, o_NK: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """The best k by score, with ties broken by id."""
  # A NaN must rank above the initial entries.
  worse_NK = jnp.where(jnp.isnan(o_NK), -jnp.inf, -o_NK)
  _, ids_NK, o_NK = lax.sort((worse_NK, ids_NK, o_NK), num_keys=2)
  return ids_NK[:, :k], o_NK[:, :k]


def check_k(k: int, num_classes: int) -> None:
  """Raises UserError if k is not a whole number, ValueError if it is not in 1 ... V."""
  if not isinstance(k, int | np.integer):
    raise UserError(f"k is of type {type(k).__name__}: pass a whole number")
  if not 1 <= k <= num_classes:
    raise ValueError(f"k must be in 1 ... V = {num_classes}, got {k}")


def of_all_devices(
  best: tuple[jax.Array, jax.Array], num_rows: int
) -> tuple[jax.Array, jax.Array]:
  """The best k of all devices, as classes, from each one's best rows of `num_rows`."""
  rows_NK, o_NK = best
  return best_of_devices((shards.class_ids(rows_NK, num_rows), o_NK))


def best_of_devices(best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
  """The best k of all devices, from each one's best classes."""
  if not shards.is_sharded():
    return best
  ids_NK, o_NK = (lax.all_gather(x, shards.AXIS, axis=1, tiled=True) for x in best)
  return _best(ids_NK, o_NK, best[0].shape[1])


def parts_top_k(
  parts: Parts, class_V: jax.Array, k: int, *, dtype=None
) -> tuple[jax.Array, jax.Array]:
  """The k most probable classes, best first.

  Exact. Ties are broken as in `top_k`.

  Args:
    parts: at least one part.
    class_V: i32[V], the class at each place, ascending within each part; on several
      devices, each device has some entries.
    k: number of classes.
    dtype: type of the operands of the products.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: two products of N, V_i and D_i for each part i; memory of one chunk of logits.

  >>> from largevocab.ops.softmax.parts import Part
  >>> parts = (Part(jnp.ones((1, 1)), jnp.array([[1.0], [9.0]])),
  ...          Part(jnp.ones((1, 2)), jnp.array([[1.0, 8.0], [0.0, 1.0]])))
  >>> ids_NK, _ = parts_top_k(parts, jnp.array([1, 3, 0, 2]), 3)
  >>> ids_NK.tolist()
  [[0, 3, 1]]
  """
  V, N = shards.num_classes(check_shapes(class_V=class_V)["V"]), len(parts[0].h_ND)
  check_k(k, V)
  _, log_z_N = parts_nll(
    parts, jnp.zeros((N, 0), jnp.int32), jnp.zeros((N, 0)), dtype=dtype
  )
  best = none_best(N, k, V, log_z_N.dtype)
  start = 0
  for part in parts:
    with shards.table(part.size):
      size = shards.num_classes(len(part.w_VD))
      at_NK, o_NK = top_k(part.h_ND, part.w_VD, min(k, size), dtype=dtype)
    best = best_of_both(best, (shards.rows_of(class_V, start + at_NK), o_NK))
    start += size
  ids_NK, o_NK = best
  return ids_NK, o_NK - log_z_N[:, None]
