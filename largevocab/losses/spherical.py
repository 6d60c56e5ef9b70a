"""Spherical losses: functions of the true outputs and of two sums over all outputs.

With o = W h in R^V, such a loss depends only on the outputs of the true classes,
q = |o|^2 and s = sum of o. `largevocab.ops.factored.steps` can therefore compute its
exact gradient without computing o. Any object with the members of `SphericalLoss`
works; JAX differentiates it.
"""

from typing import Annotated, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from largevocab.fields import Between, Eps, settings


@runtime_checkable
class SphericalLoss(Protocol):
  """Loss of one example. Targets of value 0 must not change the loss.

  Attributes:
    is_normalized: `score` is the logarithm of probabilities that sum to 1, and the loss
      is cross-entropy.

  Optional attribute:
    is_even: True if the loss is the same for -o, so that it has no slope at o = 0.
  """

  is_normalized: ClassVar[bool]

  def __call__(
    self, o_P: jax.Array, t_P: jax.Array, q: jax.Array, s: jax.Array, num_classes: int
  ) -> jax.Array:
    """The loss, f32[].

    Args:
      o_P: f32[P], the outputs of the true classes, which are distinct.
      t_P: f32[P], their target values, which sum to 1; 0 on padding.
      q: f32[], sum of squares of all outputs.
      s: f32[], sum of all outputs.
      num_classes: V.
    """
    ...

  def score(
    self, o: jax.Array, q: jax.Array, s: jax.Array, num_classes: int
  ) -> jax.Array:
    """Elementwise ranking score of classes with outputs o."""
    ...


@settings
class Squared:
  """Squared error |o - t|^2 = q - 2 sum_p t_p o_p + sum_p t_p^2 of sparse targets.

  Attributes:
    binary: use the target 1 for every true class in place of its share.

  Source: Vincent et al. 2015, section 3.

  >>> o_V, t_V = jnp.array([1.0, 2.0, 0.0]), jnp.array([0.0, 1.0, 0.0])
  >>> float(Squared()(o_V[1:2], t_V[1:2], o_V @ o_V, o_V.sum(), 3))
  2.0
  """

  is_normalized: ClassVar[bool] = False
  binary: bool = False

  def __call__(self, o_P, t_P, q, s, num_classes):
    t_P = (t_P > 0).astype(t_P.dtype) if self.binary else t_P
    return q - 2 * jnp.sum(t_P * o_P) + jnp.sum(jnp.square(t_P))

  def score(self, o, q, s, num_classes):
    return o


@settings
class SphericalSoftmax:
  """-sum_p t_p log p_p with p_c = (o_c^2 + eps) / (q + V eps).

  Attributes:
    eps: keeps probabilities above 0. If it is large relative to o^2, the distribution
      is nearly uniform.

  Source: Vincent et al. 2015, section 4; de Brebisson and Vincent 2016
    (arXiv:1511.05042).

  >>> p = lambda o: float(jnp.exp(SphericalSoftmax(eps=1.0).score(o, 5.0, 3.0, 3)))
  >>> [p(1.0), p(2.0), p(0.0)]
  [0.25, 0.625, 0.125]
  """

  is_normalized: ClassVar[bool] = True
  is_even: ClassVar[bool] = True
  eps: Eps = 0.1

  def __call__(self, o_P, t_P, q, s, num_classes):
    return -jnp.sum(t_P * self.score(o_P, q, s, num_classes))

  def score(self, o, q, s, num_classes):
    return jnp.log(jnp.square(o) + self.eps) - jnp.log(q + num_classes * self.eps)


@settings
class TaylorSoftmax:
  """-sum_p t_p log p_p with p_c = (1 + o_c + o_c^2 / 2) / (V + s + q / 2).

  The second-order Taylor polynomial replaces exp. The polynomial is at least 1/2.

  Source: Vincent et al. 2015, section 4; de Brebisson and Vincent 2016
    (arXiv:1511.05042).

  >>> p = lambda o: float(jnp.exp(TaylorSoftmax().score(o, 4.0, 2.0, 2)))
  >>> [round(p(o), 6) for o in (0.0, 2.0)]
  [0.166667, 0.833333]
  """

  is_normalized: ClassVar[bool] = True

  def __call__(self, o_P, t_P, q, s, num_classes):
    return -jnp.sum(t_P * self.score(o_P, q, s, num_classes))

  def score(self, o, q, s, num_classes):
    total = num_classes + s + q / 2
    return jnp.log(1 + o + jnp.square(o) / 2) - jnp.log(total)


@settings
class ZLoss:
  """sum_p t_p softplus(a (b - z_p)) / a with z = (o - mean) / sd over all classes.

  The loss is invariant to shift and scale of the outputs. It is a surrogate for the
  rank of the true class, and gives no probabilities.

  Attributes:
    a: steepness.
    b: how many standard deviations above the mean a true class should be.
    eps: added to the variance. Deviation: the paper has none.

  Source: de Brebisson and Vincent 2016 (arXiv:1604.08859).

  >>> o_V = jnp.array([3.0, 1.0, 2.0])
  >>> loss = lambda o_V: ZLoss()(o_V[:1], jnp.ones(1), o_V @ o_V, o_V.sum(), 3)
  >>> bool(jnp.allclose(loss(o_V), loss(5 * o_V + 1), rtol=1e-5))
  True
  """

  is_normalized: ClassVar[bool] = False
  a: Annotated[float, Between(1e-6, 1000)] = 0.1
  b: Annotated[float, Between(0, 1_000_000)] = 10.0
  eps: Eps = 1e-6

  def __call__(self, o_P, t_P, q, s, num_classes):
    mean = s / num_classes
    variance = jnp.maximum(q / num_classes - jnp.square(mean), 0)
    z_P = (o_P - mean) * jax.lax.rsqrt(variance + self.eps)
    return jnp.sum(t_P * jax.nn.softplus(self.a * (self.b - z_P))) / self.a

  def score(self, o, q, s, num_classes):
    return o


SPHERICAL_LOSSES = {
  "squared": Squared,
  "spherical": SphericalSoftmax,
  "taylor": TaylorSoftmax,
  "z": ZLoss,
}
