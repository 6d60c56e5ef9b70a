"""Exact top k classes of an adaptive softmax, skipping tails that cannot have any.

Here J is the number of tails.
"""

import jax
import jax.numpy as jnp

from largevocab.ops import shards
from largevocab.ops.adaptive.model import Model
from largevocab.ops.passes import over_live
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype, logits
from largevocab.ops.softmax.log_partition import log_normalizer
from largevocab.ops.softmax.top_k import best_of_both, check_k, none_best, top_k

_TURN = 64  # examples per round of a tail
_SLACK = 1e-5  # nats, tolerance for rounding


def adaptive_top_k(
  h_ND: jax.Array, model: Model, class_V: jax.Array, k: int, *, dtype=None
) -> tuple[jax.Array, jax.Array]:
  """The k most probable classes, best first.

  Exact: no class of a tail is more probable than the tail itself, so an example
  evaluates a tail only if the tail is as probable as its k-th best class so far. Ties
  are broken by smaller class id.

  Args:
    h_ND: float[N, D], activations.
    model: all parameters.
    class_V: i32[V], the class at each place, ascending within each cluster; on several
      devices, each device has some entries.
    k: number of classes.
    dtype: type of the operands of the products.

  Returns:
    ids i32[N, k] and their log-probabilities f32[N, k].

  Raises:
    ValueError: k is not in 1 ... V.

  Cost: two products of N with the short-list, and two with the rows of a tail for the
    examples that need it, 64 at a time.

  >>> import jax.numpy as jnp
  >>> from largevocab.ops.adaptive.model import Tail
  >>> tail = Tail(jnp.ones((1, 2)), jnp.array([[0.0], [9.0]]))
  >>> model = Model(jnp.array([[0.0, 0.0], [0.5, 0.5]]), (tail,))
  >>> ids_NK, _ = adaptive_top_k(jnp.ones((1, 2)), model, jnp.array([1, 0, 2]), 2)
  >>> ids_NK.tolist()
  [[2, 1]]
  """
  check_shapes(h_ND=h_ND, class_V=class_V)
  V, (short, *others) = shards.num_classes(len(class_V)), model.sizes
  check_k(k, V)
  x_ND = model.features(h_ND)
  dtype = compute_dtype(x_ND, model.head_VD, dtype)
  # Slicing the short-list would gather a sharded array.
  num_rows = model.head_size
  with shards.table(num_rows):
    log_z_N = log_normalizer(x_ND, model.head_VD, dtype=dtype)
    num = min(k + len(others), num_rows)
    at_NK, o_NK = top_k(x_ND, model.head_VD, num, dtype=dtype)
    o_NJ = _tail_logits(x_ND, model, dtype)
  is_class_NK = at_NK < short
  ids_NK = jnp.where(is_class_NK, shards.rows_of(class_V, at_NK), V)
  log_p_NK = jnp.where(is_class_NK, o_NK - log_z_N[:, None], -jnp.inf)
  best = best_of_both(none_best(len(h_ND), k, V, o_NK.dtype), (ids_NK, log_p_NK))
  log_p_NJ = o_NJ - log_z_N[:, None]

  start = short
  for i, (tail, size) in enumerate(zip(model.tails, others, strict=True)):
    log_p_N = log_p_NJ[:, i]

    def look(best, at_K, tail=tail, start=start, size=size, log_p_N=log_p_N):
      take = lambda x: x.at[at_K].get(mode="clip")
      x_KE = tail.features(take(h_ND), dtype)
      with shards.table(size):
        at_NK, o_NK = top_k(x_KE, tail.rows_VE, min(k, size), dtype=dtype)
        log_z_K = log_normalizer(x_KE, tail.rows_VE, dtype=dtype)
      ids_NK = shards.rows_of(class_V, start + at_NK)
      more = ids_NK, o_NK + (take(log_p_N) - log_z_K)[:, None]
      merged = best_of_both(jax.tree.map(take, best), more)
      put = lambda all_NK, new_NK: all_NK.at[at_K].set(new_NK, mode="drop")
      return jax.tree.map(put, best, merged)

    may_have_N = ~(log_p_N + _SLACK < best[1][:, -1])  # True for NaN
    best = over_live(look, best, may_have_N, min(_TURN, len(h_ND)))
    start += size
  return best


def _tail_logits(x_ND: jax.Array, model: Model, dtype) -> jax.Array:
  """The logits of the tails, each from the device that has its row."""
  num_rows = len(model.head_VD)
  tails_J = jnp.arange(model.sizes[0], model.head_size)
  here_J = shards.own_rows(tails_J, num_rows)
  o_NJ = logits(x_ND, model.head_VD.at[here_J].get(mode="clip"), dtype)
  return shards.from_owner(o_NJ, here_J < num_rows)
