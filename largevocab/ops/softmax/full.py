"""The exact softmax loss over all classes, and its gradient, in chunks."""

import jax

from largevocab.ops.softmax.log_partition import ChunkScore, logit
from largevocab.ops.softmax.parts import Part, parts_loss
from largevocab.ops.softmax.plan import Plan


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
  """loss = sum_np w_NP * (log_z_N - o[ids_NP]), with o_NV = h_ND @ w_VD.T.

  A bias is another column of the table: `largevocab.ops.softmax.bias`. For classes in
  several tables see `largevocab.ops.softmax.parts`.

  Args:
    h_ND: float[N, D], activations.
    w_VD: float[V, D], class table.
    ids_NP: i32[N, P], true classes, padded with V.
    w_NP: f32[N, P], their weights, 0 on padding. Divide them by their sum for a mean.
    how: the method and its chunks, from `plan`.
    score: function of the logits that is exponentiated.
    dtype: type of the operands of the products, by default that of the arguments;
      logits, sums and gradients are at least float32.

  Returns:
    f32[], nats. An example whose weights are all 0 adds 0.

  Source: Blanc & Rendle 2018, equation 11 (absolute softmax).

  Cost: 3 or 4 products of N V D, depending on the method; memory of one chunk of
    logits.

  >>> import jax.numpy as jnp
  >>> from largevocab.ops.softmax.plan import plan
  >>> w_VD, how = jnp.zeros((5, 3)), plan(2, 5, 3, 2**20)
  >>> ids_NP, w_NP = jnp.array([[0], [1]]), jnp.full((2, 1), 0.5)
  >>> f"{softmax_loss(jnp.ones((2, 3)), w_VD, ids_NP, w_NP, how):.4f}"  # log 5
  '1.6094'
  """
  table = (Part(h_ND, w_VD),)
  return parts_loss(table, ids_NP, w_NP, how, score=score, dtype=dtype)
