"""Tables in bfloat16: new rows are rounded stochastically, without bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.rows import OPTIMIZERS, SGD, Momentum, RowGrads, Table, row_grads
from largevocab.rows.rounding import as_kept, random_bits, to_bfloat16, with_rows
from tests.long import others_long

V, D, R = 12, 3, 8
ULP = 2.0**-7  # of a bfloat16 between 1 and 2


def short(name, **settings):
  return OPTIMIZERS[name](row_dtype="bfloat16", **settings)


def random_rows(seed=0, shape=(V, D)):
  return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def gradient(seed=0):
  """Has repeated ids and some padding, and does not touch all rows."""
  rng = np.random.default_rng(seed)
  ids_R = rng.choice([0, 1, 2, 5, 7, 9, V, V + 1], R)
  return row_grads(ids_R, random_rows(seed, (R, D)), V)


def neighbours(x):
  """The bfloat16 neighbours of float32 numbers: towards 0, and away from 0."""
  words = np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
  return words.view(np.float32), (words + np.uint32(0x10000)).view(np.float32)


def test_rounding_is_unbiased_and_to_a_neighbour():
  x_RD = random_rows(3, (200, 50)) * jnp.logspace(-20, 20, 50)[None]
  counts = jnp.arange(400)
  rounded = jax.vmap(lambda n: as_kept(x_RD, jnp.bfloat16, n, jnp.arange(200)))(counts)
  got = np.asarray(rounded, np.float64)
  low, high = (x.astype(np.float64) for x in neighbours(x_RD))
  assert ((got == low) | (got == high)).all()
  share = (np.asarray(x_RD, np.float64) - low) / (high - low)
  up = (got == high).mean(0)
  sigma = np.sqrt(np.maximum(share * (1 - share), 1e-3) / len(counts))
  assert np.abs((up - share) / sigma).max() < 5.5  # of 10,000 numbers
  z = (up - share).sum() / np.sqrt((sigma**2).sum())
  assert abs(z) < 4
  nearest = np.asarray(x_RD.astype(jnp.bfloat16), np.float64)
  assert (
    np.abs(((nearest == high) - share) / sigma).max() > 8
  )  # rounding to nearest would be noticed


def test_bits_are_uniform_and_uncorrelated_along_each_axis():
  bits = np.asarray(
    jax.vmap(lambda n: random_bits(n, jnp.arange(64), 64))(jnp.arange(64))
  )
  u = (bits >> 16).astype(np.float64) / 2**16 - 0.5
  n = u.size
  assert abs(u.mean()) < 4 * np.sqrt(1 / 12 / n)
  assert abs((u**2).mean() - 1 / 12) < 4 * np.sqrt(1 / 180 / n)
  for axis in range(3):
    for lag in (1, 2, 16):
      a, b = np.split(u, [lag], axis)[1], np.split(u, [u.shape[axis] - lag], axis)[0]
      assert abs((a * b).mean()) < 4.5 / 12 / np.sqrt(a.size)
  for bit in range(16, 32):
    assert abs(((bits >> bit) & 1).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(n)
  count = np.bincount((bits >> 24).ravel(), minlength=256)
  chi2 = ((count - n / 256) ** 2 / (n / 256)).sum()
  assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)


def test_bfloat16_numbers_infinities_and_nans_are_unchanged():
  words = np.arange(2**16, dtype=np.uint32) << 16
  x = jnp.asarray(words.view(np.float32))
  for bits in (0, 2**31, 2**32 - 1):
    got = to_bfloat16(x, jnp.full(x.shape, bits, jnp.uint32))
    same = np.asarray(jax.lax.bitcast_convert_type(got, jnp.uint16)) == words >> 16
    assert (same | np.isnan(x)).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))


@pytest.mark.parametrize("bits", [0, 0xFFFF0000, 0xFFFFFFFF])
def test_rounding_keeps_signs_and_finiteness(bits):
  most = np.finfo(np.float32).max
  large = float(jnp.finfo(jnp.bfloat16).max)
  tiny = np.float32(1e-45)
  nans = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
  x = np.array([most, -most, np.inf, -np.inf, tiny, -tiny, 0.0, -0.0, *nans], "f")
  words = jnp.asarray(x.view(np.uint32))
  x = jax.lax.bitcast_convert_type(words, jnp.float32)
  got = np.asarray(to_bfloat16(x, jnp.full(x.shape, bits, jnp.uint32)), np.float64)
  np.testing.assert_array_equal(got[:4], [large, -large, np.inf, -np.inf])
  assert (np.abs(got[4:8]) < 1e-38).all()
  np.testing.assert_array_equal(np.signbit(got[:8]), [False, True] * 4)
  assert np.isnan(got[8:]).all()


def test_many_small_steps_add_up_unlike_with_rounding_to_nearest():
  """Each is a 20th of the distance to the next bfloat16."""
  steps, width, opt = 400, 500, short("sgd")
  grads = RowGrads(jnp.array([1]), jnp.full((1, width), -ULP / 20))
  start = jnp.ones((2, width))

  @jax.jit
  def train(table):
    one = lambda _, table: opt.update(table, grads, 1.0, 1.0)
    return jax.lax.fori_loop(0, steps, one, table)

  def to_nearest(_, w_D):
    return (w_D.astype(jnp.float32) + ULP / 20).astype(jnp.bfloat16)

  w_VD = np.asarray(train(opt.init(start)).w_VD, np.float64)
  stuck_D = jax.lax.fori_loop(0, steps, to_nearest, start[0].astype(jnp.bfloat16))
  np.testing.assert_array_equal(stuck_D, 1)
  np.testing.assert_array_equal(w_VD[0], 1)
  want = 1 + steps * ULP / 20  # below 2, where all neighbours have the same distance
  sigma = ULP * np.sqrt(steps * (1 / 20) * (19 / 20))
  assert abs(w_VD[1].mean() - want) < 4 * sigma / np.sqrt(width)
  assert 0.85 < w_VD[1].std() / sigma < 1.15
  assert (np.abs(w_VD[1] - want) < 5 * sigma).all()


FIRST = ("sgd", "rowwise_adagrad", "adam")


@pytest.mark.parametrize("name", others_long(OPTIMIZERS, FIRST))
def test_step_equals_float32_up_to_rounding(name):
  """From bfloat16 rows: new rows are neighbours of the exact ones; states agree."""
  opt, plain = short(name, weight_decay=0.1), OPTIMIZERS[name](weight_decay=0.1)
  table = opt.init(random_rows(1))
  wide = plain.init(table.w_VD.astype(jnp.float32))
  assert table.w_VD.dtype == jnp.bfloat16
  assert jax.tree.map(jnp.shape, table) == jax.tree.map(jnp.shape, wide)
  for seed in range(4):
    for step in ("update", "dense_update"):
      g = gradient(seed) if step == "update" else random_rows(seed)
      new = getattr(opt, step)(table, g, 0.1, 0.5)
      want = getattr(plain, step)(wide, g, 0.1, 0.5)
      low, high = neighbours(want.w_VD)
      got = np.asarray(new.w_VD, np.float32)
      assert ((got == low) | (got == high) | (got == want.w_VD)).all()
      for a, b in zip(*map(jax.tree.leaves, (new.slots, want.slots)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
      assert int(new.count) == int(want.count)
    table, wide = new, want._replace(w_VD=new.w_VD.astype(jnp.float32))


@pytest.mark.parametrize("name", others_long(OPTIMIZERS, FIRST))
def test_order_of_ids_and_padding_change_nothing(name):
  opt, grads = short(name), gradient()
  table = opt.init(random_rows(1))
  want = jax.jit(opt.update)(table, grads, 0.1, 1.0)
  again = jax.jit(opt.update)(table, grads, 0.1, 1.0)
  np.testing.assert_array_equal(again.w_VD, want.w_VD)
  order = np.random.default_rng(5).permutation(R)
  fill = RowGrads(
    jnp.concatenate([grads.ids_R[order], V + 50 + jnp.arange(4)]),
    jnp.concatenate([grads.rows_RD[order], jnp.zeros((4, D))]),
  )
  got = opt.update(table, fill, 0.1, 1.0)
  jax.tree.map(np.testing.assert_array_equal, got, want)
  touched = np.asarray(grads.ids_R[grads.ids_R < V])
  rest = np.setdiff1d(np.arange(V), touched)
  assert 0 < len(rest) < V
  np.testing.assert_array_equal(want.w_VD[rest], table.w_VD[rest])
  assert (want.w_VD[touched] != table.w_VD[touched]).any()


@pytest.mark.parametrize("name", others_long(OPTIMIZERS, FIRST))
def test_dense_update_equals_touching_every_row(name):
  opt = short(name)
  dense = sparse = opt.init(random_rows(1))
  for seed in range(5):
    dense = opt.dense_update(dense, random_rows(seed), 0.1, 0.5)
    sparse = opt.update(
      sparse, row_grads(jnp.arange(V), random_rows(seed), V), 0.1, 0.5
    )
  jax.tree.map(np.testing.assert_array_equal, dense, sparse)


def test_every_step_has_its_own_bits():
  x_VD = jnp.full((V, 64), 1 + ULP / 2)
  first, again, second = (
    as_kept(x_VD, jnp.bfloat16, n, jnp.arange(len(x_VD))) for n in (4, 4, 5)
  )
  np.testing.assert_array_equal(first, again)
  assert 0.35 < np.mean(first != second) < 0.65
  part = as_kept(x_VD[3:5], jnp.bfloat16, jnp.int32(4), jnp.array([3, 4]))
  np.testing.assert_array_equal(first[3:5], part)


def test_decayed_rows_are_rounded_with_bits_of_their_own():
  """Otherwise the next step would round up where the decay did."""
  opt = short("sgd", decoupled_decay=ULP / 4)
  table = opt.init(jnp.ones((V, 64), jnp.bfloat16))
  table = opt.after_step(table, lr=1.0)
  settled_VD = np.asarray(opt.settled(table).w_VD, "f")
  pending_VD = jnp.full((V, 64), settled_VD.mean())
  step_VD = as_kept(pending_VD, jnp.bfloat16, table.count, jnp.arange(V))
  assert 0.1 < np.mean(settled_VD < 1) < 0.9
  both = np.corrcoef(settled_VD.ravel(), np.asarray(step_VD, "f").ravel())[0, 1]
  assert abs(both) < 0.1


def test_non_finite_gradients_reach_the_rows():
  opt = short("sgd")
  grads = RowGrads(jnp.array([1, 2]), jnp.array([[jnp.nan] * D, [jnp.inf] * D]))
  w_VD = np.asarray(opt.update(opt.init(random_rows()), grads, 0.1, 1.0).w_VD, "f")
  assert np.isnan(w_VD[1]).all()
  assert np.isneginf(w_VD[2]).all()
  assert np.isfinite(np.delete(w_VD, [1, 2], 0)).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_float32_update_does_not_round(name):
  """The program of an update has no rounding."""
  opt = OPTIMIZERS[name]()
  table, grads = opt.init(random_rows()), gradient()
  assert table.w_VD.dtype == jnp.float32
  for step, g in ((opt.update, grads), (opt.dense_update, random_rows())):
    text = str(jax.make_jaxpr(step)(table, g, 0.1, 1.0))
    assert "bf16" not in text
    assert "bitcast" not in text


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "momentum"])
def test_donated_update_makes_no_array_of_the_size_of_the_table(name):
  opt, num_rows, dim = short(name), 100_000, 64
  table = jax.eval_shape(opt.init, jax.ShapeDtypeStruct((num_rows, dim), jnp.float32))
  ids_R = jax.ShapeDtypeStruct((256,), jnp.int32)
  rows_RD = jax.ShapeDtypeStruct((256, dim), jnp.float32)
  step = lambda table, ids_R, rows_RD: opt.update(
    table, row_grads(ids_R, rows_RD, num_rows), 0.1, 1.0
  )
  compiled = jax.jit(step, donate_argnums=0).lower(table, ids_R, rows_RD).compile()
  memory = compiled.memory_analysis()
  assert memory.alias_size_in_bytes >= num_rows * dim * 2
  assert memory.temp_size_in_bytes < 2**20


def test_rows_written_on_a_cpu_equal_a_scatter():
  w_VD, ids_R = random_rows().astype(jnp.bfloat16), jnp.array([3, V, 0, V + 5, 11])
  new_RD = random_rows(1, (5, D)).astype(jnp.bfloat16)
  want = w_VD.at[ids_R].set(new_RD, mode="drop")
  np.testing.assert_array_equal(jax.jit(with_rows)(w_VD, ids_R, new_RD), want)
  none = with_rows(w_VD, ids_R + V, new_RD)
  np.testing.assert_array_equal(none, w_VD)


def test_given_rows_are_converted_to_the_row_dtype():
  given_VD = random_rows().astype(jnp.bfloat16)
  assert SGD().init(given_VD).w_VD.dtype == jnp.float32
  table = Momentum(row_dtype="bfloat16").init(given_VD)
  np.testing.assert_array_equal(table.w_VD, given_VD)
  assert table.slots["velocity_VD"].dtype == jnp.float32
  assert Table(given_VD, {}, jnp.int32(0)).rows_at(jnp.array([1])).dtype == jnp.float32


@pytest.mark.long
def test_sharded_table_is_rounded_like_a_whole_one(on_four_devices):
  on_four_devices("""
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from largevocab.rows import Adagrad, row_grads

opt = Adagrad(row_dtype="bfloat16")
rows = lambda seed: jax.random.normal(jax.random.key(seed), (16, 8))
mesh = Mesh(np.array(jax.devices()), ("v",))
cut = lambda x: jax.device_put(
  x, NamedSharding(mesh, P("v") if getattr(x, "ndim", 0) else P()))
whole = opt.init(rows(0))
sharded = jax.tree.map(cut, whole)
for seed in range(3):
  g = row_grads(jnp.array([3, 9, 3, 16, 15]), rows(seed)[:5], 16)
  whole = jax.jit(opt.update)(whole, g, 0.1, 1.0)
  sharded = jax.jit(opt.update)(sharded, g, 0.1, 1.0)
  whole = jax.jit(opt.dense_update)(whole, rows(seed), 0.1, 1.0)
  sharded = jax.jit(opt.dense_update)(sharded, cut(rows(seed)), 0.1, 1.0)
assert len(sharded.w_VD.sharding.device_set) == 4
assert not sharded.w_VD.sharding.is_fully_replicated
np.testing.assert_array_equal(sharded.w_VD, whole.w_VD)
""")


def test_bits_equal_the_published_hash():
  """pcg3d in plain numbers."""
  word = 2**32
  for count, c, d in ((0, 0, 0), (7, 3, 1), (2**31 - 1, 2**31 - 2, 5)):
    x, y, z = ((v * 1664525 + 1013904223) % word for v in (count, c, d))
    for turn in range(2):
      x = (x + y * z) % word
      y = (y + z * x) % word
      z = (z + x * y) % word
      if not turn:
        x, y, z = (v ^ (v >> 16) for v in (x, y, z))
    assert int(random_bits(jnp.int32(count), jnp.array([c]), 6)[0, d]) == z
