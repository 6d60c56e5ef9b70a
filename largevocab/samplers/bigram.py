"""The bigram proposal distribution: negatives that follow the current input token.

Here P is the number of distinct bigrams in the data.
"""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops.draws import strata
from largevocab.ops.draws.strata import Strata
from largevocab.ops.shapes import check_shapes
from largevocab.samplers.base import Draw, NoUpkeep, Size, log_expected_at, own_ids
from largevocab.samplers.static import Smoothing, check_counts, count_weights

CHUNK = 1 << 23  # tokens counted at a time


class BigramStats(NamedTuple):
  """Statistics of `Bigram`: one stratum per context, divided among its successors.

  Attributes:
    unigram: the distribution to back off to.
    pairs: one stratum per context seen; its "classes" are the distinct pairs, sorted.
    successor_P: i32[number of pairs], second class of each pair.
    row_V: i32[V], stratum of each context; 0 for those not seen.
    trust_V: u32[V], probability of the bigram part in units of 2^-32.
    size: number of draws.
  """

  unigram: Strata
  pairs: Strata
  successor_P: jax.Array
  row_V: jax.Array
  trust_V: jax.Array
  size: Size


def count_pairs(
  tokens: np.ndarray, num_classes: int, chunk: int = CHUNK
) -> tuple[np.ndarray, np.ndarray]:
  """Distinct bigrams (a, b) as sorted codes a * V + b, i64, and their counts, i64.

  >>> count_pairs(np.array([1, 0, 1, 0]), 2)
  (array([1, 2]), array([1, 2]))

  Cost: O(T log T) time in chunks; memory for one chunk and the distinct pairs.
  """
  codes_P, counts_P = np.empty(0, np.int64), np.empty(0, np.int64)
  for start in range(0, len(tokens) - 1, chunk):
    part = np.asarray(tokens[start : start + chunk + 1], np.int64)
    if part.min() < 0 or part.max() >= num_classes:
      raise UserError(
        f"tokens hold ids {part.min()}..{part.max()}, but there are {num_classes} "
        "classes: count the classes of the same stream"
      )
    part_codes, part_counts = np.unique(
      part[:-1] * num_classes + part[1:], return_counts=True
    )
    codes = np.concatenate([codes_P, part_codes])
    counts = np.concatenate([counts_P, part_counts])
    order = np.argsort(codes, kind="stable")
    codes, counts = codes[order], counts[order]
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    codes_P, counts_P = codes[first], np.add.reduceat(counts, first)
  return codes_P, counts_P


def row_lengths(counts_P: np.ndarray, first: np.ndarray) -> np.ndarray:
  """Integer lengths i64[P] proportional to counts, which sum to 2^32 in every row.

  Row i is counts_P[first[i] : first[i + 1]]. Every pair has a length of at least 1.

  >>> row_lengths(np.array([5, 1, 3]), np.array([0, 1])) / strata.UNIT
  array([1.  , 0.25, 0.75])
  """
  end_P = np.cumsum(counts_P)
  before = end_P[first] - counts_P[first]
  types = np.diff(first, append=len(counts_P))
  totals = np.add.reduceat(counts_P, first)
  within_P = (end_P - np.repeat(before, types)).astype(np.uint64)
  end_P = (
    within_P * np.uint64(strata.UNIT) // np.repeat(totals, types).astype(np.uint64)
  )
  length_P = np.diff(end_P.astype(np.int64), prepend=0)
  length_P[first] = end_P[first]
  return length_P


@settings
class Bigram(NoUpkeep):
  """q(c | a) = trust(a) count(a, c) / count(a) + (1 - trust(a)) unigram(c).

  a is the current input token (`Targets.context_N`) and trust(a) = count(a) / (count(a)
  + number of distinct successors of a): for an unseen context q is the unigram
  distribution. m independent draws per example.

  Source: Bengio and Senecal 2008, section V (an n-gram model as proposal distribution);
    back-off weights of Witten and Bell 1991. Deviation: the unigram counts are
    smoothed.
  Cost: `init` O(T log T) on the host in chunks; 12 bytes of state a distinct pair, 16 a
  class; a draw O(log V).

  Attributes:
    smoothing: added to every unigram count. With 0, classes without counts are never
      drawn, and get no negative gradient from a sampled loss.
  """

  smoothing: Smoothing = 1.0

  independent: ClassVar[bool] = True
  divisible: ClassVar[bool] = False  # blocks have other numbers of pairs

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> BigramStats:
    count_V = check_counts(counts, w_VD)
    tokens, num_classes = as_counts(counts).tokens, len(count_V)
    if tokens is None or len(tokens) < 2:
      raise UserError(
        "the bigram sampler needs the token stream in `Counts.tokens`: choose a data "
        "set of text, or the unigram sampler"
      )
    codes_P, counts_P = count_pairs(tokens, num_classes)
    context_P, successor_P = np.divmod(codes_P, num_classes)
    contexts, first, types = np.unique(context_P, return_index=True, return_counts=True)
    totals = np.add.reduceat(counts_P, first)
    row_V = np.zeros(num_classes, np.int32)
    row_V[contexts] = np.arange(len(contexts))
    trust_V = np.zeros(num_classes, np.uint32)
    trust_V[contexts] = np.rint(totals / (totals + types) * strata.UNIT)
    return BigramStats(
      strata.build_iid(count_weights(count_V, 1.0, self.smoothing)),
      strata.from_lengths(row_lengths(counts_P, first), len(contexts)),
      jnp.asarray(successor_P.astype(np.int32)),
      jnp.asarray(row_V),
      jnp.asarray(trust_V),
      Size(m),
    )

  def sample(
    self,
    stats: BigramStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    check_shapes(w_VD=w_VD, h_ND=h_ND, context_N=y.context_N, row_V=stats.row_V)
    k_unigram, k_pairs = jax.random.split(key)
    shape = (h_ND.shape[0], stats.size.m)
    unigram_NM = strata.draw_iid(stats.unigram, k_unigram, shape)
    coin_NM, u_NM = jax.random.bits(k_pairs, (2, *shape), jnp.uint32)
    row_NM = jnp.broadcast_to(stats.row_V[y.context_N][:, None], shape)
    pair_NM = strata.lookup(stats.pairs, row_NM, u_NM)
    from_pairs_NM = coin_NM < stats.trust_V[y.context_N][:, None]
    ids_NM = jnp.where(from_pairs_NM, stats.successor_P[pair_NM], unigram_NM)
    log_expected_NM = self.log_expected(stats, w_VD, h_ND, y, ids_NM)
    return Draw(ids_NM, log_expected_NM, jnp.ones(shape, bool))

  def log_expected(
    self,
    stats: BigramStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    n = check_shapes(h_ND=h_ND, context_N=y.context_N, row_V=stats.row_V)["N"]
    ids_NM = own_ids(ids, n)
    row_NM = jnp.broadcast_to(stats.row_V[y.context_N][:, None], ids_NM.shape)
    low_NM, high_NM = stats.pairs.first_K[row_NM], stats.pairs.first_K[row_NM + 1]
    pair_NM = strata.last_at_most(stats.successor_P, low_NM, high_NM, ids_NM)
    found_NM = (pair_NM >= low_NM) & (stats.successor_P[pair_NM] == ids_NM)
    log_pair_NM = jnp.where(found_NM, stats.pairs.log_expected_V[pair_NM], -jnp.inf)
    log_unigram_NM = log_expected_at(stats.unigram.log_expected_V, ids_NM)
    trust_N = stats.trust_V[y.context_N]
    unit = float(strata.UNIT)
    trust_N1 = trust_N.astype(jnp.float32)[:, None] / unit
    doubt_N1 = (1 + (~trust_N).astype(jnp.float32))[:, None] / unit  # 1 - trust, exact
    log_iid_NM = log_unigram_NM - math.log(strata.IID_STRATA)
    q_NM = trust_N1 * jnp.exp(log_pair_NM) + doubt_N1 * jnp.exp(log_iid_NM)
    return jnp.log(q_NM) + math.log(stats.size.m)
