"""The kernels: quadratic, quartic, and a quadratic one that follows a softmax."""

from typing import Annotated

import jax.numpy as jnp

from largevocab.fields import Between, settings
from largevocab.samplers.kernel_tree import KernelTree, Shift
from largevocab.samplers.static import Power

QUARTIC_DIM = 16  # the widest rows whose fourth powers are summed
_Alpha = Annotated[float, Between(0, 10**9, excluding=(0,))]


@settings
class Quadratic(KernelTree):
  """K(o) = alpha o^2 + 1: even in o, so made for models with |o| as logits.

  With an ordinary softmax it would mostly draw the least likely classes, whose logits
  are the largest in size. `absolute=False` says that this is wanted, or that a shift
  has moved the logits to where the kernel grows.

  Attributes (besides those of `KernelTree`):
    alpha: weight of the square.

  Source: paper 000 section 3.3, alpha = 100.

  >>> Quadratic().kernel(jnp.array([0.0, -1.0])).tolist()
  [1.0, 101.0]
  """

  absolute: bool = True
  alpha: _Alpha = 100.0

  def kernel(self, o):
    return self.alpha * jnp.square(o) + 1

  def degree(self, dim):
    return 2

  def mass(self, power_sum, weight, degree):
    return self.alpha * power_sum + weight


@settings
class QuadraticPrior(Quadratic):
  """weight_c (alpha (o - mean + shift)^2 + 1), weight_c = (count_c + smoothing)^power.

  The logit is taken relative to the mean class, and shifted to where the square grows
  with it; what the kernel cannot follow, how frequent a class is, the weight adds. So
  it is made for an ordinary softmax, at the cost of the plain kernel. For flatter or
  steeper models: shift = s and alpha = 10 / s^2 is the same kernel of o / s.

  Not in the paper.

  >>> QuadraticPrior().kernel(jnp.array([0.0, 1.0])).tolist()
  [1.0, 11.0]
  """

  absolute: bool = False
  alpha: _Alpha = 10.0
  shift: Shift = 1.0
  power: Power = 0.5
  centred: bool = True


@settings
class Quartic(KernelTree):
  """K(o) = o^4 + 1: closer to exp(|o|) than a square.

  Rows of up to 16 numbers (the constant feature of a bias is one, padded to a multiple
  of 8) have their fourth powers summed: 3,876 features. For wider ones sums of squares
  stand for them: (sum c o^2)^2 / sum c, which is the sum of fourth powers if |o| does
  not vary within the block; the class in its block is drawn by the quartic all the
  same, and the law of both together is what is reported.

  Source: paper 000 section 4.2.

  >>> Quartic().kernel(jnp.array([0.0, -2.0])).tolist()
  [1.0, 17.0]
  """

  absolute: bool = True

  def kernel(self, o):
    return jnp.square(jnp.square(o)) + 1

  def degree(self, dim):
    return 4 if dim <= QUARTIC_DIM else 2

  def mass(self, power_sum, weight, degree):
    if degree == 4:
      return power_sum + weight
    return jnp.square(power_sum) / jnp.where(weight > 0, weight, 1) + weight
