"""Negatives by locality-sensitive hashing: large logits, or like the true classes."""

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.fields import settings
from largevocab.labels import Targets
from largevocab.ops import shards
from largevocab.ops.lsh import hashing
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide
from largevocab.samplers.lsh_tables import LSH, LSHStats


@settings
class LSHEmbedding(LSH):
  """`LSH` whose query is the last activation h.

  With the family 'mips', the buckets of h hold rows with large logits. With the other
  families they do so approximately, among rows of similar norm.

  Source: Daghaghi et al. 2021, LSH Embedding, theorem 2.
  """

  def query_buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    check_shapes(w_VD=w_VD, h_ND=h_ND)
    buckets = stats.tables.ids_LKE.shape[1]
    return hashing.query_buckets(stats.functions, h_ND, self.codes, buckets).T


@settings
class LSHLabel(LSH):
  """`LSH` whose queries are the rows of the true classes.

  The L tables are divided among the true classes of an example: if P of them have
  weight, table l is queried with the row of number l mod P. Examples without a true
  class get negatives from the unigram distribution.

  Source: Daghaghi et al. 2021, LSH Label, theorem 1, which is for one true class.
  Cost: reads N P rows, and N rows for every table to hash them. With several devices,
    these rows (N P D numbers) are sent, as they may be on other devices.
  """

  def queries(self, w_VD: jax.Array, h_ND: jax.Array, y: Targets) -> jax.Array:
    """The rows of the true classes, [N, P, D], each from the device that has it."""
    is_here_NP = y.ids_NP < len(w_VD)
    row_NPD = w_VD.at[y.ids_NP].get(mode="clip")
    return shards.from_owner(row_NPD, is_here_NP[:, :, None])

  def query_buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    check_shapes(ids_NP=y.ids_NP, w_NP=y.w_NP)
    L, buckets = stats.tables.ids_LKE.shape[:2]
    is_true_NP = jnp.abs(y.w_NP) > 0
    num_N = jnp.sum(is_true_NP, axis=1, dtype=jnp.int32)
    # Indices of the true classes, moved to the front.
    place_NP = jnp.argsort(~is_true_NP, axis=1, stable=True)
    row_NPD = wide(h_ND if h_ND.ndim == 3 else self.queries(w_VD, h_ND, y))

    def ask(args):
      """The buckets of one table."""
      number, functions = args
      turn_N = number % jnp.maximum(num_N, 1)
      at_N1 = jnp.take_along_axis(place_NP, turn_N[:, None], axis=1)
      row_ND = jnp.take_along_axis(row_NPD, at_N1[:, :, None], axis=1)[:, 0]
      functions = jax.tree.map(lambda x: x[None], functions)
      return hashing.query_buckets(functions, row_ND, self.codes, buckets)[0]

    numbers = jnp.arange(L, dtype=jnp.int32)
    bucket_LN = lax.map(ask, (numbers, stats.functions))
    return jnp.where(num_N[:, None] > 0, bucket_LN.T, buckets)
