"""Means, standard deviations and standard errors of metrics over batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike


def sums(values: Mapping[str, jax.Array], w_N: jax.Array) -> dict[str, jax.Array]:
  """Weighted sums of a batch, and sums of squared deviations from the batch's mean.

  Args:
    values: f32[N] for each metric.
    w_N: f32[N], the weights, which are the same for all metrics.

  Returns:
    {metric: f32[3]}: sum(w v); the largest deviation from the mean, d; and the sum of
    w ((v - mean) / d)^2. The scaling by d is needed because squares may be too large
    for f32.
  """
  total = jnp.maximum(jnp.sum(w_N), 1e-30)

  def of(v_N: jax.Array) -> jax.Array:
    summed = jnp.sum(w_N * v_N)
    from_mean_N = jnp.where(w_N == 0, 0, v_N - summed / total)
    largest = jnp.maximum(jnp.max(jnp.abs(from_mean_N)), 1e-30)
    spread = jnp.sum(w_N * jnp.square(from_mean_N / largest))
    return jnp.stack([summed, largest, spread])

  return {name: of(v_N) for name, v_N in values.items()}


@dataclass
class Moments:
  """Weighted moments over batches, in float64.

  >>> moments = Moments()
  >>> for batch in ([1.0, 3.0], [5.0]):
  ...   w_N = jnp.ones(len(batch))
  ...   moments.add(sums({"nll": jnp.array(batch)}, w_N), w_N)
  >>> [round(of("nll"), 3) for of in (moments.mean, moments.sd, moments.standard_error)]
  [3.0, 1.633, 0.943]
  """

  weight: float = 0.0
  _weight_sq: float = 0.0
  _sums: dict[str, np.ndarray] = field(default_factory=dict)

  def add(self, summed: Mapping[str, ArrayLike], w_N: ArrayLike) -> None:
    """Adds the `sums` of a batch with these weights."""
    w_N = np.asarray(w_N, np.float64)
    weight = float(w_N.sum())
    self.weight += weight
    self._weight_sq += float(np.square(w_N).sum())
    for name, of_batch in summed.items():
      first, largest, spread = np.asarray(of_batch, np.float64)
      second = spread * largest**2 + (first**2 / weight if weight else 0.0)
      self._sums[name] = self._sums.get(name, 0.0) + np.array([first, second])

  @property
  def names(self) -> list[str]:
    return list(self._sums)

  def mean(self, name: str) -> float:
    """sum(w v) / sum(w)."""
    return float(self._sums[name][0] / self.weight)

  def sd(self, name: str, share: float = 1.0) -> float:
    """Standard deviation, if a share 1 - `share` of the values is 0 and not added."""
    mean, mean_sq = share * self._sums[name] / self.weight
    return math.sqrt(max(mean_sq - mean**2, 0.0))

  def standard_error(self, name: str, share: float = 1.0) -> float:
    """Standard error of the mean for independent examples, sd / sqrt(n).

    n is sum(w)^2 / sum(w^2), and `share` is as in `sd`. Words of a text are not quite
    independent, so on text the standard error is slightly too small.
    """
    num = self.weight**2 / self._weight_sq / share
    return self.sd(name, share) / math.sqrt(num)
