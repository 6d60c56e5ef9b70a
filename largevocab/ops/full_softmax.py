"""The exact softmax loss over all classes, and its gradient, in chunks.

Three functions of one meaning: `softmax_loss_naive` is the reference,
`softmax_loss_by_examples` and `softmax_loss_by_classes` never hold [N, V].
`softmax_loss` calls the one that a `Plan` names.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.class_chunks import (
  class_chunk,
  compute_dtype,
  even_chunks,
  ids_in_chunk,
  logits,
  product,
)
from largevocab.ops.normalizer import (
  example_chunks,
  nll_of,
  normalize_by_classes,
  normalize_by_examples,
  normalized_logits,
  score,
  unchunked,
)
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax_plan import Plan


def softmax_loss_naive(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  absolute: bool = False,
  dtype=None,
) -> jax.Array:
  """loss = sum_np w_NP * (log_z_N - o[ids_NP]), with o_NV = h_ND @ w_VD.T.

  A bias is one more column of the table: `largevocab.ops.constant_feature`.

  Args:
    h_ND: float[N, D], activations.
    w_VD: float[V, D], class table.
    ids_NP: i32[N, P], true classes, padded with V.
    w_NP: f32[N, P], their weights, 0 on padding. Divide them by their sum for a mean.
    absolute: softmax of |o| instead of o.
    dtype: of the operands of the products, if not that of the arguments; logits, sums
      and gradients are at least float32.

  Returns:
    f32[], nats. An example whose weights are all 0 adds 0.

  Source: Blanc & Rendle 2018, equation 11 (absolute softmax).

  Cost: 3 products of N V D; holds [N, V] twice.

  >>> ids_NP, w_NP = jnp.array([[0], [5]]), jnp.array([[1.0], [0.0]])
  >>> loss = softmax_loss_naive(jnp.zeros((2, 3)), jnp.zeros((5, 3)), ids_NP, w_NP)
  >>> f"{loss:.4f}"  # log 5
  '1.6094'
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  o_NV = logits(h_ND, w_VD, compute_dtype(h_ND, w_VD, dtype))
  s_NV = score(o_NV, absolute)
  s_NP = jnp.take_along_axis(s_NV, ids_NP, axis=1, mode="fill", fill_value=0)
  return (w_NP * (jax.nn.logsumexp(s_NV, axis=1)[:, None] - s_NP)).sum()


def softmax_loss_by_examples(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  size: int,
  absolute: bool = False,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive`, `size` examples at a time.

  When differentiated, the forward pass computes the gradient of each chunk while it
  has the logits. A table sharded over classes stays sharded.

  Args:
    size: examples a chunk. The others: see `softmax_loss_naive`.

  Returns:
    f32[], nats.

  Cost: 3 products of N V D; holds [size, V] and the larger of [size, V] and [V, D].

  >>> h_ND, w_VD = jnp.eye(3), jnp.eye(3)
  >>> ids_NP, w_NP = jnp.arange(3)[:, None], jnp.ones((3, 1))
  >>> loss = softmax_loss_by_examples(h_ND, w_VD, ids_NP, w_NP, size=2)
  >>> jnp.allclose(loss, softmax_loss_naive(h_ND, w_VD, ids_NP, w_NP)).item()
  True
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  size = even_chunks(h_ND.shape[0], size).size
  dtype = compute_dtype(h_ND, w_VD, dtype)
  return _by_examples(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype)


def softmax_loss_by_classes(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  size: int,
  absolute: bool = False,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive`, `size` classes at a time.

  The backward pass computes the logits again. The gradient of the table is written
  chunk by chunk: there is no second array of its size.

  Args:
    size: classes a chunk. The others: see `softmax_loss_naive`.

  Returns:
    f32[], nats.

  Cost: 4 products of N V D; holds [N, size] twice.

  >>> h_ND, w_VD = jnp.eye(3), jnp.eye(3)
  >>> ids_NP, w_NP = jnp.arange(3)[:, None], jnp.ones((3, 1))
  >>> loss = softmax_loss_by_classes(h_ND, w_VD, ids_NP, w_NP, size=2)
  >>> jnp.allclose(loss, softmax_loss_naive(h_ND, w_VD, ids_NP, w_NP)).item()
  True
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  size = even_chunks(w_VD.shape[0], size).size
  dtype = compute_dtype(h_ND, w_VD, dtype)
  return _by_classes(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype)


def softmax_loss(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  how: Plan,
  *,
  absolute: bool = False,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive` by the method and chunk size of the plan.

  >>> from largevocab.ops.softmax_plan import plan
  >>> w_VD, how = jnp.zeros((5, 3)), plan(2, 5, 3, 2**20)
  >>> ids_NP, w_NP = jnp.array([[0], [1]]), jnp.full((2, 1), 0.5)
  >>> f"{softmax_loss(jnp.ones((2, 3)), w_VD, ids_NP, w_NP, how):.4f}"  # log 5
  '1.6094'
  """
  loss = {
    "reference": softmax_loss_naive,
    "examples": functools.partial(softmax_loss_by_examples, size=how.size),
    "classes": functools.partial(softmax_loss_by_classes, size=how.size),
  }[how.method]
  return loss(h_ND, w_VD, ids_NP, w_NP, absolute=absolute, dtype=dtype)


def _loss(normalized, w_NP, absolute):
  return (w_NP * nll_of(normalized, absolute)).sum()


def _dlogits(o_NV, normalized, ids_NP, w_NP, absolute):
  """d loss / d o_NV; ids >= V are none of these classes."""
  w_NP = w_NP.astype(o_NV.dtype)
  scale_N = w_NP.sum(axis=1) / normalized.sum_N
  do_NV = jnp.exp(score(o_NV, absolute) - normalized.max_N[:, None]) * scale_N[:, None]
  if absolute:
    do_NV = jnp.where(o_NV >= 0, do_NV, -do_NV)
    w_NP = jnp.where(normalized.o_NP >= 0, w_NP, -w_NP)
  # Subtracted before the products: 1 - p would be lost to rounding after them.
  return do_NV.at[jnp.arange(len(w_NP))[:, None], ids_NP].add(-w_NP, mode="drop")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _by_examples(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype):
  normalized = normalize_by_examples(h_ND, w_VD, ids_NP, size, absolute, dtype)
  return _loss(normalized, w_NP, absolute)


def _by_examples_forward(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype):
  N, V = h_ND.shape[0], w_VD.shape[0]
  cast_w_VD = w_VD.astype(dtype)

  def add_chunk(dw_VD, chunk):
    h_ND, ids_NP, w_NP = chunk
    o_NV = logits(h_ND, cast_w_VD, dtype)
    normalized = normalized_logits(o_NV, ids_NP, absolute)
    do_NV = _dlogits(o_NV, normalized, ids_NP, w_NP, absolute)
    dh_ND = product("nv,vd->nd", do_NV, cast_w_VD, dtype)
    dw_VD += product("nv,nd->vd", do_NV, h_ND, dtype)
    return dw_VD, (dh_ND, normalized)

  dw_VD, stacked = lax.scan(
    add_chunk,
    jnp.zeros(w_VD.shape, jnp.promote_types(dtype, jnp.float32)),
    example_chunks(size, (h_ND, 0), (ids_NP, V), (w_NP, 0)),
  )
  dh_ND, normalized = unchunked(stacked, N)
  gradients = (
    dh_ND.astype(h_ND.dtype),
    dw_VD.astype(w_VD.dtype),
    nll_of(normalized, absolute).astype(w_NP.dtype),
  )
  return _loss(normalized, w_NP, absolute), gradients


def _by_examples_backward(size, absolute, dtype, gradients, g):
  dh_ND, dw_VD, dw_NP = (x * g.astype(x.dtype) for x in gradients)
  return dh_ND, dw_VD, None, dw_NP


_by_examples.defvjp(_by_examples_forward, _by_examples_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _by_classes(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype):
  return _by_classes_forward(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype)[0]


def _by_classes_forward(h_ND, w_VD, ids_NP, w_NP, size, absolute, dtype):
  normalized = normalize_by_classes(h_ND, w_VD, ids_NP, size, absolute, dtype)
  residuals = h_ND, w_VD, ids_NP, w_NP, normalized
  return _loss(normalized, w_NP, absolute), residuals


def _by_classes_backward(size, absolute, dtype, residuals, g):
  h_ND, w_VD, ids_NP, w_NP, normalized = residuals
  cast_h_ND = h_ND.astype(dtype)

  def add_chunk(carry, i):
    dh_ND, dw_VD = carry
    chunk = class_chunk(w_VD, i, size)
    chunk_w_VD = chunk.w_VD.astype(dtype)
    ids = ids_in_chunk(ids_NP, chunk.start, chunk.is_new_V)
    o_NV = logits(cast_h_ND, chunk_w_VD, dtype)
    do_NV = _dlogits(o_NV, normalized, ids, g * w_NP, absolute)
    do_NV = jnp.where(chunk.is_new_V[None], do_NV, 0)
    dh_ND += product("nv,vd->nd", do_NV, chunk_w_VD, dtype)
    rows_VD = product("nv,nd->vd", do_NV, cast_h_ND, dtype).astype(dw_VD.dtype)
    old_VD = lax.dynamic_slice_in_dim(dw_VD, chunk.start, size)
    rows_VD = jnp.where(chunk.is_new_V[:, None], rows_VD, old_VD)
    return (
      dh_ND,
      lax.dynamic_update_slice_in_dim(dw_VD, rows_VD, chunk.start, 0),
    ), None

  (dh_ND, dw_VD), _ = lax.scan(
    add_chunk,
    (
      jnp.zeros(h_ND.shape, jnp.promote_types(dtype, jnp.float32)),
      jnp.zeros_like(w_VD),
    ),
    jnp.arange(even_chunks(w_VD.shape[0], size).num),
  )
  dw_NP = g * nll_of(normalized, absolute)
  return dh_ND.astype(h_ND.dtype), dw_VD, None, dw_NP.astype(w_NP.dtype)


_by_classes.defvjp(_by_classes_forward, _by_classes_backward)
