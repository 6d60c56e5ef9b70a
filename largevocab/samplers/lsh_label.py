"""Negatives from the buckets of the true classes: those easily mistaken for them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from largevocab.labels import Targets
from largevocab.ops import hashing
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.lsh import LSH, LSHStats


@dataclass(frozen=True)
class LSHLabel(LSH):
  """`LSH` whose queries are the rows of the true classes.

  The tables of an example are shared out over its true classes: of P with weight, table
  l is asked for the likes of number l mod P. Examples without a true class have
  negatives by counts.

  Source: paper 002, LSH Label, theorem 1, which says of one true class what is done.
  Cost: hashes N P rows for a draw.
  """

  def query_buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    N, P = (check_shapes(ids_NP=y.ids_NP, w_NP=y.w_NP, h_ND=h_ND)[x] for x in "NP")
    L, buckets = stats.tables.ids_LKE.shape[:2]
    row_RD = w_VD.at[y.ids_NP.ravel()].get(mode="clip")
    bucket_LR = hashing.query_buckets(stats.functions, row_RD, self.codes, buckets)
    bucket_NPL = jnp.moveaxis(bucket_LR.reshape(L, N, P), 0, 2)
    is_true_NP = (y.ids_NP < len(w_VD)) & (y.w_NP > 0)
    num_N = jnp.sum(is_true_NP, axis=1, dtype=jnp.int32)
    number_NP = jnp.cumsum(is_true_NP, axis=1, dtype=jnp.int32) - 1
    turn_NL = jnp.arange(L, dtype=jnp.int32)[None] % jnp.maximum(num_N, 1)[:, None]
    is_it_NPL = is_true_NP[:, :, None] & (number_NP[:, :, None] == turn_NL[:, None])
    bucket_NL = jnp.sum(jnp.where(is_it_NPL, bucket_NPL, 0), axis=1)
    return jnp.where(num_N[:, None] > 0, bucket_NL, buckets)
