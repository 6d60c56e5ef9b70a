"""LSH negatives from the buckets of h: classes with large logits."""

import jax

from largevocab.fields import settings
from largevocab.labels import Targets
from largevocab.ops.lsh import hashing
from largevocab.samplers.lsh import LSH, LSHStats


@settings
class LSHEmbedding(LSH):
  """`LSH` whose query is the last activation h.

  With the family 'mips' the buckets of h hold rows of large logits; with the others
  approximately so, among rows of similar norm.

  Source: Daghaghi et al. 2021, LSH Embedding, theorem 2.
  """

  def query_buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    buckets = stats.tables.ids_LKE.shape[1]
    return hashing.query_buckets(stats.functions, h_ND, self.codes, buckets).T
