"""Exact steps on W = V U + 1 omega^T for spherical losses of o = W h.

A loss of the spherical family is a function l(o_P, t_P, q, s) of the outputs o_P of an
example's true classes and their targets t_P, of q = |o|^2 and of s = sum of o. Given
Q = W^T W and the sum of W's rows, loss and gradients take O(D^2) an example. The step
W <- W - rate dL/dW, which changes every row of W, is an update of U, of omega and of
the true classes' rows of V.

Source: Vincent et al. 2015, section 4 and algorithm 4; the equations are derived here,
  with rows where the paper has columns.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.ops import shards
from largevocab.ops.factored.table import Factored, dot, outputs_and_pull
from largevocab.ops.merge import merge_rows, sums_of_equals
from largevocab.ops.shapes import check_shapes
from largevocab.ops.tag import TAG, is_valid, joined
from largevocab.ops.together import together

Loss = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


class SphericalGrads(NamedTuple):
  """dL/dW = 2 W H^T diag(dq) H + 1 (ds H) + T, stored as its factors.

  Attributes:
    h_ND: f32[N, D].
    dq_N: f32[N], dL/dq.
    ds_N: f32[N], dL/ds.
    do_NP: f32[N, P], dL/do of the true classes.
    ids_NP: i32[N, P], the true classes, padding >= V. On one of several devices, only
      those of its rows; all other fields cover all true classes.
    gram_ND: f32[N, D], H Q.
    pull_ND: f32[N, D], sum over p of do_np w_p.
    tag: i32[], see `largevocab.ops.tag`. `a + b` is the gradient of the sum.
  """

  h_ND: jax.Array
  dq_N: jax.Array
  ds_N: jax.Array
  do_NP: jax.Array
  ids_NP: jax.Array
  gram_ND: jax.Array
  pull_ND: jax.Array
  tag: ArrayLike = TAG

  def __add__(self, other: "SphericalGrads") -> "SphericalGrads":  # pyrefly: ignore
    return joined_grads([self, other], [1.0, 1.0])


def _values(g: SphericalGrads) -> tuple[jax.Array, ...]:
  return g.dq_N, g.ds_N, g.do_NP


def joined_grads(
  parts: Sequence[SphericalGrads], weights: Sequence[ArrayLike]
) -> SphericalGrads:
  """The weighted sum of gradients at the same W, by concatenating all examples.

  >>> from largevocab.ops.factored.table import factor, implied
  >>> f, loss = factor(jnp.array([[1.0], [2.0]])), lambda o_P, t_P, q, s: q
  >>> args = jnp.ones((1, 1)), jnp.array([[0]]), jnp.ones((1, 1)), jnp.ones(1)
  >>> _, _, grads = value_and_grads(f, loss, *args)
  >>> implied(step(f, joined_grads([grads, grads], [0.5, 0.5]), 0.25)).tolist()
  [[0.5], [1.0]]
  """
  tag = joined(*zip(*((g.ids_NP, g.tag, _values(g)) for g in parts), strict=True))
  most = max(g.ids_NP.shape[1] for g in parts)
  nothing = np.iinfo(np.int32).max  # out of range for any table

  def padded(g: SphericalGrads) -> SphericalGrads:
    missing = (0, 0), (0, most - g.ids_NP.shape[1])
    ids_NP = jnp.pad(g.ids_NP, missing, constant_values=nothing)
    return g._replace(ids_NP=ids_NP, do_NP=jnp.pad(g.do_NP, missing))

  def scaled(g: SphericalGrads, weight: ArrayLike) -> SphericalGrads:
    linear = {key: getattr(g, key) for key in ("dq_N", "ds_N", "do_NP", "pull_ND")}
    return g._replace(
      **{key: (weight * x).astype(x.dtype) for key, x in linear.items()}
    )

  each = [scaled(padded(g), w)[:-1] for g, w in zip(parts, weights, strict=True)]
  return SphericalGrads(*map(jnp.concatenate, zip(*each, strict=True)), tag=tag)


def _equal(f: Factored, g: SphericalGrads) -> jax.Array:
  """f32[N, D], the sum over p of do_np T_p.

  T_c is the sum of do_np h_n for class c, so T^T T = equal^T H. Each device sums over
  its own classes.
  """
  rows_NPD = g.do_NP[:, :, None] * g.h_ND[:, None, :]
  flat_RD = rows_NPD.reshape(-1, rows_NPD.shape[-1])
  equal_RD = sums_of_equals(g.ids_NP.ravel(), flat_RD, len(f.v_VD))
  equal_NPD = equal_RD.reshape(rows_NPD.shape)
  equal_ND = jnp.einsum("np,npd->nd", g.do_NP, equal_NPD, precision="highest")
  return shards.psum(equal_ND)


def distinct(
  ids_NP: jax.Array, t_NP: jax.Array, num_classes: int
) -> tuple[jax.Array, jax.Array]:
  """Merges targets of repeated ids within an example: values are summed.

  Args:
    ids_NP: i32[N, P]; padding >= V.
    t_NP: f32[N, P].
    num_classes: V.

  Returns:
    ids i32[N, P] and values f32[N, P]. Repetitions of an earlier id, and padding, get
    the id V and the value 0.

  Cost: O(N P^2).

  >>> ids, t = distinct(jnp.array([[3, 1, 3]]), jnp.array([[0.5, 0.25, 0.25]]), 5)
  >>> ids.tolist(), t.tolist()
  ([[3, 1, 5]], [[0.75, 0.25, 0.0]])
  """
  P = ids_NP.shape[1]
  same_NPP = ids_NP[:, :, None] == ids_NP[:, None, :]
  is_first_NP = jnp.argmax(same_NPP, axis=2) == jnp.arange(P)[None, :]
  keeps_NP = is_first_NP & (ids_NP < num_classes)
  t_NP = jnp.where(
    keeps_NP, jnp.sum(jnp.where(same_NPP, t_NP[:, None, :], 0), axis=2), 0
  )
  return jnp.where(keeps_NP, ids_NP, num_classes), t_NP


def value_and_grads(
  f: Factored,
  loss: Loss,
  h_ND: jax.Array,
  ids_NP: jax.Array,
  t_NP: jax.Array,
  weight_N: jax.Array,
) -> tuple[jax.Array, jax.Array, SphericalGrads]:
  """L = sum over n of weight_n loss(o_nP, t_nP, q_n, s_n), and its exact gradients.

  Args:
    f: the table.
    loss: loss of one example, differentiated by JAX. Targets of value 0 must not change
      it.
    h_ND: f32[N, D], activations.
    ids_NP: i32[N, P], classes with targets other than 0, distinct within each example;
      padding >= V. Examples may share classes. On one of several devices, classes of
      the others are padding too, but keep their targets.
    t_NP: f32[N, P], the targets; 0 on padding.
    weight_N: f32[N].

  Returns:
    L, dL/dh f32[N, D], and the gradient for `step`.

  Cost: O(N D^2 + N P D).

  >>> from largevocab.ops.factored.table import factor
  >>> f = factor(jnp.array([[1.0], [2.0]]))
  >>> squared = lambda o_P, t_P, q, s: q - 2 * jnp.sum(o_P * t_P) + jnp.sum(t_P**2)
  >>> h_ND, ids_NP, t_NP = jnp.ones((1, 1)), jnp.array([[1]]), jnp.ones((1, 1))
  >>> value, dh_ND, _ = value_and_grads(f, squared, h_ND, ids_NP, t_NP, jnp.ones(1))
  >>> float(value), dh_ND.tolist()  # |(1, 2) - (0, 1)|^2
  (2.0, [[6.0]])
  """
  check_shapes(v_VD=f.v_VD, h_ND=h_ND, ids_NP=ids_NP, t_NP=t_NP, weight_N=weight_N)
  gram_ND = dot(h_ND, f.gram_DD)
  q_N, s_N = jnp.sum(gram_ND * h_ND, axis=1), dot(h_ND, f.sum_D)
  o_NP, pull = outputs_and_pull(f, h_ND, ids_NP)
  each = jax.vmap(jax.value_and_grad(loss, (0, 2, 3)))
  loss_N, (do_NP, dq_N, ds_N) = each(o_NP, t_NP, q_N, s_N)
  # The loss of an example of weight 0 may be infinite or NaN.
  weigh = lambda x, w: jnp.where(w == 0, 0, w * x)
  dq_N, ds_N = weigh(dq_N, weight_N), weigh(ds_N, weight_N)
  do_NP = jnp.where(t_NP == 0, 0, weigh(do_NP, weight_N[:, None]))
  # Rows are changed only after they have been read. Otherwise, if a derivative takes no
  # outputs (squared error), they are read after the change, from a copy of the table.
  loss_N, do_NP, pull_ND = together((loss_N, do_NP, pull(do_NP)))
  dh_ND = 2 * dq_N[:, None] * gram_ND + ds_N[:, None] * f.sum_D[None, :] + pull_ND
  grads = SphericalGrads(h_ND, dq_N, ds_N, do_NP, ids_NP, gram_ND, pull_ND)
  return jnp.sum(weigh(loss_N, weight_N)), dh_ND, grads


def sq_norm(f: Factored, g: SphericalGrads) -> jax.Array:
  """|dL/dW|^2, the squared Frobenius norm, from the factors.

  Cost: O(N D^2), or O(N^2 D) if N < D.

  >>> from largevocab.ops.factored.table import factor
  >>> f = factor(jnp.array([[1.0], [2.0]]))
  >>> loss = lambda o_P, t_P, q, s: q
  >>> args = jnp.ones((1, 1)), jnp.array([[0]]), jnp.ones((1, 1)), jnp.ones(1)
  >>> float(sq_norm(f, value_and_grads(f, loss, *args)[2]))  # of 2 o h^T
  20.0
  """
  c_D, t_D = dot(g.ds_N, g.h_ND), dot(jnp.sum(g.do_NP, axis=1), g.h_ND)
  shrink = _shrink(g)
  # With A = 2 H^T diag(dq) H and R = 1 c^T + T: tr AQA + 2 tr A W^T R + tr R^T R.
  by_gram = jnp.sum(shrink(g.gram_ND) * (2 * g.dq_N)[:, None] * g.h_ND)
  by_rest = jnp.sum(shrink(g.pull_ND) * g.h_ND) + jnp.sum(
    shrink(f.sum_D[None])[0] * c_D
  )
  V = shards.num_classes(len(f.v_VD))
  of_rest = V * jnp.sum(c_D**2) + 2 * jnp.sum(c_D * t_D)
  total = by_gram + 2 * by_rest + of_rest + jnp.sum(_equal(f, g) * g.h_ND)
  return jnp.maximum(total, 0)  # in spite of rounding


def step(f: Factored, g: SphericalGrads, rate: jax.Array) -> Factored:
  """W <- W - rate dL/dW, exactly, with Q, the sum of rows and the inverse updated.

  With A = 2 rate H^T diag(dq) H and R = 1 (ds H) + T, the step is
  W <- W (1 - A) - rate R: U <- U (1 - A), omega likewise minus its part of R, and the
  true classes' rows of V minus rate T U^-1 with the new U. The inverse is updated by
  Woodbury's identity if N < D (Sherman and Morrison's if N = 1), else by solving one
  D x D system.

  Where 1 - A is singular, U has no inverse, and W becomes NaN; near this point, rows
  are rounded. With one example it is at 2 rate dq |h|^2 = 1, the rate that takes |W h|
  to 0.

  Args:
    f: the table. Donate it to avoid a copy of V.
    g: from `value_and_grads`.
    rate: f32[].

  Raises:
    UserError: ids were changed, see `tag`; if they are traced, W is NaN instead.

  Cost: 5 products of N D^2 and 6 of N^2 D if N < D, independent of V; O(D^3) else.

  >>> from largevocab.ops.factored.table import factor
  >>> f = factor(jnp.array([[1.0], [2.0]]))
  >>> loss = lambda o_P, t_P, q, s: q
  >>> args = jnp.ones((1, 1)), jnp.array([[0]]), jnp.ones((1, 1)), jnp.ones(1)
  >>> _, _, grads = value_and_grads(f, loss, *args)
  >>> from largevocab.ops.factored.table import implied
  >>> implied(step(f, grads, 0.25)).tolist()
  [[0.5], [1.0]]
  """
  h_ND, (num_rows, D) = g.h_ND, f.v_VD.shape
  V = shards.num_classes(num_rows)
  is_right = is_valid(g.ids_NP, g.tag, _values(g))
  if is_right is not True:  # traced
    rate = jnp.where(is_right, rate, jnp.nan)
  by_one = _shrink(g)
  shrink = lambda x_RD: rate * by_one(x_RD)
  c_D = rate * dot(g.ds_N, h_ND)
  t_D = rate * dot(jnp.sum(g.do_NP, axis=1), h_ND)
  sum_D = f.sum_D - shrink(f.sum_D[None])[0]
  # Q <- Q - P - P^T with P = half^T H, and the terms of 1 c^T.
  half_ND = 2 * rate * g.dq_N[:, None] * (g.gram_ND - shrink(g.gram_ND) / 2)
  half_ND = half_ND + rate * (g.pull_ND - shrink(g.pull_ND))
  half_ND = half_ND - rate**2 / 2 * _equal(f, g)
  p_DD = dot(half_ND.T, h_ND) + (sum_D - V / 2 * c_D - t_D)[:, None] * c_D[None, :]
  u_inv_DD, back_ND = next_inverse(f.u_inv_DD, h_ND, 2 * rate * g.dq_N)
  v_NPD = rate * g.do_NP[:, :, None] * back_ND[:, None, :]
  ids_R, v_RD = merge_rows(g.ids_NP.ravel(), v_NPD.reshape(-1, D), num_rows)
  return f._replace(
    v_VD=f.v_VD.at[ids_R].add(-v_RD, mode="drop", unique_indices=True),
    u_DD=f.u_DD - shrink(f.u_DD),
    omega_D=f.omega_D - shrink(f.omega_D[None])[0] - c_D,
    gram_DD=f.gram_DD - (p_DD + p_DD.T),
    sum_D=sum_D - V * c_D - t_D,
    u_inv_DD=u_inv_DD,
  )


def dense(w_VD: jax.Array, g: SphericalGrads) -> jax.Array:
  """dL/dW, f32[V, D]: for optimisers other than gradient descent.

  Cost: O(V D^2), or O(N V D) if N < D.

  >>> from largevocab.ops.factored.table import factor
  >>> w_VD, loss = jnp.array([[1.0], [2.0]]), lambda o_P, t_P, q, s: q
  >>> args = jnp.ones((1, 1)), jnp.array([[0]]), jnp.ones((1, 1)), jnp.ones(1)
  >>> dense(w_VD, value_and_grads(factor(w_VD), loss, *args)[2]).tolist()
  [[2.0], [4.0]]
  """
  rows_NPD = g.do_NP[:, :, None] * g.h_ND[:, None, :]
  whole_VD = _shrink(g)(w_VD) + dot(g.ds_N, g.h_ND)[None, :]
  return whole_VD.at[g.ids_NP].add(rows_NPD, mode="drop")


def _shrink(g: SphericalGrads) -> Callable[[jax.Array], jax.Array]:
  """X -> X A with A = 2 H^T diag(dq) H, in the order with the smaller products."""
  h_ND, g_N = g.h_ND, 2 * g.dq_N
  N, D = h_ND.shape
  if N < D:
    return lambda x_RD: dot(dot(x_RD, h_ND.T) * g_N[None, :], h_ND)
  a_DD = dot(h_ND.T * g_N[None, :], h_ND)
  return lambda x_RD: dot(x_RD, a_DD)


def next_inverse(
  u_inv_DD: jax.Array, h_ND: jax.Array, g_N: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The inverse of U (1 - H^T diag(g) H) from that of U, and H times it.

  Args:
    u_inv_DD: f32[D, D], the inverse of U.
    h_ND: f32[N, D].
    g_N: f32[N].

  Source: Woodbury's identity if N < D (Vincent et al. 2015, section 3.6), else one
    system of D x D.

  Cost: O(N D^2 + N^3) if N < D; O(N D^2 + D^3) else.

  >>> u_inv, back = next_inverse(jnp.eye(2), jnp.array([[1.0, 0.0]]), jnp.array([0.5]))
  >>> u_inv.tolist(), back.tolist()
  ([[2.0, 0.0], [0.0, 1.0]], [[2.0, 0.0]])
  """
  N, D = h_ND.shape
  if N < D:
    pairs_NN = dot(h_ND, h_ND.T) * g_N[None, :]
    back_ND = jnp.linalg.solve(
      jnp.eye(N, dtype=h_ND.dtype) - pairs_NN, dot(h_ND, u_inv_DD)
    )
    return u_inv_DD + dot(h_ND.T, g_N[:, None] * back_ND), back_ND
  a_DD = dot(h_ND.T * g_N[None, :], h_ND)
  u_inv_DD = jnp.linalg.solve(jnp.eye(D, dtype=h_ND.dtype) - a_DD, u_inv_DD)
  return u_inv_DD, dot(h_ND, u_inv_DD)


def loss_naive(
  w_VD: jax.Array,
  loss: Loss,
  h_ND: jax.Array,
  ids_NP: jax.Array,
  t_NP: jax.Array,
  weight_N: jax.Array,
) -> jax.Array:
  """Reference for the L of `value_and_grads`, from all outputs, differentiable.

  Arguments are those of `value_and_grads`, with W itself.

  Cost: a product of N V D.

  >>> loss = lambda o_P, t_P, q, s: q
  >>> args = jnp.ones((1, 1)), jnp.array([[0]]), jnp.ones((1, 1)), jnp.ones(1)
  >>> float(loss_naive(jnp.array([[1.0], [2.0]]), loss, *args))
  5.0
  """
  o_NV = dot(h_ND, w_VD.T)
  o_NP = jnp.take_along_axis(o_NV, jnp.minimum(ids_NP, len(w_VD) - 1), axis=1)
  o_NP = jnp.where(ids_NP < len(w_VD), o_NP, 0)
  q_N, s_N = jnp.sum(jnp.square(o_NV), axis=1), jnp.sum(o_NV, axis=1)
  loss_N = jax.vmap(loss)(o_NP, t_NP, q_N, s_N)
  return jnp.sum(jnp.where(weight_N == 0, 0, weight_N * loss_N))
