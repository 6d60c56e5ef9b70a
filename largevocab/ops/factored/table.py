"""A factored table W = V U + 1 omega^T: W is never held.

On several devices, each device has rows of V, and all have the same U, omega, Q and sum
of W's rows: what these are computed from is the same everywhere, to the last bit.

Source: Vincent et al. 2015, section 4.4, with rows where the paper has columns.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards
from largevocab.ops.activations import Activations, knows_activations

Pull = Callable[[jax.Array], jax.Array]


@knows_activations
class Factored(NamedTuple):
  """The factors of W, and statistics of W.

  Attributes:
    v_VD: f32[V, D].
    u_DD: f32[D, D].
    omega_D: f32[D].
    gram_DD: f32[D, D], Q = W^T W.
    sum_D: f32[D], W^T 1.
    u_inv_DD: f32[D, D], the inverse of U.
    activations: the activations that W is for, without the constant feature; None: not
      known. Static.
  """

  v_VD: jax.Array
  u_DD: jax.Array
  omega_D: jax.Array
  gram_DD: jax.Array
  sum_D: jax.Array
  u_inv_DD: jax.Array
  activations: Activations | None = None


def factor(w_VD: jax.Array, given: Activations | None = None) -> Factored:
  """Factors W, the table for the given activations, with U = 1 and omega = 0.

  Cost: O(V D^2).

  >>> factor(jnp.ones((3, 2))).sum_D.tolist()
  [3.0, 3.0]
  """
  D, w_VD = w_VD.shape[1], shards.only_used(w_VD)
  eye = lambda: jnp.eye(D, dtype=w_VD.dtype)
  return Factored(
    v_VD=w_VD,
    u_DD=eye(),
    omega_D=jnp.zeros(D, w_VD.dtype),
    gram_DD=shards.psum(dot(w_VD.T, w_VD)),
    sum_D=shards.psum(jnp.sum(w_VD, axis=0)),
    u_inv_DD=eye(),
    activations=given,
  )


def implied(f: Factored) -> jax.Array:
  """W, f32[V, D].

  Cost: O(V D^2).

  >>> implied(factor(jnp.ones((3, 2)))).tolist()
  [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
  """
  return dot(f.v_VD, f.u_DD) + f.omega_D[None, :]


def implied_rows(f: Factored, ids_R: jax.Array) -> jax.Array:
  """Rows of W, f32[R, D]; zeros for ids >= V.

  >>> implied_rows(factor(jnp.array([[1.0], [2.0]])), jnp.array([1, 2])).tolist()
  [[2.0], [0.0]]
  """
  rows_RD = dot(f.v_VD.at[ids_R].get(mode="fill", fill_value=0), f.u_DD)
  return jnp.where((ids_R < len(f.v_VD))[:, None], rows_RD + f.omega_D[None, :], 0)


def sums(f: Factored, h_ND: jax.Array) -> tuple[jax.Array, jax.Array]:
  """q_N = |W h_n|^2 and s_N = sum of W h_n.

  >>> q_N, s_N = sums(factor(jnp.array([[1.0], [2.0]])), jnp.array([[3.0]]))
  >>> q_N.tolist(), s_N.tolist()
  ([45.0], [9.0])
  """
  return jnp.sum(dot(h_ND, f.gram_DD) * h_ND, axis=1), dot(h_ND, f.sum_D)


def outputs(f: Factored, h_ND: jax.Array, ids_NP: jax.Array) -> jax.Array:
  """o_NP = <w_c, h_n> for classes ids_NP, from their devices; 0 for ids >= V.

  >>> f = factor(jnp.array([[1.0], [2.0]]))
  >>> outputs(f, jnp.array([[3.0]]), jnp.array([[1, 0, 2]])).tolist()
  [[6.0, 3.0, 0.0]]
  """
  return outputs_and_pull(f, h_ND, ids_NP)[0]


def outputs_and_pull(
  f: Factored, h_ND: jax.Array, ids_NP: jax.Array
) -> tuple[jax.Array, Pull]:
  """`outputs`, and their pull-back do_NP -> sum over p of do_np w_p, f32[N, D].

  Cost: O(N D^2 + N P D).

  >>> f = factor(jnp.array([[1.0], [2.0]]))
  >>> o_NP, pull = outputs_and_pull(f, jnp.array([[3.0]]), jnp.array([[1, 0]]))
  >>> o_NP.tolist(), pull(jnp.array([[1.0, 10.0]])).tolist()
  ([[6.0, 3.0]], [[12.0]])
  """
  is_true_NP = ids_NP < len(f.v_VD)
  v_NPD = f.v_VD.at[ids_NP].get(mode="fill", fill_value=0)
  if ids_NP.shape[1] == 1:  # the rows themselves: one product with U instead of two
    w_ND = dot(v_NPD[:, 0], f.u_DD) + f.omega_D[None, :]
    o_NP = jnp.sum(w_ND * h_ND, axis=1, keepdims=True)
    o_NP = jnp.where(is_true_NP, o_NP, 0)
    return shards.psum(o_NP), lambda do_NP: shards.from_owner(do_NP * w_ND, is_true_NP)
  o_NP = jnp.einsum("npd,nd->np", v_NPD, dot(h_ND, f.u_DD.T), precision="highest")
  o_NP = o_NP + dot(h_ND, f.omega_D)[:, None]

  def pull(do_NP):
    v_ND = jnp.einsum("np,npd->nd", do_NP, v_NPD, precision="highest")
    omega_ND = jnp.sum(do_NP, axis=1)[:, None] * f.omega_D[None, :]
    return shards.psum(dot(v_ND, f.u_DD)) + omega_ND

  return shards.psum(jnp.where(is_true_NP, o_NP, 0)), pull


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
  """a @ b in the precision of the operands, even if the device would use less."""
  return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
