"""Exact softmax cross-entropy in chunks, without materialising the logits [N, V]."""

import jax
import jax.numpy as jnp

from largevocab.labels import Targets, known_targets
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.log_partition import Score, logit
from largevocab.ops.softmax.plan import budget_bytes, plan


def softmax_cross_entropy(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  budget_mib: float = 0,
  score: Score = logit,
  dtype=None,
) -> jax.Array:
  """Exact softmax cross-entropy, without holding all logits.

    loss = sum over n, p of w_np (log Z_n - o_np)

  with o = h W^T and the log-partition function log Z_n = log sum over all classes of
  exp(o_nc).

  The loss is differentiable in h, W and the weights, in reverse mode. With one class of
  weight 1 per example it is the sum of
  `optax.softmax_cross_entropy_with_integer_labels(h @ W.T, ids)`, computed with no more
  logits and probabilities at a time than fit the budget.

  Args:
    h_ND: f32[N, D], activations. For a bias append a constant column to h.
    w_VD: f32[V, D], class rows.
    ids_NP: i32[N, P], the true classes. Ids outside 0 ... V - 1 are padding.
    w_NP: f32[N, P], their weights, 0 on padding; use 1 / N for a mean over examples. An
      id that is no class and has weight makes the loss NaN.
    budget_mib: temporary memory for loss and gradient, in MiB; 0: 64 on a CPU, 1,024
      elsewhere.
    score: function of the logits that is exponentiated; `absolute_logit` is that of
      Blanc and Rendle.
    dtype: type of the operands of the products; None: the wider of the types of h and
      w. Sums are float32.

  Returns:
    f32[], nats; 0 for no examples.

  Raises:
    ValueError: shapes do not agree.

  Source: Blanc & Rendle 2018, equation 1; equation 11 for `absolute_logit`.
  Cost: 3 products of N V D with the gradient, or 4 if the budget is small.

  >>> h_ND, w_VD = jnp.ones((2, 3)), jnp.zeros((5, 3))
  >>> ids_NP, w_NP = jnp.array([[0], [1]]), jnp.full((2, 1), 0.5)
  >>> f"{softmax_cross_entropy(h_ND, w_VD, ids_NP, w_NP):.4f}"  # log 5
  '1.6094'
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  h_ND, w_VD = jnp.asarray(h_ND), jnp.asarray(w_VD)
  num_classes, dim = w_VD.shape
  if not len(h_ND):
    return jnp.zeros(())
  size = compute_dtype(h_ND, w_VD, dtype).itemsize
  budget = budget_bytes(budget_mib)
  how = plan(len(h_ND), num_classes, dim, budget, compute_bytes=size)
  y = known_targets(Targets(ids_NP, w_NP, jnp.zeros(len(h_ND))), num_classes)
  return softmax_loss(h_ND, w_VD, y.ids_NP, y.w_NP, how, score=score, dtype=dtype)
