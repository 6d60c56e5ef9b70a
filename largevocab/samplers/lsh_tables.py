"""LSH samplers: negatives from hash tables of class rows, in time independent of V.

The letters E and K stand for the number of slots of a bucket and of buckets of a table.
"""

import abc
import math
from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.errors import UserError
from largevocab.fields import Between, CountOrNone, OneOf, Share, settings
from largevocab.labels import Counts, Targets, is_class
from largevocab.ops.draws import strata
from largevocab.ops.lsh import hashing, slot_tables
from largevocab.ops.lsh.hashing import Functions
from largevocab.ops.lsh.slot_tables import SlotTables
from largevocab.ops.lsh.votes import first_distinct, most_common
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import fold_rows
from largevocab.placement import in_rows
from largevocab.samplers.base import (
  Draw,
  PyTree,
  Sampler,
  log_certain_at,
  log_expected_at,
  own_ids,
)
from largevocab.samplers.pps import PPS
from largevocab.samplers.static import Power, Smoothing, Unigram

DRAWS = ("independent", "fill")
_HASHED_AT_A_TIME = 4096  # number of rows
_SEED = 0x5D1C9A37  # for the first tables; unlikely as the seed of a training run


class LSHStats(NamedTuple):
  """Statistics of `LSH`.

  Attributes:
    by_count: statistics of the sampler by counts.
    functions: hash functions, separate ones for each table.
    tables: hash tables from hashes of rows to class ids.
    updates: i32[], number of updates so far; determines which tables are rebuilt next.
    key: u32, data of the PRNG key for tables rebuilt in turn; `refresh` replaces it.
  """

  by_count: PyTree
  functions: Functions
  tables: SlotTables
  updates: jax.Array
  key: jax.Array


@settings
class LSH(abc.ABC):
  """Base of samplers that look up a query in L hash tables of the class rows.

  With draw='independent', there are m draws per example from

    q(c | query) = u unigram(c) + (1 - u) (1 / L') sum over l of [c in bucket_l]
      / |bucket_l|,

  where bucket_l is the bucket of the query in table l, and L' the number of non-empty
  buckets; if all are empty, u is 1. This distribution is exact for the current tables,
  even if rows have changed since or classes were dropped. Of the m draws, u m are from
  the first part, with u m rounded at random.

  With draw='fill', the paper's own procedure, the draw has the first m distinct classes
  of bucket_1, bucket_2, ... bucket_L that are not true, in the order of slots; fewer if
  the buckets have fewer. Only the tables are random, and the distribution over tables
  is unknown. `log_expected` is therefore 0 for the classes found and -inf for others,
  and heads that use importance weights refuse the sampler (`weighable`). Use
  `head.loss.corrected=False`.

  Attributes:
    draw: 'independent' or 'fill', as above.
    family: hash functions: 'dwta' (densified winner-take-all), 'simhash' (angles) or
      'mips' (inner products); see `ops/lsh/hashing.py`. With 'dwta', the constant
      feature of a head's bias is a coordinate like any other. 8 C / D of the tables use
      the bin that has it; these tables discriminate less if it exceeds most
      activations.
    codes: C, codes per table, of 8 values each. In the other families a code has 2
      values, so that they need three times as many codes for the same number of
      buckets. More codes make buckets smaller and closer to the query. About V / 10
      buckets work well.
    tables: L, the number of tables.
    slots: E, slots per bucket, up to 4096. A table has enough buckets for 4 V slots or
      more, or one bucket for every combination of codes, if these are fewer. A class
      has one slot of a bucket, by a hash of its id. Of the classes that collide, one is
      kept, so that a table lacks some classes even if slots are free: of ten in a
      bucket of 16 a quarter, on average.
    unigram_share: u. With 0, an estimate leaves out classes that share no bucket with
      the query, and is biased: this is the paper's choice. 'fill' requires 0.
    exact: if not 0, up to this many classes from the query's buckets (at most L E), by
      the number of tables they are found in, are summed exactly for each example
      (`Draw.exact_ids`), and m classes are drawn by `PPS` for the whole batch. This is
      the estimate with the least variance from these tables. u is then not used.
    rehash: move changed rows to their new buckets at every update. If a projection
      rounds differently than before, the old entry remains until its table is rebuilt;
      this never happens with 'dwta'. Without `rehash`, tables change only when rebuilt.
    rebuild_tables: number of tables rebuilt with new functions at every update, in
      turn, so that no single step rebuilds all. With it, set `head.refresh_every` to 0:
      otherwise refreshes still rebuild all.
    power, smoothing: those of the sampler by counts, as in `Unigram` and `PPS`.

  Source: Daghaghi et al. 2021; 'fill' is its appendix C, where buckets are taken until
    the budget is exhausted. Deviations: 'independent', with exactly known
    probabilities, is not in the paper. 1 - (1 - p^C)^L of theorems 1 and 2 is the
    probability over random hash functions, not of a draw from given tables. The paper
    updates tables every 50 iterations at first and then ever less often. Here rows are
    rehashed as they change, and a refresh chooses new hash functions. A class has one
    slot of a bucket, see `slots`.
  Cost: a draw hashes N vectors and reads N L (E + m) slots, independent of V; 'fill'
    reads N L E, in two or three rounds of hashing. `refresh` hashes V rows and writes
    V L slots; an update hashes 2 R rows and writes 2 R L slots, or rebuilds the tables
    where that is less. Rehashing thus takes 2 R / V of the time of a rebuild in every
    step, as measured up to 1.8 times that: with 1024 examples of 128 negatives each,
    over half a rebuild of 670 k classes. If R is that large, `rebuild_tables` without
    `rehash` costs `rebuild_tables` / L of a rebuild. State: 4 bytes a slot, at most
    32 L bytes a class, less where there are few combinations of codes: with L = 50 and
    E = 16, 13 MB for C = 4 at any V, 840 MB for V = 670 k and C = 6. `refresh` needs as
    much again.
  """

  draw: Annotated[str, OneOf(*DRAWS)] = "independent"
  family: Annotated[str, OneOf(*hashing.FAMILIES)] = "dwta"
  codes: Annotated[int, Between(1, 32)] = 4
  tables: Annotated[int, Between(1, 2**10)] = 50
  slots: Annotated[int, Between(1, 2**12)] = 16
  unigram_share: Share = 0.5
  exact: CountOrNone = 0
  rehash: bool = True
  rebuild_tables: CountOrNone = 0
  power: Power = 1.0
  smoothing: Smoothing = 1.0

  def __post_init__(self):
    for name in ("unigram_share", "exact"):
      if self.draw == "fill" and getattr(self, name):
        raise UserError(
          f"head.sampler.{name} is {getattr(self, name)}, but head.sampler.draw is "
          "'fill', which takes classes from buckets only: set "
          f"head.sampler.{name} to 0, or head.sampler.draw to 'independent'"
        )
    if self.exact > self.tables * self.slots:
      raise UserError(
        f"head.sampler.exact is {self.exact}, but the {self.tables} buckets of a query "
        f"have {self.slots} slots each: use {self.tables * self.slots} or less"
      )
    if self.rebuild_tables > self.tables:
      raise UserError(
        f"head.sampler.rebuild_tables is {self.rebuild_tables}, but there are only "
        f"{self.tables} tables: use {self.tables} or less"
      )

  @abc.abstractmethod
  def query_buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> jax.Array:
    """The bucket i32[N, L] of each example in each table; K: no bucket."""

  @property
  def follows_products(self) -> bool:
    return self.family == "mips"

  @property
  def weighable(self) -> bool:
    return self.draw != "fill"

  @property
  def distinct(self) -> bool:
    return self.exact > 0

  @property
  def by_count(self) -> Sampler:
    if self.exact:
      return PPS(self.power, self.smoothing)
    return Unigram(per_example=True, power=self.power, smoothing=self.smoothing)

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> LSHStats:
    by_count = self.by_count.init(counts, w_VD, m)
    return self._new_stats(by_count, jnp.int32(0), w_VD, jax.random.key(_SEED))

  def sample(
    self,
    stats: LSHStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    bucket_NL, members_NLE = self._buckets(stats, w_VD, h_ND, y)
    N, V, m = len(h_ND), len(w_VD), stats.by_count.size.m
    if self.draw == "fill":
      ids_NM = first_distinct(members_NLE.reshape(N, -1), V, m, without_NP=y.ids_NP)
      mask_NM = ids_NM < V
      ids_NM = jnp.where(mask_NM, ids_NM, ids_NM[:, :1] % V)
      return Draw(ids_NM, jnp.zeros((N, m)), mask_NM)
    if self.exact:
      draw = self.by_count.sample(stats.by_count, w_VD, key, h_ND, y)
      exact_NS = most_common(members_NLE.reshape(N, -1), V, self.exact)
      return draw._replace(exact_ids=exact_NS)
    k_count, k_coin, k_bucket, k_rest = jax.random.split(key, 4)
    size_NL = slot_tables.sizes(members_NLE, V)
    certain, chance = self._num_by_count(m)
    count_NM = strata.draw_iid(stats.by_count.strata, k_count, (N, certain + 1))
    drawn_NM = slot_tables.draw(k_bucket, members_NLE, V, m - certain)
    if chance:
      is_count_N = jax.random.bits(k_coin, (N,), jnp.uint32) < jnp.uint32(chance)
      one_N = jnp.where(is_count_N, count_NM[:, -1], drawn_NM[:, 0])
      drawn_NM = drawn_NM.at[:, 0].set(one_N)
    is_none_N1 = _has_none(size_NL)

    def replace(ids_NM):
      by_count_NM = strata.draw_iid(stats.by_count.strata, k_rest, ids_NM.shape)
      return jnp.where(is_none_N1, by_count_NM, ids_NM)

    drawn_NM = lax.cond(jnp.any(is_none_N1), replace, lambda ids: ids, drawn_NM)
    ids_NM = jnp.concatenate([count_NM[:, :certain], drawn_NM], axis=1)
    log_expected_NM = self._log_expected(stats, bucket_NL, size_NL, ids_NM)
    return Draw(ids_NM, log_expected_NM, jnp.ones((N, m), bool))

  def log_expected(
    self,
    stats: LSHStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    if self.exact:
      return self.by_count.log_expected(stats.by_count, w_VD, h_ND, y, ids)
    bucket_NL, members_NLE = self._buckets(stats, w_VD, h_ND, y)
    N, V, m = len(h_ND), len(w_VD), stats.by_count.size.m
    ids_NM = own_ids(ids, N)
    if self.draw == "fill":
      members_NS = members_NLE.reshape(N, -1)
      filled_NM = first_distinct(members_NS, V, m, without_NP=y.ids_NP)
      return log_certain_at(filled_NM, ids_NM, V)
    size_NL = slot_tables.sizes(members_NLE, V)
    return self._log_expected(stats, bucket_NL, size_NL, ids_NM)

  def update(
    self,
    stats: LSHStats,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> LSHStats:
    check_shapes(w_VD=w_VD, ids_R=ids_R, old_RD=old_RD, new_RD=new_RD)
    functions, tables, V = stats.functions, stats.tables, len(w_VD)
    if self.rehash and 2 * len(ids_R) >= V:  # rebuilding all is cheaper
      tables = self._build(functions, tables.factor_L, w_VD)
    elif self.rehash:
      tables = _move(functions, tables, ids_R, old_RD, new_RD, V, self.codes)
    stats = stats._replace(tables=tables, updates=stats.updates + 1)
    return self._rebuild_some(stats, w_VD) if self.rebuild_tables else stats

  def refresh(self, stats: LSHStats, w_VD: jax.Array, key: jax.Array) -> LSHStats:
    return self._new_stats(stats.by_count, stats.updates, w_VD, key)

  def _new_stats(
    self, by_count: PyTree, updates: jax.Array, w_VD: jax.Array, key: jax.Array
  ) -> LSHStats:
    k_all, k_some = jax.random.split(key)
    functions, tables = self._new_tables(w_VD, k_all, self.tables)
    if (
      k_some.dtype != jax.random.key(0).dtype
    ):  # `_rebuild_some` takes keys of the default kind
      k_some = jax.random.key(jax.random.bits(k_some, (), jnp.uint32))
    return LSHStats(by_count, functions, tables, updates, jax.random.key_data(k_some))

  def _rebuild_some(self, stats: LSHStats, w_VD: jax.Array) -> LSHStats:
    num = self.rebuild_tables
    turn = (stats.updates - 1) % -(-self.tables // num)
    start = jnp.minimum(turn * num, self.tables - num)
    key = jax.random.wrap_key_data(stats.key)
    key = jax.random.fold_in(key, stats.updates)
    put = partial(lax.dynamic_update_slice_in_dim, start_index=start, axis=0)
    old = stats.functions, stats.tables
    functions, tables = jax.tree.map(put, old, self._new_tables(w_VD, key, num))
    return stats._replace(functions=functions, tables=tables)

  def _new_tables(
    self, w_VD: jax.Array, key: jax.Array, tables: int
  ) -> tuple[Functions, SlotTables]:
    """`tables` tables of all rows, with new hash functions."""
    k_functions, k_slots = jax.random.split(key)
    functions = hashing.new_functions(
      self.family, k_functions, w_VD, self.codes, tables
    )
    factor_L = slot_tables.new_factors(k_slots, tables)
    return functions, self._build(functions, factor_L, w_VD)

  def _build(
    self, functions: Functions, factor_L: jax.Array, w_VD: jax.Array
  ) -> SlotTables:
    V, D = w_VD.shape
    radix = hashing.radix(self.family, D)
    num = hashing.num_buckets(radix, self.codes, -(-4 * V // self.slots))
    if num * self.slots >= 2**31 or V > 2**30:
      raise UserError(
        f"head.sampler: {num:,} buckets of {self.slots} slots, for {V:,} classes, are "
        "more than 32-bit integers can count: lower head.sampler.codes, or raise "
        "mesh.blocks"
      )
    return _build(functions, factor_L, w_VD, self.codes, num, self.slots)

  def _buckets(
    self, stats: LSHStats, w_VD: jax.Array, h_ND: jax.Array, y: Targets
  ) -> tuple[jax.Array, jax.Array]:
    """The buckets of each example, and their members, i32[N, L, E]."""
    w_VD, h_ND = lax.stop_gradient((w_VD, h_ND))
    bucket_NL = self.query_buckets(stats, w_VD, h_ND, y)
    return bucket_NL, slot_tables.look_up(stats.tables, bucket_NL, len(w_VD))

  def _num_by_count(self, m: int) -> tuple[int, int]:
    """floor(u m), and the probability of one more draw in units of 2^-32."""
    certain = int(self.unigram_share * m)
    chance = round((self.unigram_share * m - certain) * strata.UNIT)
    return certain, min(chance, strata.UNIT - 1)

  def _log_expected(
    self,
    stats: LSHStats,
    bucket_NL: jax.Array,
    size_NL: jax.Array,
    ids_NM: jax.Array,
  ) -> jax.Array:
    log_strata_V, m = stats.by_count.strata.log_expected_V, stats.by_count.size.m
    # Free slots hold the padding id.
    q_NM = slot_tables.law(stats.tables, bucket_NL, size_NL, ids_NM)
    q_NM = jnp.where(is_class(ids_NM, len(log_strata_V)), q_NM, 0)
    log_strata_NM = log_expected_at(log_strata_V, ids_NM)
    by_count_NM = jnp.exp(log_strata_NM - math.log(strata.IID_STRATA))
    certain, chance = self._num_by_count(m)
    num = certain + chance / strata.UNIT
    num_N1 = jnp.where(_has_none(size_NL), m, num)
    return jnp.log(num_N1 * by_count_NM + (m - num_N1) * q_NM)


def _has_none(size_NL: jax.Array) -> jax.Array:
  """Whether all buckets of a query are empty: bool[N, 1]."""
  return jnp.all(size_NL == 0, axis=1, keepdims=True)


@partial(jax.jit, static_argnames=("codes", "buckets", "slots"))
def _build(
  functions: Functions,
  factor_L: jax.Array,
  w_VD: jax.Array,
  codes: int,
  buckets: int,
  slots: int,
) -> SlotTables:
  """Tables of all rows, hashed in chunks."""

  def put(bucket_LV, chunk):
    # Without this, compilers for TPU transpose the table.
    rows_CD = in_rows(chunk.rows(w_VD))
    bucket_LC = hashing.row_buckets(functions, rows_CD, codes, buckets)
    return jax.vmap(chunk.put)(bucket_LV, bucket_LC)

  none_LV = jnp.zeros((len(factor_L), len(w_VD)), jnp.int32)
  bucket_LV = fold_rows(put, none_LV, len(w_VD), _HASHED_AT_A_TIME)
  return slot_tables.build(factor_L, bucket_LV, buckets, slots)


def _move(
  functions: Functions,
  tables: SlotTables,
  ids_R: jax.Array,
  old_RD: jax.Array,
  new_RD: jax.Array,
  num_classes: int,
  codes: int,
) -> SlotTables:
  """Moves changed rows to their new buckets, a chunk of rows at a time.

  Temporaries per row and table are much larger than the rows.
  """

  def move(tables, chunk):
    ids_S = jnp.where(chunk.is_new_C, ids_R[chunk.ids_C], num_classes)
    both_SD = jnp.concatenate([chunk.rows(old_RD), chunk.rows(new_RD)])
    buckets = tables.ids_LKE.shape[1]
    bucket_LS = hashing.row_buckets(functions, both_SD, codes, buckets)
    old_LS, new_LS = jnp.split(bucket_LS, 2, axis=1)
    tables = slot_tables.remove(tables, ids_S, old_LS, num_classes)
    return slot_tables.insert(tables, ids_S, new_LS, num_classes)

  return fold_rows(move, tables, len(old_RD), _HASHED_AT_A_TIME // 2)
