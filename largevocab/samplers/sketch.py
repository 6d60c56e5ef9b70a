"""Low-rank sketch of logits <w, h>: principal components of W, whitened by h.

Among all products of rank R, the one closest to <w, h> in mean square is <P^T h, Q^T w>
with P = H^-1/2 U and Q = H^1/2 U. H is the second moment of activations, W the second
moment of the class rows, and U are the first R eigenvectors of H^1/2 W H^1/2.

A sampler does not see the activations of many steps, but it sees the changes of rows,
which are sums of activations. The second moment of changes therefore replaces H. Here R
is the rank of the sketch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

DECAY = 0.99  # decay of the second moment of changes, per update
OBSERVED = 1024  # maximum number of changed rows read per update
FLOOR = 1e-3  # added to H, relative to its mean eigenvalue


class Sketch(NamedTuple):
  """Projections of activations and of rows to R coordinates.

  Attributes:
    query_DR: f32[D, R], P.
    row_DR: f32[D, R], Q.
    change_DD: f32[D, D], decayed second moment of the changes of rows.
  """

  query_DR: jax.Array
  row_DR: jax.Array
  change_DD: jax.Array


def init(dim: int, rank: int) -> Sketch:
  """A sketch of the first `rank` coordinates.

  >>> init(3, 1).row_DR.tolist()
  [[1.0], [0.0], [0.0]]
  """
  first_DR = jnp.eye(dim, rank)
  return Sketch(first_DR, jnp.copy(first_DR), jnp.zeros((dim, dim)))


def observe(sketch: Sketch, change_RD: jax.Array) -> Sketch:
  """Accumulates changes of rows; zeros are padding. Cost: at most 1024 D^2."""
  some_RD = change_RD[:: -(-len(change_RD) // OBSERVED)]
  change_DD = DECAY * sketch.change_DD + jnp.matmul(some_RD.T, some_RD)
  return sketch._replace(change_DD=change_DD)


def fit(sketch: Sketch, moment_DD: jax.Array) -> Sketch:
  """The best sketch for rows with this second moment f32[D, D]. Cost: O(D^3).

  >>> rows_VD = jnp.array([[3.0, 0.0], [0.0, 1.0]])
  >>> jnp.abs(fit(init(2, 1), rows_VD.T @ rows_VD).row_DR).round(3).tolist()
  [[1.0], [0.0]]
  """
  dim, rank = sketch.row_DR.shape
  mean = jnp.trace(sketch.change_DD) / dim
  h_DD = jnp.where(mean > 0, sketch.change_DD / jnp.where(mean > 0, mean, 1), 0)
  h_DD = jnp.where(mean > 0, h_DD, jnp.eye(dim)) + FLOOR * jnp.eye(dim)
  value_D, vector_DD = jnp.linalg.eigh(h_DD)
  root_D = jnp.sqrt(jnp.maximum(value_D, FLOOR / 2))
  highest = jax.lax.Precision.HIGHEST
  dot = lambda *factors: jnp.linalg.multi_dot(factors, precision=highest)
  root_DD = dot(vector_DD * root_D[None], vector_DD.T)
  inverse_DD = dot(vector_DD / root_D[None], vector_DD.T)
  best_DR = jnp.linalg.eigh(dot(root_DD, moment_DD, root_DD))[1][:, ::-1][:, :rank]
  return sketch._replace(
    query_DR=dot(inverse_DD, best_DR), row_DR=dot(root_DD, best_DR)
  )
