"""Keeping the factors of W = V U + 1 omega^T well conditioned, W unchanged.

Steps shrink U in some directions more than in others, and V grows in them, until the
product is lost to rounding. Both remedies keep every singular value of U near 1.

Source: paper 003 section 5.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops.spherical import Factored, factor, implied

Stabilizer = Callable[[Factored, jax.Array, float], Factored]

_ITERATIONS = 100  # of the power method, as in the paper


def spread(f: Factored) -> jax.Array:
  """How far the singular values of U are from 1: the larger of the root mean squares of
  the values and of their inverses, at least 1; f32[].

  If all values lie in [1 / x, x], it is at most x.

  Cost: O(D^2).

  >>> from largevocab.ops.spherical import factor
  >>> float(spread(factor(jnp.ones((4, 3)))))
  1.0
  """
  rms = lambda x_DD: jnp.sqrt(jnp.sum(jnp.square(x_DD)) / len(x_DD))
  return jnp.maximum(rms(f.u_DD), rms(f.u_inv_DD))


def reinvert(f: Factored) -> Factored:
  """The inverse of U from U alone, rid of what many small changes added.

  Cost: O(D^3).
  """
  return f._replace(u_inv_DD=jnp.linalg.inv(f.u_DD))


def absorb(f: Factored, key: jax.Array, limit: float) -> Factored:
  """V <- V U + 1 omega^T, U <- 1, omega <- 0, and Q anew, once `spread` exceeds limit.

  Source: paper 003 section 5.1, by need instead of now and then.

  Cost: O(D^3), and when there is need 2 products of V D^2 and a second V meanwhile.

  >>> from largevocab.ops.spherical import factor
  >>> f = factor(jnp.ones((4, 2)))._replace(u_DD=8 * jnp.eye(2))
  >>> f = absorb(f, jax.random.key(0), limit=4.0)
  >>> f.v_VD[0].tolist(), f.u_DD.tolist()
  ([8.0, 8.0], [[1.0, 0.0], [0.0, 1.0]])
  """
  # A loop of no or one turn: a `lax.cond` would copy V also when there is no need.
  is_far = lambda f: spread(f) > limit
  return lax.while_loop(is_far, lambda f: factor(implied(f)), reinvert(f))


def fix_singular_values(f: Factored, key: jax.Array, limit: float) -> Factored:
  """Sets singular values of U outside [1 / limit, limit] to 1, one after the other.

  The largest and the smallest are found by the power method on U and on its inverse;
  the one further out is set, until both are inside.

  Args:
    f: the table. Donate it: undonated, V is copied.
    key: where the power method starts.
    limit: above 1.

  Source: paper 003 sections 5.2 and 5.3; its range is lost from the text.

  Cost: O(D^3), and for each value that is set 2 V D.

  >>> from largevocab.ops.spherical import factor
  >>> u_DD = jnp.diag(jnp.array([8.0, 1.0]))
  >>> f = factor(jnp.ones((4, 2)))._replace(u_DD=u_DD)
  >>> f = fix_singular_values(f, jax.random.key(0), limit=2.0)
  >>> jnp.round(f.v_VD[0], 3).tolist(), jnp.round(f.u_DD, 3).tolist()
  ([8.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
  """
  start_D = jax.random.normal(key, f.omega_D.shape, f.omega_D.dtype)

  def extreme(f):
    """The left singular vector of the value furthest from 1, and the value."""
    large_D = _top_left(f.u_DD, start_D)
    small_D = _top_left(f.u_inv_DD.T, start_D)
    large, small = (jnp.linalg.norm(p_D @ f.u_DD) for p_D in (large_D, small_D))
    is_large = large * small > 1
    return jnp.where(is_large, large_D, small_D), jnp.where(is_large, large, small)

  def is_outside(carry):
    _, _, value, turns = carry
    return ((value > limit) | (value * limit < 1)) & (turns < 2 * len(start_D))

  def fix(carry):
    f, p_D, value, turns = carry
    f = fix_singular_value(f, p_D, value)
    return f, *extreme(f), turns + 1

  f = reinvert(f)
  return lax.while_loop(is_outside, fix, (f, *extreme(f), jnp.int32(0)))[0]


def fix_singular_value(f: Factored, p_D: jax.Array, value: jax.Array) -> Factored:
  """Divides U by `value` along p, and V times it: U <- (1 + (1 / value - 1) p p^T) U.

  V U stays as it is for every unit vector p. If p is a left singular vector of U and
  `value` its value, that becomes 1 and the others stay.

  Source: paper 003 section 5.2, procedure fix-singular-value.

  Cost: O(V D).

  >>> from largevocab.ops.spherical import factor, implied
  >>> f = fix_singular_value(factor(jnp.ones((3, 2))), jnp.array([0.6, 0.8]), 5.0)
  >>> jnp.round(implied(f), 5)[0].tolist()
  [1.0, 1.0]
  """
  along = lambda x_DD: p_D[:, None] * (p_D @ x_DD)[None, :]
  across = lambda x_RD: (x_RD @ p_D)[:, None] * p_D[None, :]
  return f._replace(
    v_VD=f.v_VD + (value - 1) * across(f.v_VD),
    u_DD=f.u_DD + (1 / value - 1) * along(f.u_DD),
    u_inv_DD=f.u_inv_DD + (value - 1) * across(f.u_inv_DD),
  )


def _top_left(x_DD: jax.Array, start_D: jax.Array) -> jax.Array:
  """The left singular vector of the largest singular value of X, about."""

  def iterate(_, p_D):
    p_D = x_DD @ (p_D @ x_DD)
    return p_D / jnp.linalg.norm(p_D)

  return lax.fori_loop(0, _ITERATIONS, iterate, start_D)


STABILIZERS: dict[str, Stabilizer] = {
  "absorb": absorb,
  "singular_values": fix_singular_values,
}
