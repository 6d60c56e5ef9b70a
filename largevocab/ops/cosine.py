"""Cosines of activations and class rows, and margins of the true classes."""

import math

import jax
import jax.numpy as jnp

_NO_LENGTH = 1e-12  # vectors that are shorter count as 0
_LEAST_SINE = 1e-3  # below it, the rounding of a cosine exceeds that of the sine


def inverse_norm(x_ND: jax.Array) -> jax.Array:
  """1 / |x| along the last axis; 0, with gradient 0, for vectors shorter than 1e-12.

  >>> inverse_norm(jnp.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
  [0.25, 0.0]
  """
  square_N = jnp.sum(jnp.square(x_ND), axis=-1)
  is_zero_N = square_N < _NO_LENGTH**2
  return jnp.where(is_zero_N, 0, jax.lax.rsqrt(jnp.where(is_zero_N, 1, square_N)))


def unit(x_ND: jax.Array) -> jax.Array:
  """x / |x| along the last axis; 0 for vectors shorter than 1e-12.

  >>> unit(jnp.array([0.0, 2.0])).tolist()
  [0.0, 1.0]
  """
  return x_ND * inverse_norm(x_ND)[..., None]


def tangent(w_RD: jax.Array, dw_RD: jax.Array) -> jax.Array:
  """dw - u <u, dw> with u = w / |w|: the part of dw that turns w.

  If a function of w / |w| has the gradient |w| dw with respect to w / |w|, then this is
  its gradient with respect to w.

  >>> tangent(jnp.array([0.0, 2.0]), jnp.array([3.0, 4.0])).tolist()
  [3.0, 0.0]
  """
  u_RD = unit(w_RD)
  return dw_RD - u_RD * jnp.sum(u_RD * dw_RD, axis=-1, keepdims=True)


def with_margin(cosine: jax.Array, angular: float, additive: float) -> jax.Array:
  """cos(theta + angular) - additive, for cosines cos(theta), elementwise.

  Where theta + angular exceeds pi, the first term is cos(theta) - angular sin(angular)
  instead. It falls over all angles, with a step down at theta = pi - angular.

  Args:
    cosine: float[...], cos(theta).
    angular: from 0 to pi / 2, radians.
    additive: at least 0.

  Source: Deng et al. 2019, equation 3 (angular), and the authors' code, in which the
    term beyond pi is this one; Wang et al. 2018 (CosFace, additive).
    Deviation: sines below 0.001 count as 0.001, without a gradient, which would be
    infinite at 0.

  >>> f"{with_margin(jnp.cos(1.0), 0.5, 0.25):.4f}"  # cos(1.5) - 0.25
  '-0.1793'
  """
  if angular:
    sine = jnp.sqrt(jnp.maximum(1 - jnp.square(cosine), _LEAST_SINE**2))
    turned = cosine * math.cos(angular) - sine * math.sin(angular)
    beyond = cosine - angular * math.sin(angular)
    cosine = jnp.where(cosine > -math.cos(angular), turned, beyond)
  return cosine - additive
