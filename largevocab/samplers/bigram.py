"""The bigram proposal distribution: negatives that follow the current input token.

The letter P stands for the number of distinct bigrams in the data, and K for the number
of their first classes, the contexts. In blocks of classes, these are the bigrams that
end in the block.
"""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops.block_counts import for_all_blocks, number_of
from largevocab.ops.class_blocks import Blocks
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
    successor_P: i32[P], second class of each pair.
    context_K: i32[K], the contexts seen, ascending, padded with the largest integer
      if other blocks have more contexts.
    trust_K: u32[K], probability of the bigram part in units of 2^-32.
    size: number of draws.
  """

  unigram: Strata
  pairs: Strata
  successor_P: jax.Array
  context_K: jax.Array
  trust_K: jax.Array
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
        "classes: pass the counts of the same token stream"
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
  """Integer lengths i64[P], proportional to counts, that sum to 2^32 in every row.

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

  Here a is the current input token (`Targets.context_N`, the `context_N` of
  `single_targets`), and trust(a) = count(a) / (count(a) + number of distinct successors
  of a). For an unseen context, q is the unigram distribution. There are m independent
  draws per example.

  Source: Bengio and Senecal 2008, section V (an n-gram model as proposal distribution);
    back-off weights of Witten and Bell 1991. Deviation: the unigram counts are
    smoothed.
  Cost: `init` O(T log T) on the host in chunks; 12 bytes of state for each distinct
  pair, 8 for each class and 12 for each context; a draw O(log P).

  Attributes:
    smoothing: added to every unigram count. With 0, classes without counts are never
      drawn, and get no negative gradient from a sampled loss.
  """

  smoothing: Smoothing = 1.0

  independent: ClassVar[bool] = True

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> BigramStats:
    count_V = check_counts(counts, w_VD)
    each = for_all_blocks(as_counts(counts), _pairs_by_block)
    own = each[number_of(counts)]
    num_pairs = max(len(pairs.count_P) for pairs in each)
    num_contexts = max(len(pairs.first_K) for pairs in each)
    length_P = row_lengths(own.count_P, own.first_K)
    fill = num_contexts - len(own.first_K)
    pairs = strata.from_lengths(_padded(length_P, num_pairs, 0), len(own.first_K))
    total_K = np.add.reduceat(own.count_P, own.first_K)
    types_K = np.diff(own.first_K, append=len(own.count_P))
    trust_K = np.rint(total_K / (total_K + types_K) * strata.UNIT).astype(np.uint32)
    context_K = own.context_P[own.first_K].astype(np.int32)
    no_context = np.iinfo(np.int32).max
    return BigramStats(
      strata.build_iid(count_weights(count_V, 1.0, self.smoothing)),
      pairs._replace(first_K=jnp.pad(pairs.first_K, (0, fill), mode="edge")),
      jnp.asarray(_padded(own.successor_P.astype(np.int32), num_pairs, 0)),
      jnp.asarray(_padded(context_K, num_contexts, no_context)),
      jnp.asarray(_padded(trust_K, num_contexts, 0)),
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
    check_shapes(w_VD=w_VD, h_ND=h_ND, context_N=y.context_N)
    k_unigram, k_pairs = jax.random.split(key)
    shape = (h_ND.shape[0], stats.size.m)
    unigram_NM = strata.draw_iid(stats.unigram, k_unigram, shape)
    coin_NM, u_NM = jax.random.bits(k_pairs, (2, *shape), jnp.uint32)
    row_N, trust_N = _of_context(stats, y.context_N)
    row_NM = jnp.broadcast_to(row_N[:, None], shape)
    pair_NM = strata.lookup(stats.pairs, row_NM, u_NM)
    from_pairs_NM = coin_NM < trust_N[:, None]
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
    n = check_shapes(h_ND=h_ND, context_N=y.context_N)["N"]
    ids_NM = own_ids(ids, n)
    row_N, trust_N = _of_context(stats, y.context_N)
    row_NM = jnp.broadcast_to(row_N[:, None], ids_NM.shape)
    low_NM, high_NM = stats.pairs.first_K[row_NM], stats.pairs.first_K[row_NM + 1]
    pair_NM = strata.last_at_most(stats.successor_P, low_NM, high_NM, ids_NM)
    found_NM = (pair_NM >= low_NM) & (stats.successor_P[pair_NM] == ids_NM)
    log_pair_NM = jnp.where(found_NM, stats.pairs.log_expected_V[pair_NM], -jnp.inf)
    log_unigram_NM = log_expected_at(stats.unigram.log_expected_V, ids_NM)
    unit = float(strata.UNIT)
    trust_N1 = trust_N.astype(jnp.float32)[:, None] / unit
    doubt_N1 = (1 + (~trust_N).astype(jnp.float32))[:, None] / unit  # 1 - trust, exact
    log_iid_NM = log_unigram_NM - math.log(strata.IID_STRATA)
    q_NM = trust_N1 * jnp.exp(log_pair_NM) + doubt_N1 * jnp.exp(log_iid_NM)
    return jnp.log(q_NM) + math.log(stats.size.m)


class _Pairs(NamedTuple):
  """The distinct bigrams that end in one block of classes, sorted.

  Attributes:
    context_P: i64[P], first class of each pair.
    successor_P: i64[P], second class, as a row of the block.
    count_P: i64[P].
    first_K: i64[K], the first pair of each context.
  """

  context_P: np.ndarray
  successor_P: np.ndarray
  count_P: np.ndarray
  first_K: np.ndarray


def _pairs_by_block(counts: Counts, blocks: Blocks) -> list[_Pairs]:
  tokens, num_classes = counts.tokens, counts.num_classes
  if tokens is None or len(tokens) < 2:
    raise UserError(
      "the bigram sampler needs the token stream in `Counts.tokens`: choose a data "
      "set of text, or the unigram sampler"
    )
  codes_P, count_P = count_pairs(tokens, num_classes)
  context_P, successor_P = np.divmod(codes_P, num_classes)
  row_P, block_P = np.divmod(successor_P, blocks.num)

  def of_block(number):
    at_P = np.flatnonzero(block_P == number)
    context_S = context_P[at_P]
    first_K = np.flatnonzero(np.diff(context_S, prepend=-1))
    return _Pairs(context_S, row_P[at_P], count_P[at_P], first_K)

  return [of_block(number) for number in range(blocks.num)]


def _padded(x_P: np.ndarray, num: int, value: int) -> np.ndarray:
  return np.pad(x_P, (0, num - len(x_P)), constant_values=value)


def _of_context(
  stats: BigramStats, context_N: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The stratum i32[N] and trust u32[N] of each context; 0 for unseen contexts."""
  start_N = jnp.zeros(context_N.shape, jnp.int32)
  end_N = jnp.full(context_N.shape, len(stats.context_K), jnp.int32)
  context_N = jnp.asarray(context_N, jnp.int32)
  at_N = strata.last_at_most(stats.context_K, start_N, end_N, context_N)
  is_seen_N = (at_N >= 0) & (stats.context_K[at_N] == context_N)
  return jnp.where(is_seen_N, at_N, 0), jnp.where(is_seen_N, stats.trust_K[at_N], 0)
