"""Reduced cross-entropy: classes that are near an example in an order by hashes.

The letters B, C and Y stand for the number of buckets, of chunks, and of classes in a
chunk.
"""

import math
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import Between, CountOrNone, settings
from largevocab.ops.accidental_hits import is_first
from largevocab.ops.softmax.chunks import fold_rows, logits, wide
from largevocab.placement import in_rows
from largevocab.samplers.buckets import Buckets

_SCORE_BYTES = 8 * 2**20


@settings
class RECE(Buckets):
  """The classes of the chunks at the place of the example, in orders by random hashes.

  In each round, a vector v has the bucket argmax over b of <r_b, v>, with B normal
  vectors r_b. Examples and classes are both sorted by bucket. The order of the classes
  is cut into C chunks of Y, and that of the examples into as many equal parts. The
  candidates of an example are the chunk of the same number, and `neighbours` chunks
  before it and after it. The candidates of several rounds are united: each class counts
  once. With m draws, Y = m / (rounds (2 neighbours + 1)), rounded down, and C = V / Y,
  rounded up.

  Attributes (besides those of `Buckets`):
    buckets: B; 0: sqrt(4 (2 neighbours + 1) min(N, V)), as in the authors' code.
    rounds: number of orders, each with its own vectors.
    neighbours: number of chunks on each side.

  Source: Gusak et al. 2024, and the authors' code, where `neighbours` is
    `n_extra_chunks`.
  Deviations: there each chunk is a number of buckets, B = C, and Y follows; here Y
    follows from m. Within a bucket the order is by <r_b, v> instead of by number, so
    that it does not depend on how examples and classes are numbered. Parts of the
    examples are as equal as can be, even if there are fewer examples than chunks. A
    repeated class is left out; there all of its k occurrences count by 1 / k, which is
    the same. With blocks of classes, each block has its own orders and its share of m.
  Cost: rounds times a product of (N + V) B D and a sort of N and of V numbers. Memory:
    one chunk of the scores of classes, [N, B] and [N, m].
  """

  buckets: CountOrNone = 0
  rounds: Annotated[int, Between(1, 2**10)] = 1
  neighbours: Annotated[int, Between(0, 2**10)] = 1

  def init(self, counts, w_VD, m):
    if m < self.rounds * (2 * self.neighbours + 1):
      raise UserError(
        f"head.num_samples is {m} for this sampler (its share, in a mixture or a block "
        "of classes), less than the "
        f"{self.rounds * (2 * self.neighbours + 1)} chunks of an example: raise "
        "head.num_samples, or lower rounds or neighbours of the sampler"
      )
    return super().init(counts, w_VD, m)

  def choose(self, key, w_VD, h_ND, y, live_N, m):
    N, V = len(h_ND), len(w_VD)
    around = 2 * self.neighbours + 1
    B = self.buckets or max(int(math.sqrt(4 * around * min(N, V))), 1)
    one = partial(self._round, w_VD, h_ND, live_N, B, m // (self.rounds * around))
    ids_LNE = jax.lax.map(one, jax.random.split(key, self.rounds))
    ids_NM = jnp.moveaxis(ids_LNE, 0, 1).reshape(N, -1)
    ids_NM = jnp.where(is_first(ids_NM) & live_N[:, None], ids_NM, V)
    return jnp.pad(ids_NM, ((0, 0), (0, m - ids_NM.shape[1])), constant_values=V)

  def _round(self, w_VD, h_ND, live_N, B, Y, key) -> jax.Array:
    """The candidates of one order, i32[N, (2 neighbours + 1) Y], padded with V."""
    N, V = len(h_ND), len(w_VD)
    C = -(-V // Y)
    r_BD = jax.random.normal(key, (B, h_ND.shape[1]))
    class_V = jnp.pad(_order(r_BD, w_VD, jnp.ones(V, bool)), (0, C * Y - V))
    class_CY = jnp.where(jnp.arange(C * Y) < V, class_V, V).reshape(C, Y)
    place_N = (
      jnp.zeros(N, jnp.int32)
      .at[_order(r_BD, h_ND, live_N)]
      .set(jnp.arange(N, dtype=jnp.int32))
    )
    # In floating point, since the product may exceed 32 bits.
    share_N = place_N / jnp.maximum(jnp.sum(live_N), 1)
    chunk_N = jnp.minimum((share_N * C).astype(jnp.int32), C - 1)
    near_E = jnp.arange(-self.neighbours, self.neighbours + 1)
    at_NE = chunk_N[:, None] + near_E[None]
    at_NE = jnp.where(at_NE < 0, C, at_NE)  # a negative index would be one from the end
    ids_NEY = class_CY.at[at_NE].get(mode="fill", fill_value=V)
    return ids_NEY.reshape(N, -1)


def _order(r_BD: jax.Array, x_RD: jax.Array, live_R: jax.Array) -> jax.Array:
  """The numbers of vectors, i32[R], sorted by bucket and then by decreasing score.

  Vectors that are not live come last.

  >>> r_BD = jnp.array([[1.0], [-1.0]])
  >>> x_RD, live_R = jnp.array([[-1.0], [1.0], [2.0], [7.0]]), jnp.array([1, 1, 1, 0])
  >>> _order(r_BD, x_RD, live_R > 0).tolist()
  [2, 1, 0, 3]
  """

  def hashed(found, chunk):
    score_CB = logits(wide(in_rows(chunk.rows(x_RD))), r_BD, jnp.float32)
    bucket_C = jnp.argmax(score_CB, axis=1).astype(jnp.int32)
    best_C = jnp.max(score_CB, axis=1)
    return chunk.put(found[0], bucket_C), chunk.put(found[1], best_C)

  (R, _), B = x_RD.shape, len(r_BD)
  none = jnp.zeros(R, jnp.int32), jnp.zeros(R, jnp.float32)
  size = max(_SCORE_BYTES // (4 * B), 1)
  bucket_R, best_R = fold_rows(hashed, none, R, size)
  bucket_R = jnp.where(live_R, bucket_R, B)
  return jax.lax.sort((bucket_R, -best_R, jnp.arange(R, dtype=jnp.int32)), num_keys=2)[
    2
  ]
