"""Benchmarks of hash tables: construction, draws and updates at different V."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case
from benchmarks.zipf import zipf_counts
from largevocab import single_targets
from largevocab.labels import Counts
from largevocab.ops.lsh import hashing, slot_tables
from largevocab.samplers import LSHEmbedding, Softmax
from largevocab.tools.reports.measure import Stepper, compare

KEY = jax.random.key(0)
N = 256


def _random_buckets(V: int, L: int, K: int) -> jax.Array:
  return jax.random.randint(KEY, (L, V), 0, K, jnp.int32)


@jax.jit
def _sorted(bucket_LV: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Classes of each table sorted by bucket, as needed for buckets of any size."""
  ids_LV = jnp.broadcast_to(
    jnp.arange(bucket_LV.shape[1], dtype=jnp.int32), bucket_LV.shape
  )
  return jax.lax.sort_key_val(bucket_LV, ids_LV)


def lsh_build(V: int = 100_000, L: int = 50) -> Iterator[Case]:
  """L tables of V classes from their buckets: sorted buckets / fixed slots.

  Goal: slots are ten times as fast.
  """
  buckets, slots = 4096, 16
  bucket_LV = _random_buckets(V, L, buckets)
  factor_L = slot_tables.new_factors(KEY, L)
  build = jax.jit(slot_tables.build, static_argnums=(2, 3))
  ids_LKE = np.asarray(build(factor_L, bucket_LV, buckets, slots).ids_LKE)
  for number in range(L):  # every class is in its bucket
    bucket, slot = np.nonzero(ids_LKE[number] < V)
    classes = ids_LKE[number][bucket, slot]
    assert (np.asarray(bucket_LV[number])[classes] == bucket).all()
  kept = float((ids_LKE < V).sum() / (L * V))
  yield Case(
    f"{L} tables, sorted buckets / slots, V={V:,}",
    {
      "V": V,
      "L": L,
      "K": buckets,
      "E": slots,
      "kept": kept,
    },
    {
      **compare(
        lambda: _sorted(bucket_LV),
        lambda: build(factor_L, bucket_LV, buckets, slots),
        seconds=15,
      ),
      "at_least": 10,
    },
  )


def _problem(V: int, D: int) -> tuple[Counts, jax.Array, jax.Array]:
  w_VD = jax.random.normal(KEY, (V, D))
  h_ND = w_VD[:N] + 0.5 * jax.random.normal(jax.random.key(1), (N, D))
  return zipf_counts(V), w_VD, h_ND


def _sampler(V: int, D: int) -> LSHEmbedding:
  """A sampler with just enough codes for tables with four slots for each class."""
  buckets, radix = 4 * V / LSHEmbedding().slots, hashing.radix("dwta", D)
  return LSHEmbedding(codes=next(C for C in range(1, 33) if buckets <= radix**C))


def _draws(sampler: Any, V: int, D: int, m: int) -> Callable[[], Any]:
  counts, w_VD, h_ND = _problem(V, D)
  stats = sampler.init(counts, w_VD, m)
  y = single_targets(np.arange(N))
  draw = jax.jit(sampler.sample)
  drawn = draw(stats, w_VD, KEY, h_ND, y)
  law = jax.jit(sampler.log_expected)
  again = law(stats, w_VD, h_ND, y, drawn.ids)
  assert float(jnp.abs(drawn.log_expected - again).max()) < 1e-3, "another law"
  return lambda: draw(stats, w_VD, KEY, h_ND, y)


def lsh_draw(D: int = 136, m: int = 64) -> Iterator[Case]:
  """Draws with expected counts for 256 examples: V = 1 M / 10 k, and all logits / ours.

  Goal: at V = 1 M at most 1.5 times as long as at V = 10 k.
  """
  many, few = (_draws(_sampler(V, D), V, D, m) for V in (1_000_000, 10_000))
  sizes = {"N": N, "M": m, "D": D, "L": LSHEmbedding().tables}
  yield Case(
    f"{m} draws from buckets, V=1,000,000 / V=10,000",
    sizes,
    {**compare(many, few, seconds=10), "at_most": 1.5},
  )
  del many, few
  V = 100_000
  yield Case(
    f"{m} draws, from all logits / from buckets, V={V:,}",
    sizes,
    compare(_draws(Softmax(), V, D, m), _draws(_sampler(V, D), V, D, m), seconds=15),
  )


def _rehash(V: int, D: int, R: int) -> tuple[Stepper, float]:
  """A step that moves R rows to their new buckets and back, in two updates.

  Also returns the share of these rows' entries that are then where they were.
  """
  counts, w_VD, _ = _problem(V, D)
  sampler = _sampler(V, D)
  stats = sampler.init(counts, w_VD, 1)
  ids_R = jax.random.permutation(KEY, V)[:R].astype(jnp.int32)
  old_RD = w_VD[ids_R]
  new_RD = old_RD + jax.random.normal(jax.random.key(2), old_RD.shape)

  # All arrays are arguments: the compiler would compute with constants beforehand.
  def there_and_back(stats, w_VD, moved_VD, ids_R, old_RD, new_RD):
    stats = sampler.update(stats, moved_VD, ids_R, old_RD, new_RD)
    return sampler.update(stats, w_VD, ids_R, new_RD, old_RD), None

  built = np.array(stats.tables.ids_LKE)  # the stepper donates its state
  rows = ids_R, old_RD, new_RD
  step = Stepper(there_and_back, stats, w_VD, w_VD.at[ids_R].set(new_RD), *rows)
  step()
  of_moved = np.isin(built, ids_R)
  same = built[of_moved] == np.asarray(step.state.tables.ids_LKE)[of_moved]
  return step, float(same.mean())


def lsh_update(D: int = 136, R: int = 2048) -> Iterator[Case]:
  """R changed rows move to their buckets: V = 1 M / 10 k, and rebuilt tables / ours.

  Goal: at V = 1 M at most 1.5 times as long as at V = 10 k.
  """
  sizes = {"D": D, "R": R, "L": LSHEmbedding().tables}
  (many, back_many), (few, back_few) = (_rehash(V, D, R) for V in (1_000_000, 10_000))
  yield Case(
    f"{R:,} rows rehashed and back, V=1,000,000 / V=10,000",
    {**sizes, "back": min(back_many, back_few)},
    {**compare(many, few, seconds=10), "at_most": 1.5},
  )
  del many, few
  V = 100_000
  moved, back = _rehash(V, D, R)
  counts, w_VD, _ = _problem(V, D)
  sampler = _sampler(V, D)
  built = Stepper(
    lambda stats, w_VD: (sampler.refresh(stats, w_VD, KEY), None),
    sampler.init(counts, w_VD, 1),
    w_VD,
  )
  yield Case(
    f"hash tables, built anew / {R:,} rows rehashed and back, V={V:,}",
    {**sizes, "back": back},
    compare(built, moved, seconds=10),
  )


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "lsh_build": lsh_build,
  "lsh_draw": lsh_draw,
  "lsh_update": lsh_update,
}
