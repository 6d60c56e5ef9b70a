"""Negatives from the batch itself, with probabilities estimated from the stream."""

from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.fields import Between, settings
from largevocab.labels import Counts, Targets, batch_classes, is_class
from largevocab.ops.shapes import check_shapes
from largevocab.ops.together import together
from largevocab.samplers.base import Draw, NoUpkeep, Size
from largevocab.samplers.static import check_counts


class InBatchStats(NamedTuple):
  """Statistics of `InBatch`.

  Attributes:
    step: i32[], number of updates.
    seen_V: i32[V], the last update in whose batch each class was; 0: none.
    gap_V: f32[V], moving average of the steps between batches with each class.
    size: number of draws.
  """

  step: jax.Array
  seen_V: jax.Array
  gap_V: jax.Array
  size: Size


@settings
class InBatch:
  """The true classes of the batch are the negatives of all its examples.

  Each class of the batch is drawn once. If there are more than m, then m of them are
  chosen at random. With K classes in the batch, and p(c) the probability that a batch
  has class c,

    expected(c) = p(c) min(1, m / K).

  p(c) is an estimate, 1 / gap(c). When class c is in the batch of step t, and was last
  in that of step s,

    gap(c) <- (1 - rate) gap(c) + rate (t - s).

  If batches are independent, gap(c) is independent of the batch that it weighs, and has
  the mean 1 / p(c) once its start is forgotten. The weights of the logQ correction are
  then right on average, with a relative variance of about rate / 2.

  The start is the distribution of m independent labels, p(c) = 1 - (1 - q(c))^m, with
  q(c) proportional to count(c) + smoothing: set m to the number of labels of a batch.
  It is forgotten after some 1 / rate batches with the class, so for rare classes hardly
  ever. With blocks of classes, each block has its share of m, and an estimate for its
  own classes.

  Other samplers have exact distributions, of a draw for given labels. This one is an
  estimate, and of the labels themselves. An example's own label is not one of its
  negatives, so another class is a negative if it is in the rest of the batch. With N
  independent labels, the estimate of Z therefore contains a rare class with as little
  as 1 - 1 / N of its value.

  `update` takes the changed rows to be the classes of one batch, as nothing else is
  drawn. Rows that the head always sums exactly need no estimate. If gradients are
  accumulated over several batches, these count as one.

  Attributes:
    rate: weight of the newest gap.
    smoothing: added to every count for the start.

  Source: Yi et al. 2019, algorithm 2. Deviations: an array of all classes instead of
    hashes; the start; the true class has its own logit, where the paper corrects it as
    `head.loss.correct_positive=True` does.
  Cost: a draw and `update` O(N P log(N P)), independent of V; 8 bytes of state for each
    class.
  """

  distinct: ClassVar[bool] = True
  counts_rows: ClassVar[bool] = True
  of_batches: ClassVar[bool] = True
  rebuilds: ClassVar[bool] = False

  rate: Annotated[float, Between(0, 1, excluding=(0,))] = 0.01
  smoothing: Annotated[float, Between(0, 10**9, excluding=(0,))] = 1.0

  def draws_for(self, labels: int) -> int:
    return labels

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> InBatchStats:
    smooth_V = check_counts(counts, w_VD) + self.smoothing
    q_V = np.minimum(smooth_V / smooth_V.sum(), 1 - 1e-9)
    gap_V = -1 / np.expm1(m * np.log1p(-q_V))
    return InBatchStats(
      jnp.zeros((), jnp.int32),
      jnp.zeros(len(q_V), jnp.int32),
      jnp.asarray(gap_V, jnp.float32),
      Size(m),
    )

  def sample(
    self,
    stats: InBatchStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    V, m = len(w_VD), stats.size.m
    ids_T = batch_classes(y, V)
    turn_T = jnp.where(ids_T < V, jax.random.uniform(key, ids_T.shape), jnp.inf)
    ids_M = ids_T[jnp.argsort(turn_T)[:m]]
    ids_M = jnp.pad(ids_M, (0, m - len(ids_M)), constant_values=V)
    mask_M, ids_M = ids_M < V, jnp.minimum(ids_M, V - 1)
    return Draw(ids_M, self.log_expected(stats, w_VD, h_ND, y, ids_M), mask_M)

  def log_expected(
    self,
    stats: InBatchStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    V = check_shapes(w_VD=w_VD, gap_V=stats.gap_V)["V"]
    num = jnp.sum(batch_classes(y, V) < V)
    log_share = jnp.log(jnp.minimum(1, stats.size.m / jnp.maximum(num, 1)))
    log_p = -jnp.log(stats.gap_V.at[ids].get(mode="clip"))
    return jnp.where(is_class(ids, V), log_p + log_share, -jnp.inf)

  def update(
    self,
    stats: InBatchStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> InBatchStats:
    step = stats.step + 1
    # Read before they are written, so that no copy of all classes' statistics is made.
    read = lambda x_V: x_V.at[ids_R].get(mode="clip")
    gap_R, seen_R, ids_R = together((read(stats.gap_V), read(stats.seen_V), ids_R))
    gap_R += self.rate * ((step - seen_R).astype(jnp.float32) - gap_R)
    gap_R = jnp.maximum(gap_R, 1.0)  # differences of large gaps are rounded
    return stats._replace(
      step=step,
      seen_V=stats.seen_V.at[ids_R].set(step, mode="drop"),
      gap_V=stats.gap_V.at[ids_R].set(gap_R, mode="drop"),
    )

  refresh = NoUpkeep.refresh
