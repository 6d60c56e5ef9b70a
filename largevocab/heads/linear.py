"""What heads share whose scores are linear in h."""

import jax
import jax.numpy as jnp

from largevocab.fields import InitScale, settings
from largevocab.heads.base import PyTree
from largevocab.labels import Targets
from largevocab.ops.constant_feature import extend, extended_width


@settings
class LinearHead:
  """Scores <w, h> + b, and nothing to rebuild or to watch.

  Attributes:
    bias: learn a bias per row: the weight of one more, constant feature of h.
    init_scale: rows start uniform in [-init_scale, init_scale], the bias at 0.
  """

  bias: bool = True
  init_scale: InitScale = 0.05

  def features(self, h_ND: jax.Array) -> jax.Array:
    """h as the rows see it: with the constant feature, if there is a bias."""
    return extend(h_ND) if self.bias else h_ND

  def random_rows(self, key: jax.Array, num: int, dim: int) -> jax.Array:
    """Rows to begin with; what multiplies constant features starts at 0."""
    width = extended_width(dim) if self.bias else dim
    limit = self.init_scale
    w_VD = jax.random.uniform(key, (num, dim), minval=-limit, maxval=limit)
    return jnp.pad(w_VD, ((0, 0), (0, width - dim)))

  def total_weight(self, y: Targets) -> jax.Array:
    """Sum of the examples' weights; 1 where there is none, so that a mean is 0."""
    total = jnp.sum(y.w_NP)
    return jnp.where(total > 0, total, 1)

  def refreshes(self, step: int) -> bool:
    return False

  def refresh(self, state: PyTree, key: jax.Array) -> PyTree:
    return state

  def monitor(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    return {}
