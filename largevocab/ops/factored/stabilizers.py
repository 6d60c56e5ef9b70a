"""Keeps the factors of W = V U + 1 omega^T well conditioned, without changing W.

Steps shrink U in some directions more than in others. V grows in these directions until
the product is lost to rounding. Both methods keep every singular value of U near 1.

Source: Vincent et al. 2015, section 5.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards
from largevocab.ops.factored.table import Factored, dot, factor, implied
from largevocab.ops.softmax.chunks import fold_rows
from largevocab.placement import in_rows

Stabilizer = Callable[[Factored, jax.Array, float], Factored]

_ITERATIONS = 100  # of the power method, as in the paper
_CHUNK = 32  # rows of each block of V that are updated at a time
_DIGITS = 2 / 3  # share of the digits of the inverse that must be correct


def spread(f: Factored) -> jax.Array:
  """Distance of the singular values of U from 1; f32[].

  It is the larger of the root mean squares of the values and of their inverses, and at
  least 1. If all values lie in [1 / x, x], it is at most x. If it is at most x, they
  lie in [1 / (x sqrt(D)), x sqrt(D)].

  Cost: O(D^2).

  >>> from largevocab.ops.factored.table import factor
  >>> float(spread(factor(jnp.ones((4, 3)))))
  1.0
  """
  rms = lambda x_DD: jnp.sqrt(jnp.sum(jnp.square(x_DD)) / len(x_DD))
  return jnp.maximum(rms(f.u_DD), rms(f.u_inv_DD))


def reinvert(f: Factored) -> Factored:
  """Recomputes the inverse of U, without the errors of many small updates.

  Cost: O(D^3).

  >>> from largevocab.ops.factored.table import factor
  >>> f = factor(jnp.ones((4, 1)))._replace(u_DD=jnp.array([[2.0]]))
  >>> reinvert(f).u_inv_DD.tolist()
  [[0.5]]
  """
  return f._replace(u_inv_DD=jnp.linalg.inv(f.u_DD))


def guard(f: Factored, limit: float) -> Factored:
  """Stabilises U after a step, if needed, without changing W.

  Recomputes the inverse of U if less than two thirds of its digits are correct: its
  errors grow as fast as steps shrink a direction. Then sets singular values of U to 1,
  the furthest first, while `spread` exceeds limit. One step can almost annihilate a
  direction, and later updates in it would be lost to rounding.

  Args:
    f: the table. Donate it to avoid a copy of V.
    limit: above 1.

  Source: Vincent et al. 2015, sections 5.2 and 5.3, where it is done periodically.

  Cost: O(D^2); with an inversion O(D^3); for each singular value that is set, 200
    products of a vector with U, and 2 V D.

  >>> from largevocab.ops.factored.table import factor
  >>> u_DD = jnp.diag(jnp.array([8.0, 1.0]))
  >>> f = reinvert(factor(jnp.ones((4, 2)))._replace(u_DD=u_DD))
  >>> f = guard(f, limit=2.0)
  >>> jnp.round(f.v_VD[0], 3).tolist(), jnp.round(f.u_DD, 3).tolist()
  ([8.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
  """
  start_D = _start(f, jax.random.key(0))
  error_D = dot(f.u_DD, dot(f.u_inv_DD, start_D)) - start_D
  tolerance = float(jnp.finfo(f.u_DD.dtype).eps) ** _DIGITS
  is_off = jnp.linalg.norm(error_D) > tolerance * jnp.linalg.norm(start_D)
  f = f._replace(
    u_inv_DD=lax.cond(is_off, jnp.linalg.inv, lambda _: f.u_inv_DD, f.u_DD)
  )

  def is_outside(carry):
    f, turns = carry
    return (spread(f) > limit) & (turns < 2 * len(start_D))

  def fix(carry):
    f, turns = carry
    return fix_singular_value(f, *_furthest(f, start_D)), turns + 1

  # Loops, since a `lax.cond` would copy V even if it changes nothing.
  return lax.while_loop(is_outside, fix, (f, jnp.int32(0)))[0]


def absorb(f: Factored, key: jax.Array, limit: float) -> Factored:
  """V <- V U + 1 omega^T, U <- 1 and omega <- 0, if `spread` exceeds limit.

  Also recomputes Q in this case.

  Source: Vincent et al. 2015, section 5.1, where it is done periodically.

  Cost: O(D^3). If needed, 2 products of V D^2, and memory for a second V meanwhile.

  >>> from largevocab.ops.factored.table import factor
  >>> f = factor(jnp.ones((4, 2)))._replace(u_DD=8 * jnp.eye(2))
  >>> f = absorb(f, jax.random.key(0), limit=4.0)
  >>> f.v_VD[0].tolist(), f.u_DD.tolist()
  ([8.0, 8.0], [[1.0, 0.0], [0.0, 1.0]])
  """
  f = reinvert(f)
  is_far = shards.pmax(spread(f)) > limit  # all devices sum up Q, or none
  anew = lambda f: factor(implied(f), f.activations)
  absorbed = lambda carry: (anew(carry[0]), jnp.bool(False))
  return lax.while_loop(lambda carry: carry[1], absorbed, (f, is_far))[0]


def fix_singular_values(f: Factored, key: jax.Array, limit: float) -> Factored:
  """Sets singular values of U outside [1 / limit, limit] to 1, one after the other.

  The largest and the smallest are found by the power method on U and on its inverse.
  The one further from 1 is set, until both are inside. Q and the sum of W's rows are
  not
  recomputed: their rounding errors stay.

  Args:
    f: the table. Donate it to avoid a copy of V.
    key: for the start vector of the power method.
    limit: above 1. The range [0.5, 2] of the authors' program corresponds to 2.

  Cost: O(D^3), and for each value that is set 2 V D.

  >>> from largevocab.ops.factored.table import factor
  >>> u_DD = jnp.diag(jnp.array([8.0, 1.0]))
  >>> f = factor(jnp.ones((4, 2)))._replace(u_DD=u_DD)
  >>> f = fix_singular_values(f, jax.random.key(0), limit=2.0)
  >>> jnp.round(f.v_VD[0], 3).tolist(), jnp.round(f.u_DD, 3).tolist()
  ([8.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
  """
  start_D = _start(f, key)

  def is_outside(carry):
    _, _, value, turns = carry
    return ((value > limit) | (value * limit < 1)) & (turns < 2 * len(start_D))

  def fix(carry):
    f, p_D, value, turns = carry
    f = fix_singular_value(f, p_D, value)
    return f, *_furthest(f, start_D), turns + 1

  f = reinvert(f)
  return lax.while_loop(is_outside, fix, (f, *_furthest(f, start_D), jnp.int32(0)))[0]


def fix_singular_value(f: Factored, p_D: jax.Array, value: jax.Array) -> Factored:
  """Divides U by `value` along p and multiplies V by it.

  That is, U <- (1 + (1 / value - 1) p p^T) U. V U is unchanged for every unit vector p.
  If p is a left singular vector of U and `value` its singular value, this singular
  value becomes 1 and the others stay.

  Source: Vincent et al. 2015, section 5.2, procedure fix-singular-value.

  Cost: O(V D).

  >>> from largevocab.ops.factored.table import factor, implied
  >>> f = fix_singular_value(factor(jnp.ones((3, 2))), jnp.array([0.6, 0.8]), 5.0)
  >>> jnp.round(implied(f), 5)[0].tolist()
  [1.0, 1.0]
  """
  along = lambda x_DD: p_D[:, None] * dot(p_D, x_DD)[None, :]
  across = lambda x_RD: x_RD + (value - 1) * dot(x_RD, p_D)[:, None] * p_D[None, :]
  return f._replace(
    v_VD=_by_chunks(across, f.v_VD),
    u_DD=f.u_DD + (1 / value - 1) * along(f.u_DD),
    u_inv_DD=across(f.u_inv_DD),
  )


def _by_chunks(change: Callable[[jax.Array], jax.Array], v_VD: jax.Array) -> jax.Array:
  """Applies `change` to all rows, in place and in chunks.

  With a temporary per row, the compiled program is slower for more classes even if it
  changes nothing.
  """

  def turn(v_VD, chunk):
    rows_CD = chunk.rows(v_VD)
    rows_CD = jnp.where(chunk.is_new_C[:, None], change(rows_CD), rows_CD)
    return in_rows(chunk.put(v_VD, rows_CD))

  return fold_rows(turn, v_VD, len(v_VD), _CHUNK)


def _start(f: Factored, key: jax.Array) -> jax.Array:
  return jax.random.normal(key, f.omega_D.shape, f.omega_D.dtype)


def _furthest(f: Factored, start_D: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The left singular vector and value of U's singular value furthest from 1."""
  large_D = _top_left(f.u_DD, start_D)
  small_D = _top_left(f.u_inv_DD.T, start_D)
  large, small = (jnp.linalg.norm(dot(p_D, f.u_DD)) for p_D in (large_D, small_D))
  is_large = large * small > 1
  return jnp.where(is_large, large_D, small_D), jnp.where(is_large, large, small)


def _top_left(x_DD: jax.Array, start_D: jax.Array) -> jax.Array:
  """Approximate left singular vector of the largest singular value of X."""

  def iterate(_, p_D):
    p_D = dot(x_DD, dot(p_D, x_DD))
    return p_D / jnp.linalg.norm(p_D)

  return lax.fori_loop(0, _ITERATIONS, iterate, start_D)


STABILIZERS: dict[str, Stabilizer] = {
  "absorb": absorb,
  "singular_values": fix_singular_values,
}
