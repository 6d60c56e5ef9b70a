"""Scalable cross-entropy: the best classes of buckets around random mixed activations.

The letters B, X and Y stand for the number of buckets, of examples in a bucket, and of
classes in a bucket.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from largevocab.fields import CountOrNone, settings
from largevocab.ops.accidental_hits import LOG_ZERO, is_member
from largevocab.ops.softmax import top_k
from largevocab.ops.softmax.chunks import logits, wide
from largevocab.samplers.buckets import Buckets


@settings
class SCE(Buckets):
  """The m classes of the example's bucket, of a few buckets around random directions.

  A bucket with the direction z_b has

    examples: the X with the largest <z_b, h_n>,
    classes: the m with the largest <z_b, w_c>.

  An example in several buckets takes the one with the largest loss, which is the one
  with the largest sum of exp(<w_c, h_n>) over the classes that are not true. An example
  in no bucket has no candidates: its loss is 0, and it is not learned from in this
  step. With biases, the constant feature is a coordinate like any other.

  Attributes (besides those of `Buckets`):
    buckets: B; 0: 2 sqrt(N), as in the authors' experiments.
    examples: X; 0: 2 sqrt(N), likewise. With X >= N every example is in all buckets.
    mix: directions are random mixtures of the batch's activations,
      z_b = sum over n of g_bn h_n with normal g_bn. Otherwise they are normal vectors.

  Source: Mezentsev et al. 2024, and the authors' code, whose `mix_x` is `mix`.
  Deviations: the mean of the losses is over all examples, not over those in a bucket,
    which scales the gradient. The mixture leaves out examples without weight. With
    blocks of classes, each block chooses its share of m, and one of its buckets for
    each example; the directions are common to all blocks.
  Cost: products of N B D, B V D and B X m D. Memory: [N, B], one chunk of the scores of
    classes, the rows [B, m, D], and [X, m] for one bucket at a time. The head then
    reads m rows for each example, where the paper's loss reads m for each bucket.
  """

  follows_products: ClassVar[bool] = True

  buckets: CountOrNone = 0
  examples: CountOrNone = 0
  mix: bool = True

  def choose(self, key, w_VD, h_ND, y, live_N, m):
    N, V = len(h_ND), len(w_VD)
    default = max(int(2 * math.sqrt(N)), 1)
    B, X = self.buckets or default, min(self.examples or default, N)
    z_BD = self._directions(key, h_ND, live_N, B)
    score_BN = jnp.where(live_N[None], logits(z_BD, h_ND, jnp.float32), -jnp.inf)
    ids_BY, _ = top_k.top_k(z_BD, w_VD, min(m, V), row_major=True)
    _, at_BX = jax.lax.top_k(score_BN, X)

    def log_sums(bucket):
      at_X, ids_Y, w_YD = bucket
      o_XY = logits(h_ND[at_X], wide(w_YD), jnp.float32)
      is_true_XY = is_member(jnp.broadcast_to(ids_Y, o_XY.shape), y.ids_NP[at_X])
      log_sum_X = jax.nn.logsumexp(jnp.where(is_true_XY, LOG_ZERO, o_XY), axis=1)
      none_N = jnp.full(N, -jnp.inf, log_sum_X.dtype)
      return none_N.at[at_X].set(jnp.where(live_N[at_X], log_sum_X, -jnp.inf))

    log_sum_BN = jax.lax.map(log_sums, (at_BX, ids_BY, w_VD[ids_BY]))
    ids_NY = ids_BY[jnp.argmax(log_sum_BN, axis=0)]
    is_there_N = jnp.max(log_sum_BN, axis=0) > -jnp.inf
    ids_NY = jnp.where(is_there_N[:, None], ids_NY, V)
    return jnp.pad(ids_NY, ((0, 0), (0, m - ids_NY.shape[1])), constant_values=V)

  def _directions(self, key, h_ND, live_N, num: int) -> jax.Array:
    """The directions of the buckets, f32[B, D]."""
    N, D = h_ND.shape
    if not self.mix:
      return jax.random.normal(key, (num, D))
    # One key for each example, so that padding changes nothing.
    keys_N = jax.vmap(lambda n: jax.random.fold_in(key, n))(jnp.arange(N))
    g_NB = jax.vmap(lambda key: jax.random.normal(key, (num,)))(keys_N)
    return jnp.matmul(jnp.where(live_N[:, None], g_NB, 0).T, h_ND)
