"""The exact softmax loss over all classes, and its gradient, in chunks.

Three equivalent functions: `softmax_loss_naive` is the reference;
`softmax_loss_by_examples` and `softmax_loss_by_classes` never hold [N, V].
`softmax_loss` calls the one chosen by a `Plan`.
"""

import jax

from largevocab.ops.softmax.log_partition import ChunkScore, logit
from largevocab.ops.softmax.parts import (
  Part,
  parts_loss,
  parts_loss_by_classes,
  parts_loss_by_examples,
  parts_loss_naive,
)
from largevocab.ops.softmax.plan import Plan


def softmax_loss_naive(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """loss = sum_np w_NP * (log_z_N - o[ids_NP]), with o_NV = h_ND @ w_VD.T.

  A bias is another column of the table: `largevocab.ops.softmax.bias`.

  Args:
    h_ND: float[N, D], activations.
    w_VD: float[V, D], class table.
    ids_NP: i32[N, P], true classes, padded with V.
    w_NP: f32[N, P], their weights, 0 on padding. Divide them by their sum for a mean.
    score: function of the logits that is exponentiated.
    dtype: of the operands of the products, by default that of the arguments; logits,
      sums and gradients are at least float32.

  Returns:
    f32[], nats. An example whose weights are all 0 adds 0.

  Source: Blanc & Rendle 2018, equation 11 (absolute softmax).

  Cost: 3 products of N V D; holds [N, V] twice.

  >>> import jax.numpy as jnp
  >>> ids_NP, w_NP = jnp.array([[0], [5]]), jnp.array([[1.0], [0.0]])
  >>> loss = softmax_loss_naive(jnp.zeros((2, 3)), jnp.zeros((5, 3)), ids_NP, w_NP)
  >>> f"{loss:.4f}"  # log 5
  '1.6094'
  """
  table = (Part(h_ND, w_VD),)
  return parts_loss_naive(table, ids_NP, w_NP, score=score, dtype=dtype)


def softmax_loss_by_examples(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  examples: int,
  classes: int | None = None,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive` in chunks of examples.

  When differentiated, the forward pass computes the gradient of each chunk while its
  logits are in memory.

  Args:
    examples: per chunk.
    classes: logits to process at a time; few stay in the cache. By default all.
    The others: see `softmax_loss_naive`.

  Returns:
    f32[], nats.

  Cost: 3 products of N V D. Holds [examples, V] and [examples, classes]; by default
    [V, D] if that is larger.

  >>> import jax.numpy as jnp
  >>> h_ND, w_VD = jnp.eye(3), jnp.eye(3)
  >>> ids_NP, w_NP = jnp.arange(3)[:, None], jnp.ones((3, 1))
  >>> loss = softmax_loss_by_examples(h_ND, w_VD, ids_NP, w_NP, examples=2)
  >>> jnp.allclose(loss, softmax_loss_naive(h_ND, w_VD, ids_NP, w_NP)).item()
  True
  """
  table, kind = (Part(h_ND, w_VD),), {"score": score, "dtype": dtype}
  return parts_loss_by_examples(
    table, ids_NP, w_NP, examples=examples, classes=classes, **kind
  )


def softmax_loss_by_classes(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  classes: int,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive` in chunks of classes.

  The backward pass recomputes the logits. The gradient of the table is written chunk by
  chunk, without a second array of its size.

  Args:
    classes: per chunk.
    The others: see `softmax_loss_naive`.

  Returns:
    f32[], nats.

  Cost: 4 products of N V D; holds [N, classes] twice.

  >>> import jax.numpy as jnp
  >>> h_ND, w_VD = jnp.eye(3), jnp.eye(3)
  >>> ids_NP, w_NP = jnp.arange(3)[:, None], jnp.ones((3, 1))
  >>> loss = softmax_loss_by_classes(h_ND, w_VD, ids_NP, w_NP, classes=2)
  >>> jnp.allclose(loss, softmax_loss_naive(h_ND, w_VD, ids_NP, w_NP)).item()
  True
  """
  table, kind = (Part(h_ND, w_VD),), {"score": score, "dtype": dtype}
  return parts_loss_by_classes(table, ids_NP, w_NP, classes=classes, **kind)


def softmax_loss(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  how: Plan,
  *,
  score: ChunkScore = logit,
  dtype=None,
) -> jax.Array:
  """`softmax_loss_naive` with the method and chunks of the plan.

  >>> import jax.numpy as jnp
  >>> from largevocab.ops.softmax.plan import plan
  >>> w_VD, how = jnp.zeros((5, 3)), plan(2, 5, 3, 2**20)
  >>> ids_NP, w_NP = jnp.array([[0], [1]]), jnp.full((2, 1), 0.5)
  >>> f"{softmax_loss(jnp.ones((2, 3)), w_VD, ids_NP, w_NP, how):.4f}"  # log 5
  '1.6094'
  """
  table = (Part(h_ND, w_VD),)
  return parts_loss(table, ids_NP, w_NP, how, score=score, dtype=dtype)
