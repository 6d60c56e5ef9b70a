"""An index over class rows: likely classes are summed exactly, the rest sampled.

The letters K and S stand for the number of clusters and the size of the exact set.
"""

import math
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.fields import Between, Count, CountOrNone, settings
from largevocab.labels import Counts, Targets
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.draws import kmeans
from largevocab.ops.draws.kmeans import Members
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers.base import Draw, NoUpkeep
from largevocab.samplers.pps import PPS, PPSStats
from largevocab.samplers.static import Power, Smoothing

_SEED = 0x1B873593  # for the first clusters; unlikely as the seed of a training run


class IVFStats(NamedTuple):
  """Statistics of `IVF`.

  Attributes:
    tail: statistics of the `PPS` sample.
    centroids_KD: f32[K, D].
    members: the classes of each cluster, as of the last refresh.
  """

  tail: PPSStats
  centroids_KD: jax.Array
  members: Members


@settings
class IVF:
  """Likely classes of a batch from an index, summed exactly, and m classes by `PPS`.

  The rows are clustered by k-means. For each batch, the exact set has S = probes V / K
  classes. They are those of the clusters k with the largest total probability per
  class,

    sum over n of w_n exp(<centroid_k, h_n>) / Z_n,
    Z_n = sum over k of size_k exp(<centroid_k, h_n>)

  (w_n is the weight of example n). The last cluster contributes as many classes as fit.
  The classes of the set are summed exactly (`Draw.exact_ids`, the same for the whole
  batch). The sample estimates the sum over all other classes: the head masks draws in
  the exact set. The estimate is unbiased for any exact set, so the index may be stale.

  Use it for models whose logits have peaks that counts do not predict. Where counts do
  (Zipf's law), try `PPS` with as many extra classes first.

  Attributes:
    clusters: K; 0: about sqrt(V).
    probes: size of the exact set, in clusters of average size.
    iterations: steps of Lloyd's algorithm at each refresh, from the previous centroids.
    absolute: use |<centroid_k, h_n>| in place of <centroid_k, h_n>, for models that
      take |o| as logits. A head with another setting is refused.
    power, smoothing: those of `PPS`.

  `log_expected` is that of the sample: the exact set is known only from a draw.

  Source: inverted files, Sivic and Zisserman 2003; the exact set C_n of Barber & Botev
    2016, section 2.1.
  Cost: a draw costs a product of N K D besides that of `PPS`, and has S exact classes;
    `refresh` (iterations + 1) V K D; `update` none. State: K D numbers, 4 bytes a
    class, and that of `PPS`.
  """

  distinct: ClassVar[bool] = True

  clusters: CountOrNone = 0
  probes: Count = 8
  iterations: Annotated[int, Between(1, 1000)] = 2
  absolute: bool = False
  power: Power = 1.0
  smoothing: Smoothing = 1.0

  @property
  def tail(self) -> PPS:
    return PPS(self.power, self.smoothing)

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> IVFStats:
    tail = self.tail.init(counts, w_VD, m)
    V = len(w_VD)
    num = min(self.clusters or round(math.sqrt(V)), V)
    k_rows, k_index = jax.random.split(jax.random.key(_SEED))
    centroids_KD = kmeans.random_rows(k_rows, w_VD, num)
    return IVFStats(tail, *_index(w_VD, centroids_KD, k_index, self.iterations))

  def sample(
    self,
    stats: IVFStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    draw = self.tail.sample(stats.tail, w_VD, key, h_ND, y)
    V, K = len(w_VD), len(stats.centroids_KD)
    size = min(-(-self.probes * V // K), V)
    exact_S = kmeans.first_members(stats.members, self.ranking(stats, h_ND, y), size)
    return draw._replace(exact_ids=exact_S)

  def ranking(self, stats: IVFStats, h_ND: jax.Array, y: Targets) -> jax.Array:
    """The clusters i32[K], by decreasing total probability per class for a batch."""
    check_shapes(h_ND=h_ND, w_NP=y.w_NP, centroids_KD=stats.centroids_KD)
    o_NK = score_of(self.absolute)(jnp.matmul(h_ND, stats.centroids_KD.T))
    size_K = jnp.diff(stats.members.first_K).astype(o_NK.dtype)
    o_NK = jnp.where(size_K[None] > 0, o_NK, LOG_ZERO)
    log_z_N1 = jax.nn.logsumexp(o_NK, axis=1, b=size_K[None], keepdims=True)
    weight_N = jnp.abs(jnp.sum(y.w_NP, axis=1))
    promise_K = weight_N @ jnp.exp(o_NK - log_z_N1)
    return jnp.argsort(-jax.lax.stop_gradient(promise_K)).astype(jnp.int32)

  def log_expected(
    self,
    stats: IVFStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    return self.tail.log_expected(stats.tail, w_VD, h_ND, y, ids)

  update = NoUpkeep.update

  def refresh(self, stats: IVFStats, w_VD: jax.Array, key: jax.Array) -> IVFStats:
    index = _index(w_VD, stats.centroids_KD, key, self.iterations)
    return IVFStats(stats.tail, *index)


@partial(jax.jit, static_argnames="iterations")
def _index(
  w_VD: jax.Array, centroids_KD: jax.Array, key: jax.Array, iterations: int
) -> tuple[jax.Array, Members]:
  """Centroids after `iterations` steps, and the members of their clusters."""
  for key_i in jax.random.split(key, iterations):
    centroids_KD = kmeans.lloyd_step(w_VD, centroids_KD, key_i)
  cluster_V = kmeans.nearest(w_VD, centroids_KD)
  return centroids_KD, kmeans.members(cluster_V, len(centroids_KD))
