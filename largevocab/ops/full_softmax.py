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
  compute_dtype,
  even_chunks,
  ids_in_chunk,
  logits,
  product,
  scan_classes,
  sum_dtype,
)
from largevocab.ops.normalizer import (
  example_chunks,
  nll_of,
  normalize,
  normalize_by_classes,
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
  examples: int,
  classes: int | None = None,
  absolute: bool = False,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive`, some examples at a time.

  When differentiated, the forward pass computes the gradient of each chunk while it
  has the logits.

  Args:
    examples: how many a chunk.
    classes: how many of their logits to go through at a time: few stay in the cache. By
      default all, with which a table sharded over classes stays sharded.
    The others: see `softmax_loss_naive`.

  Returns:
    f32[], nats.

  Cost: 3 products of N V D. Holds [examples, V] and [examples, classes]; by default
    [V, D] if that is larger.

  >>> h_ND, w_VD = jnp.eye(3), jnp.eye(3)
  >>> ids_NP, w_NP = jnp.arange(3)[:, None], jnp.ones((3, 1))
  >>> loss = softmax_loss_by_examples(h_ND, w_VD, ids_NP, w_NP, examples=2)
  >>> jnp.allclose(loss, softmax_loss_naive(h_ND, w_VD, ids_NP, w_NP)).item()
  True
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  examples = even_chunks(h_ND.shape[0], examples).size
  classes = even_chunks(w_VD.shape[0], classes or w_VD.shape[0]).size
  dtype = compute_dtype(h_ND, w_VD, dtype)
  return _by_examples(h_ND, w_VD, ids_NP, w_NP, examples, classes, absolute, dtype)


def softmax_loss_by_classes(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  classes: int,
  absolute: bool = False,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive`, some classes at a time.

  The backward pass computes the logits again. The gradient of the table is written
  chunk by chunk: there is no second array of its size.

  Args:
    classes: how many a chunk.
    The others: see `softmax_loss_naive`.

  Returns:
    f32[], nats.

  Cost: 4 products of N V D; holds [N, classes] twice.

  >>> h_ND, w_VD = jnp.eye(3), jnp.eye(3)
  >>> ids_NP, w_NP = jnp.arange(3)[:, None], jnp.ones((3, 1))
  >>> loss = softmax_loss_by_classes(h_ND, w_VD, ids_NP, w_NP, classes=2)
  >>> jnp.allclose(loss, softmax_loss_naive(h_ND, w_VD, ids_NP, w_NP)).item()
  True
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  classes = even_chunks(w_VD.shape[0], classes).size
  dtype = compute_dtype(h_ND, w_VD, dtype)
  return _by_classes(h_ND, w_VD, ids_NP, w_NP, classes, absolute, dtype)


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
  """`softmax_loss_naive` by the method and chunks of the plan.

  >>> from largevocab.ops.softmax_plan import plan
  >>> w_VD, how = jnp.zeros((5, 3)), plan(2, 5, 3, 2**20)
  >>> ids_NP, w_NP = jnp.array([[0], [1]]), jnp.full((2, 1), 0.5)
  >>> f"{softmax_loss(jnp.ones((2, 3)), w_VD, ids_NP, w_NP, how):.4f}"  # log 5
  '1.6094'
  """
  by_examples = functools.partial(
    softmax_loss_by_examples, examples=how.examples, classes=how.classes
  )
  loss = {
    "reference": softmax_loss_naive,
    "examples": by_examples,
    "tiles": by_examples,
    "classes": functools.partial(softmax_loss_by_classes, classes=how.classes),
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


def _add_class_chunk(
  gradients, chunk, o_NV, h_ND, ids_NP, w_NP, normalized, absolute, dtype
):
  """Adds to (dh_ND, dw_VD) what comes through the logits of a chunk of classes."""
  dh_ND, dw_VD = gradients
  ids_NP = ids_in_chunk(ids_NP, chunk.start, chunk.is_new_V)
  do_NV = _dlogits(o_NV, normalized, ids_NP, w_NP, absolute)
  do_NV = jnp.where(chunk.is_new_V[None], do_NV, 0)
  dh_ND += product("nv,vd->nd", do_NV, chunk.w_VD, dtype)
  rows_VD = lax.dynamic_slice_in_dim(dw_VD, chunk.start, len(chunk.w_VD))
  rows_VD += product("nv,nd->vd", do_NV, h_ND, dtype).astype(dw_VD.dtype)
  return dh_ND, lax.dynamic_update_slice_in_dim(dw_VD, rows_VD, chunk.start, 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6, 7))
def _by_examples(h_ND, w_VD, ids_NP, w_NP, examples, classes, absolute, dtype):
  normalized = normalize(h_ND, w_VD, ids_NP, examples, classes, absolute, dtype)
  return _loss(normalized, w_NP, absolute)


def _by_examples_forward(h_ND, w_VD, ids_NP, w_NP, examples, classes, absolute, dtype):
  N, V = h_ND.shape[0], w_VD.shape[0]
  # A few rows at a time are cast when they are needed.
  cast_w_VD = w_VD.astype(dtype) if classes == V else w_VD

  def add_examples(dw_VD, chunk):
    h_ND, ids_NP, w_NP = chunk
    normalized, o_KNV = normalize_by_classes(
      h_ND, cast_w_VD, ids_NP, classes, absolute, dtype, keep=True
    )

    def add_classes(gradients, chunk, o_NV):
      rest = h_ND, ids_NP, w_NP, normalized, absolute, dtype
      return _add_class_chunk(gradients, chunk, o_NV, *rest), None

    gradients = jnp.zeros(h_ND.shape, sum_dtype(dtype)), dw_VD
    (dh_ND, dw_VD), _ = scan_classes(add_classes, gradients, cast_w_VD, classes, o_KNV)
    return dw_VD, (dh_ND, normalized)

  dw_VD, stacked = lax.scan(
    add_examples,
    jnp.zeros(w_VD.shape, sum_dtype(dtype)),
    example_chunks(examples, (h_ND, 0), (ids_NP, V), (w_NP, 0)),
  )
  dh_ND, normalized = unchunked(stacked, N)
  gradients = (
    dh_ND.astype(h_ND.dtype),
    dw_VD.astype(w_VD.dtype),
    nll_of(normalized, absolute).astype(w_NP.dtype),
  )
  return _loss(normalized, w_NP, absolute), gradients


def _by_examples_backward(examples, classes, absolute, dtype, gradients, g):
  dh_ND, dw_VD, dw_NP = (x * g.astype(x.dtype) for x in gradients)
  return dh_ND, dw_VD, None, dw_NP


_by_examples.defvjp(_by_examples_forward, _by_examples_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _by_classes(h_ND, w_VD, ids_NP, w_NP, classes, absolute, dtype):
  return _by_classes_forward(h_ND, w_VD, ids_NP, w_NP, classes, absolute, dtype)[0]


def _by_classes_forward(h_ND, w_VD, ids_NP, w_NP, classes, absolute, dtype):
  normalized, _ = normalize_by_classes(h_ND, w_VD, ids_NP, classes, absolute, dtype)
  residuals = h_ND, w_VD, ids_NP, w_NP, normalized
  return _loss(normalized, w_NP, absolute), residuals


def _by_classes_backward(classes, absolute, dtype, residuals, g):
  h_ND, w_VD, ids_NP, w_NP, normalized = residuals
  cast_h_ND = h_ND.astype(dtype)

  def add_classes(gradients, chunk, _):
    o_NV = logits(cast_h_ND, chunk.w_VD, dtype)
    rest = cast_h_ND, ids_NP, g * w_NP, normalized, absolute, dtype
    return _add_class_chunk(gradients, chunk, o_NV, *rest), None

  dh_ND = jnp.zeros(h_ND.shape, sum_dtype(dtype))
  gradients = dh_ND, jnp.zeros_like(w_VD)
  (dh_ND, dw_VD), _ = scan_classes(add_classes, gradients, w_VD, classes)
  dw_NP = g * nll_of(normalized, absolute)
  return dh_ND.astype(h_ND.dtype), dw_VD, None, dw_NP.astype(w_NP.dtype)


_by_classes.defvjp(_by_classes_forward, _by_classes_backward)
