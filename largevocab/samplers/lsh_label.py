"""Negatives from the buckets of the true classes: those easily mistaken for them."""

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.fields import settings
from largevocab.labels import Targets
from largevocab.ops.lsh import hashing
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.lsh import LSH, LSHStats


@settings
class LSHLabel(LSH):
  """`LSH` whose queries are the rows of the true classes.

  The tables of an example are shared out over its true classes: of P with weight, table
  l is asked for the likes of number l mod P. Examples without a true class have
  negatives by counts.

  Source: Daghaghi et al. 2021, LSH Label, theorem 1, which says of one true class what
    is done.
  Cost: reads N P rows, and N rows for every table to hash them.
  """

  def query_buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    check_shapes(ids_NP=y.ids_NP, w_NP=y.w_NP, h_ND=h_ND)
    L, buckets = stats.tables.ids_LKE.shape[:2]
    is_true_NP = (y.ids_NP < len(w_VD)) & (y.w_NP > 0)
    num_N = jnp.sum(is_true_NP, axis=1, dtype=jnp.int32)
    # The places of the true classes, in front.
    place_NP = jnp.argsort(~is_true_NP, axis=1, stable=True)
    row_NPD = w_VD.at[y.ids_NP].get(mode="clip")

    def ask(args):
      """One table."""
      number, functions = args
      turn_N = number % jnp.maximum(num_N, 1)
      at_N1 = jnp.take_along_axis(place_NP, turn_N[:, None], axis=1)
      row_ND = jnp.take_along_axis(row_NPD, at_N1[:, :, None], axis=1)[:, 0]
      functions = jax.tree.map(lambda x: x[None], functions)
      return hashing.query_buckets(functions, row_ND, self.codes, buckets)[0]

    numbers = jnp.arange(L, dtype=jnp.int32)
    bucket_LN = lax.map(ask, (numbers, stats.functions))
    return jnp.where(num_N[:, None] > 0, bucket_LN.T, buckets)
