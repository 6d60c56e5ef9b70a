"""One softmax over classes in several tables: exact loss and gradient, in chunks.

  p(c | h) = exp(o_c) / sum over the classes of all parts of exp(o)

Each part has its own table and its own features of the activations, whose widths may
differ. A class is identified by its place: part after part. With one part this is the
ordinary softmax, `largevocab.ops.softmax.full`.

Here K is the number of chunks of kept logits.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import (
  compute_dtype,
  even_chunks,
  ids_in_chunk,
  logits,
  product,
  scan_classes,
  sum_dtype,
  wide,
)
from largevocab.ops.softmax.log_partition import (
  ChunkScore,
  RowScore,
  example_chunks,
  joined,
  logit,
  mean_nll,
  nll_of,
  normalize,
  normalize_by_classes,
  normalize_for_reading,
  of_all_devices,
  scores_of,
  unchunked,
)
from largevocab.ops.softmax.plan import Plan


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Part:
  """Classes of one table: o_NV = h_ND @ w_VD.T.

  Attributes:
    h_ND: float[N, D], features of the activations for this part.
    w_VD: float[V, D], a row for each class of the part that is on this device.
    size: number of classes on all devices; None: that of the whole model. Static.
  """

  h_ND: jax.Array
  w_VD: jax.Array
  size: int | None = field(default=None, metadata={"static": True})


Parts = tuple[Part, ...]


def parts_loss_naive(
  parts: Parts,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """loss = sum_np w_NP * (log_z_N - o[ids_NP]), with o the logits of all parts.

  Args:
    parts: at least one part.
    ids_NP: i32[N, P], places of true classes; V, the number of all classes, is padding.
    w_NP: f32[N, P], their weights, 0 on padding. Divide them by their sum for a mean.
    score: function of the logits that is exponentiated.
    dtype: type of the operands of the products, by default that of the arguments;
      logits, sums and gradients are at least float32.

  Returns:
    f32[], nats. An example whose weights are all 0 adds 0.

  Cost: 3 products of N, V_i and D_i for each part i; holds [N, V] twice.

  >>> parts = Part(jnp.ones((1, 3)), jnp.zeros((3, 3))), Part(*2 * [jnp.zeros((1, 1))])
  >>> f"{parts_loss_naive(parts, jnp.array([[3]]), jnp.ones((1, 1))):.4f}"  # log 4
  '1.3863'
  """
  dtype = _check(parts, ids_NP, w_NP, dtype)

  def scores(part, ids_NP):
    o_NV, V = logits(part.h_ND, part.w_VD, dtype), len(part.w_VD)
    at_NP = ids_in_chunk(ids_NP, jnp.int32(0), jnp.ones(V, bool))
    s_NV = scores_of(score, o_NV, part.w_VD, at_NP)
    is_class_V = shards.used(jnp.arange(V), V, jnp.ones(V, bool))
    return jnp.where(is_class_V[None], s_NV, -jnp.inf)

  s_NV = jnp.concatenate(_of_each(scores, parts, ids_NP), axis=1)
  s_NP = jnp.take_along_axis(s_NV, ids_NP, axis=1, mode="fill", fill_value=0)
  return (w_NP * (shards.logsumexp(s_NV, axis=1)[:, None] - shards.psum(s_NP))).sum()


def parts_loss(
  parts: Parts,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  how: Plan,
  *,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """`parts_loss_naive` with the method and chunks of the plan.

  Never holds [N, V], except for the method 'reference'.

  Args:
    how: plan for the number of all classes and the sum of all widths.
    The others: see `parts_loss_naive`.

  >>> from largevocab.ops.softmax.plan import plan
  >>> parts = Part(jnp.ones((1, 3)), jnp.zeros((3, 3))), Part(*2 * [jnp.zeros((1, 1))])
  >>> ids_NP, w_NP, how = jnp.array([[3]]), jnp.ones((1, 1)), plan(1, 4, 3, 2**20)
  >>> f"{parts_loss(parts, ids_NP, w_NP, how):.4f}"  # log 4
  '1.3863'
  """
  by_examples = functools.partial(
    parts_loss_by_examples, examples=how.examples, classes=how.classes
  )
  loss = {
    "reference": parts_loss_naive,
    "examples": by_examples,
    "tiles": by_examples,
    "classes": functools.partial(parts_loss_by_classes, classes=how.classes),
  }[how.method]
  return loss(parts, ids_NP, w_NP, score=score, dtype=dtype)


def parts_loss_by_examples(
  parts: Parts,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  examples: int,
  classes: int | None = None,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """`parts_loss_naive` in chunks of examples.

  When differentiated, the forward pass computes the gradient of each chunk while its
  logits are in memory.

  Args:
    examples: number of examples per chunk.
    classes: maximum number of logits to process at a time; few stay in the cache. None:
      those of a part.
    The others: see `parts_loss_naive`.

  Cost: as for `parts_loss_naive`. Holds [examples, V] and [examples, classes].

  >>> parts = Part(jnp.eye(3), jnp.eye(3)), Part(jnp.ones((3, 1)), jnp.ones((2, 1)))
  >>> ids_NP, w_NP = jnp.array([[0], [4], [2]]), jnp.ones((3, 1))
  >>> loss = parts_loss_by_examples(parts, ids_NP, w_NP, examples=2)
  >>> jnp.allclose(loss, parts_loss_naive(parts, ids_NP, w_NP)).item()
  True
  """
  dtype = _check(parts, ids_NP, w_NP, dtype)
  examples = even_chunks(len(ids_NP), examples).size
  classes = classes or max(len(part.w_VD) for part in parts)
  return _by_examples(parts, ids_NP, w_NP, examples, classes, score, dtype)


def parts_loss_by_classes(
  parts: Parts,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  classes: int,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """`parts_loss_naive` in chunks of classes of a part.

  The backward pass recomputes the logits. The gradient of a table is written chunk by
  chunk, without a second array of its size.

  Args:
    classes: maximum number of classes per chunk.
    The others: see `parts_loss_naive`.

  Cost: 4 products where `parts_loss_naive` has 3; holds [N, classes] twice.

  >>> parts = Part(jnp.eye(3), jnp.eye(3)), Part(jnp.ones((3, 1)), jnp.ones((2, 1)))
  >>> ids_NP, w_NP = jnp.array([[0], [4], [2]]), jnp.ones((3, 1))
  >>> loss = parts_loss_by_classes(parts, ids_NP, w_NP, classes=2)
  >>> jnp.allclose(loss, parts_loss_naive(parts, ids_NP, w_NP)).item()
  True
  """
  dtype = _check(parts, ids_NP, w_NP, dtype)
  return _by_classes(parts, ids_NP, w_NP, classes, score, dtype)


def parts_nll(
  parts: Parts,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  dtype=None,
) -> tuple[jax.Array, jax.Array]:
  """Exact nll_N, the mean of log_z_N - o[ids_NP] with weights w_NP, and log_z_N.

  Args:
    As in `parts_loss_naive`.

  Returns:
    Both f32[N], nats; the nll of an example without weight is 0.

  Cost: a product of N, V_i and D_i for each part i; memory of one chunk of logits.

  >>> parts = Part(jnp.ones((1, 3)), jnp.zeros((3, 3))), Part(*2 * [jnp.zeros((1, 1))])
  >>> both = parts_nll(parts, jnp.array([[3]]), jnp.ones((1, 1)))
  >>> [f"{x_N[0]:.4f}" for x_N in both]  # log 4
  ['1.3863', '1.3863']
  """
  dtype = _check(parts, ids_NP, w_NP, dtype)

  def of_part(part, at_NP):
    return normalize_for_reading(part.h_ND, part.w_VD, at_NP, logit, dtype)

  normalized = of_all_devices(joined(_of_each(of_part, parts, ids_NP)))
  log_z_N = normalized.max_N + jnp.log(normalized.sum_N)
  return mean_nll(normalized, w_NP), log_z_N


def _check(parts, ids_NP, w_NP, dtype):
  """The dtype of the products."""
  for part in parts:
    check_shapes(h_ND=part.h_ND, w_VD=part.w_VD, ids_NP=ids_NP, w_NP=w_NP)
  return compute_dtype(parts[0].h_ND, parts[0].w_VD, dtype)


def own_places(parts: Parts, place_NP: jax.Array) -> jax.Array:
  """Places among the classes of all devices, as ids for the functions here.

  These ids are places among the rows of this device, and the number of these rows for
  classes of other devices and for padding.

  >>> parts = Part(jnp.ones((1, 3)), jnp.zeros((3, 3))), Part(*2 * [jnp.zeros((1, 1))])
  >>> own_places(parts, jnp.array([[2, 3, 4]])).tolist()
  [[2, 3, 4]]
  """
  if not shards.is_sharded():
    return place_NP
  own_NP = jnp.full_like(place_NP, sum(len(part.w_VD) for part in parts))
  first = start = 0
  for part in parts:
    num = len(part.w_VD)
    with shards.table(part.size):
      row_NP = shards.own_rows(place_NP - start, num)
      start += shards.num_classes(num)
    own_NP = jnp.where(row_NP < num, first + row_NP, own_NP)
    first += num
  return own_NP


def _of_each(
  body: Callable[..., Any], parts: Parts, ids_NP: jax.Array, *others: Any
) -> list[Any]:
  """body(part, ids_NP, *others) for each part.

  Ids are relative to the part's first row, and out of range if not in the part.
  """
  results, start = [], 0
  for part, *its_own in zip(parts, *others, strict=True):
    with shards.table(part.size):
      results.append(body(part, ids_NP - start, *its_own))
    start += len(part.w_VD)
  return results


def _with(parts: Parts, h, w) -> Parts:
  """Parts of the same sizes, with other arrays."""
  return tuple(map(Part, h, w, (part.size for part in parts)))


def _loss(normalized, w_NP):
  return (w_NP * nll_of(normalized)).sum()


def _dlogits(o_NV, chunk, normalized, at_NP, w_NP, score):
  """d loss / d o_NV of a chunk, and d loss / d w_VD through the score.

  The latter is None if the score does not depend on the rows. Ids >= V are not among
  these classes.
  """

  def scores(o_NV, w_VD):
    return scores_of(score, o_NV, w_VD, at_NP)

  if isinstance(score, RowScore):
    s_NV, pull_back = jax.vjp(scores, o_NV, wide(chunk.w_VD))
  else:
    s_NV, pull_back = jax.vjp(score, o_NV)
  w_NP = w_NP.astype(o_NV.dtype)
  scale_N = w_NP.sum(axis=1) / normalized.sum_N
  ds_NV = jnp.exp(s_NV - normalized.max_N[:, None]) * scale_N[:, None]
  # Subtracted before the products: after them, 1 - p would be lost to rounding.
  ds_NV = ds_NV.at[jnp.arange(len(w_NP))[:, None], at_NP].add(-w_NP, mode="drop")
  do_NV, *dw = pull_back(jnp.where(chunk.is_class_V[None], ds_NV, 0))
  return do_NV, dw[0] if dw else None


def _add_gradient(
  part, ids_NP, dw_VD, o_KNV, w_NP, normalized, classes, score, dtype
) -> tuple[jax.Array, jax.Array]:
  """Gradient with respect to the features of a part; adds that of its table to dw_VD.

  Uses the logits kept as o_KNV, if any; otherwise recomputes them.
  """
  h_ND = part.h_ND.astype(dtype)

  def add_chunk(gradient, chunk, o_NV):
    dh_ND, dw_VD = gradient
    o_NV = logits(h_ND, chunk.w_VD, dtype) if o_NV is None else o_NV
    at_NP = ids_in_chunk(ids_NP, chunk.start, chunk.is_new_V)
    do_NV, by_score_VD = _dlogits(o_NV, chunk, normalized, at_NP, w_NP, score)
    dh_ND += product("nv,vd->nd", do_NV, chunk.w_VD, dtype)
    rows_VD = lax.dynamic_slice_in_dim(dw_VD, chunk.start, len(chunk.w_VD))
    rows_VD += product("nv,nd->vd", do_NV, h_ND, dtype).astype(dw_VD.dtype)
    if by_score_VD is not None:
      rows_VD += by_score_VD.astype(dw_VD.dtype)
    dw_VD = lax.dynamic_update_slice_in_dim(dw_VD, rows_VD, chunk.start, 0)
    return (dh_ND, dw_VD), None

  zero = jnp.zeros(h_ND.shape, sum_dtype(dtype)), dw_VD
  return scan_classes(add_chunk, zero, part.w_VD, classes, o_KNV)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5, 6))
def _by_examples(parts, ids_NP, w_NP, examples, classes, score, dtype):
  def of_part(part, at_NP):
    return normalize(part.h_ND, part.w_VD, at_NP, examples, classes, score, dtype)

  normalized = joined(_of_each(of_part, parts, ids_NP))
  return _loss(of_all_devices(normalized), w_NP)


def _by_examples_forward(parts, ids_NP, w_NP, examples, classes, score, dtype):
  N, V = len(ids_NP), sum(len(part.w_VD) for part in parts)
  w = [part.w_VD for part in parts]
  # With small chunks, rows are cast when needed.
  cast_w = [w_VD.astype(dtype) if classes >= len(w_VD) else w_VD for w_VD in w]

  def of_part(part, at_NP):
    h_ND, w_VD = part.h_ND, part.w_VD
    return normalize_by_classes(h_ND, w_VD, at_NP, classes, score, dtype, keep=True)

  def add_examples(dw, chunk):
    ids_NP, w_NP, *h = chunk
    here = _with(parts, h, cast_w)
    each, kept = zip(*_of_each(of_part, here, ids_NP), strict=True)
    normalized = of_all_devices(joined(each))
    how = {"classes": classes, "score": score, "dtype": dtype}
    add = functools.partial(_add_gradient, w_NP=w_NP, normalized=normalized, **how)
    dh, dw = zip(*_of_each(add, here, ids_NP, dw, kept), strict=True)
    return dw, (dh, normalized)

  dw, stacked = lax.scan(
    add_examples,
    tuple(jnp.zeros(w_VD.shape, sum_dtype(dtype)) for w_VD in w),
    example_chunks(examples, (ids_NP, V), (w_NP, 0), *((p.h_ND, 0) for p in parts)),
  )
  dh, normalized = unchunked(stacked, N)
  gradients = _with(parts, dh, dw), nll_of(normalized)
  as_given = jax.tree.map(lambda g, x: g.astype(x.dtype), gradients, (parts, w_NP))
  return _loss(normalized, w_NP), as_given


def _by_examples_backward(examples, classes, score, dtype, gradients, g):
  dparts, dw_NP = jax.tree.map(lambda x: x * g.astype(x.dtype), gradients)
  return dparts, None, dw_NP


_by_examples.defvjp(_by_examples_forward, _by_examples_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _by_classes(parts, ids_NP, w_NP, classes, score, dtype):
  return _by_classes_forward(parts, ids_NP, w_NP, classes, score, dtype)[0]


def _by_classes_forward(parts, ids_NP, w_NP, classes, score, dtype):
  def of_part(part, at_NP):
    h_ND, w_VD = part.h_ND, part.w_VD
    return normalize_by_classes(h_ND, w_VD, at_NP, classes, score, dtype)[0]

  normalized = of_all_devices(joined(_of_each(of_part, parts, ids_NP)))
  return _loss(normalized, w_NP), (parts, ids_NP, w_NP, normalized)


def _by_classes_backward(classes, score, dtype, residuals, g):
  parts, ids_NP, w_NP, normalized = residuals
  rest = None, g * w_NP, normalized, classes, score, dtype

  def of_part(part, at_NP):
    return _add_gradient(part, at_NP, jnp.zeros_like(part.w_VD), *rest)

  dh, dw = zip(*_of_each(of_part, parts, ids_NP), strict=True)
  gradients = _with(parts, dh, dw), g * nll_of(normalized)
  as_given = jax.tree.map(lambda g, x: g.astype(x.dtype), gradients, (parts, w_NP))
  return as_given[0], None, as_given[1]


_by_classes.defvjp(_by_classes_forward, _by_classes_backward)
