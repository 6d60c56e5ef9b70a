"""Pairwise ranking loss: true classes should outscore drawn ones by a margin."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from largevocab.errors import UserError, listed
from largevocab.fields import Between, OneOf, settings
from largevocab.losses.base import SampledLoss
from largevocab.ops import shards
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide

# Functions of the margin violation alpha - (o_true - o_drawn).
PENALTIES: dict[str, Callable[[jax.Array], jax.Array]] = {
  "log": jax.nn.softplus,
  "hinge": jax.nn.relu,
}
LOG_CLASSES = "log(V-1)"


def ranking_loss(
  o_NP: jax.Array,
  w_NP: jax.Array,
  o_NM: jax.Array,
  mask_NM: jax.Array,
  alpha: float,
  penalty: str = "log",
) -> jax.Array:
  """loss = sum over n, p of w_np (mean over m of penalty(o_nm - o_np + alpha)).

  The penalty is softplus ('log') or max(0, .) ('hinge'). With one uniform draw from the
  V - 1 other classes, 'log' and alpha = log(V - 1), it is the softmax loss with the
  log-partition function estimated from that draw. With more draws it is the mean of
  such losses, so it is convex in the scores and biased as a likelihood. 'log' with
  alpha = 0 is Bayesian personalised ranking (BPR).

  Args:
    o_NP: f32[N, P], scores of the true classes.
    w_NP: f32[N, P], their weights, 0 on padding. Scores of weight 0, and masked ones,
      may be anything, including NaN.
    o_NM: f32[N, M], scores of the drawn classes.
    mask_NM: bool[N, M], False for accidental hits. An example without any drawn class
      has no loss.
    alpha: the margin.
    penalty: 'log' or 'hinge'.

  Returns:
    f32[], summed over the examples; nats for 'log'.

  Raises:
    ValueError: shapes do not agree.
    UserError: the penalty is neither 'log' nor 'hinge'.

  Source: Barber & Botev 2016, equations 32-35 and 42; Collobert and Weston 2008
    (hinge); Rendle et al. 2009 (alpha = 0).
  Cost: O(N P M).

  >>> o_NP, o_NM, yes = jnp.zeros((1, 1)), jnp.zeros((1, 2)), jnp.ones((1, 2), bool)
  >>> f"{ranking_loss(o_NP, jnp.ones((1, 1)), o_NM, yes, alpha=0.0):.4f}"  # log 2
  '0.6931'
  >>> float(ranking_loss(o_NP, jnp.ones((1, 1)), o_NM, yes, alpha=1.0, penalty="hinge"))
  1.0
  """
  check_shapes(o_NP=o_NP, w_NP=w_NP, o_NM=o_NM, mask_NM=mask_NM)
  if penalty not in PENALTIES:
    raise UserError(f"penalty is {penalty!r}; it must be one of {listed(PENALTIES)}")
  o_NP, o_NM = wide(o_NP), wide(o_NM)
  o_NP, o_NM = jnp.where(w_NP == 0, 0, o_NP), jnp.where(mask_NM, o_NM, 0)
  short_NPM = alpha - (shards.replicated(o_NP)[:, :, None] - o_NM[:, None, :])
  each_NPM = jnp.where(mask_NM[:, None, :], PENALTIES[penalty](short_NPM), 0)
  drawn_N = jnp.maximum(shards.psum(jnp.sum(mask_NM, axis=1)), 1).astype(o_NM.dtype)
  return jnp.sum(w_NP * shards.psum(jnp.sum(each_NPM, axis=2)) / drawn_N[:, None])


@dataclass(frozen=True)
class _Margin(Between):
  """A number in a range, possibly as text, or LOG_CLASSES."""

  def problem(self, value: Any) -> str:
    if value == LOG_CLASSES:
      return ""
    try:
      return super().problem(float(value))
    except (ValueError, OverflowError):
      return f"must be a number or {LOG_CLASSES!r}"


@settings
class Ranking(SampledLoss):
  """`ranking_loss`: true classes should outscore drawn ones by the margin alpha.

  The argument of Barber & Botev for alpha = log(V - 1) assumes the sampler `Uniform`.

  Attributes:
    penalty: 'log', which is smooth, or 'hinge'.
    alpha: the margin: a number, or 'log(V-1)'.

  Source: Barber & Botev 2016, section 3.3, equations 32-42.
  Cost: that of `ranking_loss`.
  """

  penalty: Annotated[str, OneOf(*PENALTIES)] = "log"
  alpha: Annotated[str | float, _Margin(-1000, 1000)] = LOG_CLASSES

  @property
  def weighs(self) -> bool:
    return False

  def __call__(self, scores):
    return ranking_loss(
      o_NP=scores.o_NP,
      w_NP=scores.w_NP,
      o_NM=scores.o_NM,
      mask_NM=scores.mask_NM,
      alpha=self.margin(scores.num_classes),
      penalty=self.penalty,
    )

  def margin(self, num_classes: int) -> float:
    """The value of alpha for this number of classes.

    >>> Ranking().margin(1001) == math.log(1000), Ranking(alpha="1").margin(1001)
    (True, 1.0)
    """
    if self.alpha == LOG_CLASSES:
      return math.log(max(num_classes - 1, 1))
    return float(self.alpha)
