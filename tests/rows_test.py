"""Row-sparse updates, compared with optax on the whole table."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab.errors import UserError
from largevocab.ops.tree import tiles
from largevocab.ops.tree.blocks import BlockGrads
from largevocab.rows import (
  OPTIMIZERS,
  SGD,
  Adagrad,
  Adam,
  Momentum,
  RowwiseAdagrad,
  accumulate,
  row_grads,
  sq_norm,
)
from tests.long import others_long

V, D, R = 12, 3, 8
LR, SCALE = 0.1, 0.5


def _batches(num, seed=0):
  rng = np.random.default_rng(seed)
  for _ in range(num):
    ids_R = rng.integers(0, V + 2, R).astype(np.int32)  # repeated, and some padding
    yield ids_R, rng.standard_normal((R, D)).astype(np.float32)


def _dense(ids_R, rows_RD):
  return jnp.zeros((V, D)).at[ids_R].add(rows_RD, mode="drop")


@pytest.mark.parametrize(
  "opt", others_long([SGD(), Momentum(0.9), Adagrad()], [Adagrad()])
)
def test_row_updates_equal_dense_optax(opt):
  w_VD = jnp.asarray(np.random.default_rng(1).standard_normal((V, D)), jnp.float32)
  table, tx = opt.init(w_VD), opt.transformation()
  state = tx.init(w_VD)
  for ids_R, rows_RD in _batches(20):
    table = opt.update(table, row_grads(ids_R, rows_RD, V), LR, SCALE)
    direction, state = tx.update(SCALE * _dense(ids_R, rows_RD), state)
    w_VD = w_VD - LR * direction
    np.testing.assert_allclose(table.w_VD, w_VD, rtol=1e-5, atol=1e-6)


def test_momentum_equals_optax_on_untouched_rows_too():
  """Earlier steps keep moving every row, as in optax on the whole table."""
  opt, tx = Momentum(0.9), optax.sgd(LR, momentum=0.9)
  start_VD = jnp.asarray(np.random.default_rng(1).standard_normal((V, D)), jnp.float32)
  table, w_VD, state = opt.init(start_VD), start_VD, tx.init(start_VD)
  for ids_R, rows_RD in _batches(5):
    ids_R = np.where(ids_R < V, ids_R % 4, ids_R)  # repeated, and some padding
    before_VD = table.w_VD
    table = opt.update(table, row_grads(ids_R, rows_RD, V), LR, SCALE)
    updates, state = tx.update(SCALE * _dense(ids_R, rows_RD), state)
    w_VD = optax.apply_updates(w_VD, updates)
    np.testing.assert_allclose(table.w_VD, w_VD, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(table.w_VD[4:], start_VD[4:])
  ids_R = np.array([V, 0])
  table = opt.update(table, row_grads(ids_R, np.zeros((2, D)), V), LR, SCALE)
  moved_V = np.any(np.asarray(table.w_VD != w_VD), axis=1)
  assert np.flatnonzero(moved_V).tolist() == [0, 1, 2, 3]
  assert not np.allclose(before_VD[1:4], table.w_VD[1:4])


@pytest.mark.parametrize(
  ("name", "weight_decay"),
  others_long(
    [*((name, 0.1) for name in OPTIMIZERS), ("sgd", 0.0), ("adagrad", 0.0)],
    [("sgd", 0.1), ("adagrad", 0.1), ("adam", 0.1)],
  ),
)
def test_factors_of_blocks_update_like_the_blocks(name, weight_decay, monkeypatch):
  """Two blocks are updated at a time, and some blocks have no gradient."""
  num, S = 7, 3
  monkeypatch.setattr(tiles, "_BLOCK_BYTES", 2 * 4 * S * D)
  optimizer = OPTIMIZERS[name](weight_decay=weight_decay)
  rng = np.random.default_rng(0)
  normal = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
  table = want = optimizer.init(normal(num, S * D))
  update = jax.jit(optimizer.update)
  for _ in range(3):
    ids_M = jnp.asarray(rng.choice([0, 1, 2, 2, 2, 5, num, num + 3], 40))
    d_MS, x_MD = normal(40, S), normal(40, D)
    blocks_ME = (d_MS[:, :, None] * x_MD[:, None, :]).reshape(40, -1)
    table = update(table, BlockGrads(ids_M, d_MS, x_MD), LR, SCALE)
    want = update(want, row_grads(ids_M, blocks_ME, num), LR, SCALE)
  for x, z in zip(jax.tree.leaves(table), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(x, z, rtol=1e-4, atol=1e-5)


def test_rowwise_adagrad_keeps_one_sum_per_row():
  """It matches a float64 loop, with repeated ids and padding; plain Adagrad differs."""
  opt = RowwiseAdagrad()
  start_VD = np.random.default_rng(1).standard_normal((V, D))
  table = opt.init(jnp.asarray(start_VD, jnp.float32))
  plain = Adagrad().init(table.w_VD)
  w_VD, sum_V = start_VD.copy(), np.full(V, 0.1)
  for ids_R, rows_RD in _batches(20):
    g_VD = SCALE * np.asarray(_dense(ids_R, rows_RD), np.float64)
    sum_V += np.square(g_VD).mean(1)
    w_VD -= LR * g_VD / np.sqrt(sum_V + 1e-7)[:, None]
    grads = row_grads(ids_R, rows_RD, V)
    table = opt.update(table, grads, LR, SCALE)
    plain = Adagrad().update(plain, grads, LR, SCALE)
  np.testing.assert_allclose(table.w_VD, w_VD, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(table.slots["mean_sq_V"], sum_V, rtol=1e-5)
  assert np.abs(plain.w_VD - w_VD).max() > 0.01


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_impossible_momentum_is_named(momentum):
  with pytest.raises(UserError, match=r"^Momentum\.momentum is .*; it must be"):
    Momentum(momentum)


def test_lazy_adam_equals_dense_adam_on_touched_rows_and_moves_no_others():
  opt = Adam()
  w_VD = jnp.ones((V, D))
  table, tx = opt.init(w_VD), opt.transformation()
  state = tx.init(w_VD)
  for step, (ids_R, rows_RD) in enumerate(_batches(20)):
    before_VD = table.w_VD
    table = opt.update(table, row_grads(ids_R, rows_RD, V), LR, SCALE)
    direction, state = tx.update(SCALE * _dense(ids_R, rows_RD), state)
    touched = np.unique(ids_R[ids_R < V])
    rest = np.setdiff1d(np.arange(V), touched)
    assert isinstance(state, optax.ScaleByAdamState)
    np.testing.assert_allclose(
      table.slots["mean_VD"][touched], state.mu[touched], rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(
      table.slots["mean_sq_VD"][touched], state.nu[touched], rtol=1e-5, atol=1e-9
    )
    np.testing.assert_allclose(
      (before_VD - table.w_VD)[touched], LR * direction[touched], rtol=1e-3, atol=1e-5
    )
    np.testing.assert_array_equal(table.w_VD[rest], before_VD[rest])
    assert int(table.count) == step + 1


@pytest.mark.parametrize("name", others_long(OPTIMIZERS, ["sgd", "momentum", "adam"]))
def test_dense_update_equals_touching_every_row(name):
  opt = OPTIMIZERS[name]()
  dense = sparse = opt.init(jnp.ones((V, D)))
  for seed in range(5):
    g_VD = jnp.asarray(np.random.default_rng(seed).standard_normal((V, D)), jnp.float32)
    dense = opt.dense_update(dense, g_VD, LR, SCALE)
    grads = row_grads(jnp.arange(V), g_VD, V)
    sparse = opt.update(sparse, grads, LR, SCALE)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), dense, sparse)


@pytest.mark.parametrize(
  ("name", "row_dtype"),
  others_long(
    itertools.product(OPTIMIZERS, ["float32", "bfloat16"]),
    [("adam", "bfloat16"), ("sgd", "float32"), ("rowwise_adagrad", "float32")],
  ),
)
def test_rows_updated_in_parts_equal_a_dense_update(name, row_dtype):
  """There are more rows than fit in one part on a CPU; some ids repeat or pad."""
  num_rows, dim, num_ids = 6_000, 64, 8_000
  opt, rng = OPTIMIZERS[name](row_dtype=row_dtype), np.random.default_rng(0)
  ids_R = rng.integers(0, num_rows + num_rows // 4, num_ids)
  is_touched_V = np.isin(np.arange(num_rows), ids_R)
  assert is_touched_V.sum() > 3 * 2**18 // (4 * dim)
  start = table = dense = opt.init(jnp.ones((num_rows, dim)))
  step = jax.jit(lambda *given: opt.update(*given, LR, SCALE))
  for _ in range(3):
    rows_RD = rng.standard_normal((num_ids, dim)).astype(np.float32)
    g_VD = np.zeros((num_rows, dim), np.float32)
    live_R = ids_R < num_rows
    np.add.at(g_VD, ids_R[live_R], rows_RD[live_R])
    table = step(table, row_grads(ids_R, rows_RD, num_rows))
    dense = opt.dense_update(dense, jnp.asarray(g_VD), LR, SCALE)
  # A number between two bfloat16 numbers may be rounded to either.
  near = {"rtol": 1e-5, "atol": 1e-6} if row_dtype == "float32" else {"rtol": 2**-6}
  got_RD, want_RD = (np.float32(of.w_VD[is_touched_V]) for of in (table, dense))
  np.testing.assert_allclose(got_RD, want_RD, **near)
  assert not np.allclose(got_RD, 1.0, rtol=2**-4)
  close = {"rtol": 1e-5, "atol": 1e-6}
  for slot, want in dense.slots.items():
    if jnp.ndim(want):
      np.testing.assert_allclose(
        table.slots[slot][is_touched_V], want[is_touched_V], **close
      )
  for got, want in zip(jax.tree.leaves(table), jax.tree.leaves(start), strict=True):
    if jnp.ndim(want):
      np.testing.assert_array_equal(got[~is_touched_V], want[~is_touched_V])


@pytest.mark.parametrize(
  ("name", "row_dtype", "width"),
  others_long(
    itertools.product(OPTIMIZERS, ["float32", "bfloat16"], [D, 130]),
    [("sgd", "float32", 130), ("lion", "bfloat16", D), ("adam", "bfloat16", D)],
  ),
)
def test_returned_rows_of_a_step_are_the_written_ones(name, row_dtype, width):
  """Also if they are computed again, as on accelerators."""
  decays = {"weight_decay": 0.1, "decoupled_decay": 0.2, "average": 0.9}
  opt = OPTIMIZERS[name](row_dtype=row_dtype, **decays)
  table = opt.init(jnp.asarray(np.random.default_rng(1).standard_normal((V, width))))
  step = jax.jit(lambda *given: opt.update_and_rows(*given, LR, SCALE))
  rows_anew = jax.jit(lambda *given: opt.rows_anew(*given, LR, SCALE))
  for ids_R, rows_RD in _batches(5):
    rows = row_grads(ids_R, np.resize(rows_RD, (R, width)), V)
    old_RD = table.rows_at(rows.ids_R, mode="clip")
    anew_RD, (table, new_RD) = rows_anew(table, rows), step(table, rows)
    live_R = rows.ids_R < V
    kept_RD = table.rows_at(rows.ids_R[live_R])
    for got_RD in (new_RD, anew_RD):
      np.testing.assert_allclose(got_RD[live_R], kept_RD, rtol=2e-6, atol=1e-6)
    assert not np.allclose(new_RD[live_R], old_RD[live_R], rtol=1e-3)


def test_norms_of_factors_are_refused():
  g = BlockGrads(jnp.array([2]), jnp.ones((1, 1)), jnp.ones((1, 3)))
  with pytest.raises(UserError, match=r"of the gradient: use head\.sq_norm"):
    sq_norm({"leaves": g})


@pytest.mark.parametrize("name", others_long(OPTIMIZERS, ["sgd", "adagrad", "adam"]))
def test_accumulated_rows_equal_one_dense_gradient(name):
  """Batches of unequal size, whose ids repeat within and across them, give one step.

  Only SGD could make the same step in two.
  """
  opt, table = OPTIMIZERS[name](), OPTIMIZERS[name]().init(jnp.ones((V, D)))
  (ids_R, rows_RD), (few_R, few_RD), (more_R, more_RD) = _batches(3)
  parts = (ids_R, rows_RD), (few_R[:3], few_RD[:3]), (more_R, more_RD)
  weights = [0.5, 2.0, -1.0]
  got = accumulate([row_grads(*part, V) for part in parts], weights)
  want_VD = sum(w * _dense(*part) for w, part in zip(weights, parts, strict=True))
  every_R = np.concatenate([ids for ids, _ in parts])
  want = row_grads(np.arange(V), want_VD, V)
  touched = np.isin(np.arange(V), every_R)
  want = want._replace(ids_R=jnp.where(touched, want.ids_R, V + want.ids_R))
  a, b = opt.update(table, got, LR, SCALE), opt.update(table, want, LR, SCALE)
  jax.tree.map(
    lambda x, z: np.testing.assert_allclose(x, z, rtol=1e-5, atol=1e-6), a, b
  )
  np.testing.assert_allclose(sq_norm(got), jnp.sum(want_VD**2), rtol=1e-5)
  twice = jax.jit(accumulate)([got, row_grads(*parts[0], V)])
  dense_VD = _dense(twice.ids_R, twice.rows_RD)
  np.testing.assert_allclose(dense_VD, want_VD + _dense(*parts[0]), atol=1e-5)
  assert len(np.unique(twice.ids_R)) == len(twice.ids_R)


class NaiveDecay:
  """w and the sum of squares of one table in float64, row by row, in loops."""

  def __init__(self, opt, w_VD):
    self.opt, self.w_VD = opt, np.array(w_VD, np.float64)
    self.sum_sq_VD = np.full_like(self.w_VD, getattr(opt, "initial_accumulator", 0))

  def step(self, g_VD, touched, scale):
    for c in touched:
      for d in range(self.w_VD.shape[1]):
        g = scale * g_VD[c, d] + self.opt.weight_decay * self.w_VD[c, d]
        if isinstance(self.opt, Adagrad):
          self.sum_sq_VD[c, d] += g**2
          g /= np.sqrt(self.sum_sq_VD[c, d] + self.opt.eps)
        self.w_VD[c, d] -= LR * g


def _clipped_batches(num, clip, num_rows=V):
  """Repeated ids, rows, the dense float64 gradient, and the factor that clips it."""
  for ids_R, rows_RD in _batches(num):
    ids_R = np.where(ids_R < V, ids_R % num_rows, ids_R)
    g_VD = np.zeros((V, D))
    for c, g_D in zip(ids_R, rows_RD, strict=True):
      if c < V:
        g_VD[c] += g_D
    yield ids_R, rows_RD, g_VD, min(1.0, clip / np.sqrt((g_VD**2).sum()))


DECAYED = [
  SGD(weight_decay=0.3),
  Adagrad(weight_decay=0.3),
  Adagrad(initial_accumulator=0.0, eps=1e-6, weight_decay=0.05),
]


@pytest.mark.parametrize("clip", [0.5, 1e9])
@pytest.mark.parametrize("opt", DECAYED)
def test_only_touched_rows_decay_and_match_float64(opt, clip):
  """The penalty is added after clipping, so a small clip does not change it."""
  start_VD = np.random.default_rng(1).standard_normal((V, D)).astype(np.float32)
  naive, table = NaiveDecay(opt, start_VD), opt.init(jnp.asarray(start_VD))
  seen = set()
  for ids_R, rows_RD, g_VD, scale in _clipped_batches(6, clip, num_rows=V - 3):
    touched = {int(c) for c in ids_R if c < V}
    assert len(touched) < np.sum(ids_R < V)  # some are repeated
    naive.step(g_VD, touched, scale)
    table = opt.update(table, row_grads(ids_R, rows_RD, V), LR, scale)
    seen |= touched
  np.testing.assert_allclose(table.w_VD, naive.w_VD, rtol=2e-5, atol=2e-6)
  never = sorted(set(range(V)) - seen)
  assert len(never) >= 3
  np.testing.assert_array_equal(table.w_VD[np.array(never)], start_VD[never])


@pytest.mark.parametrize("clip", [0.5, 1e9])
@pytest.mark.parametrize("opt", DECAYED)
def test_dense_updates_and_networks_decay_all_rows(opt, clip):
  start_VD = np.random.default_rng(1).standard_normal((V, D)).astype(np.float32)
  naive, table = NaiveDecay(opt, start_VD), opt.init(jnp.asarray(start_VD))
  w_VD, tx = jnp.asarray(start_VD), opt.transformation()
  state = tx.init(w_VD)
  for _, _, g_VD, scale in _clipped_batches(6, clip):
    naive.step(g_VD, range(V), scale)
    table = opt.dense_update(table, jnp.asarray(g_VD, jnp.float32), LR, scale)
    direction, state = tx.update(jnp.asarray(scale * g_VD, jnp.float32), state, w_VD)
    w_VD = w_VD - LR * direction
  np.testing.assert_allclose(table.w_VD, naive.w_VD, rtol=2e-5, atol=2e-6)
  np.testing.assert_allclose(w_VD, naive.w_VD, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_pulls_to_zero_and_zero_decay_changes_nothing(name):
  """With a zero gradient. Without decay the state has the structure of older runs."""
  make = OPTIMIZERS[name]
  opt, none = make(weight_decay=0.5), make(decoupled_decay=0.0)
  assert none.weight_decay == 0.0
  zeros = row_grads(np.arange(V), np.zeros((V, D), np.float32), V)
  after = opt.update(opt.init(jnp.ones((V, D))), zeros, LR, SCALE)
  assert (np.asarray(after.w_VD) < 1).all()
  kept = none.update(none.init(jnp.ones((V, D))), zeros, LR, SCALE)
  np.testing.assert_array_equal(kept.w_VD, jnp.ones((V, D)))
  params = {"w": jnp.ones((V, D))}
  old, new = none.rule().init(params), none.transformation().init(params)
  assert jax.tree.structure(old) == jax.tree.structure(new)


def test_momentum_decays_every_row_in_every_step():
  opt = Momentum(0.9, weight_decay=0.3)
  tx = optax.chain(optax.add_decayed_weights(0.3), optax.sgd(LR, momentum=0.9))
  w_VD = jnp.asarray(np.random.default_rng(1).standard_normal((V, D)), jnp.float32)
  table, state = opt.init(w_VD), tx.init(w_VD)
  for ids_R, rows_RD in _batches(5):
    table = opt.update(table, row_grads(ids_R, rows_RD, V), LR, SCALE)
    updates, state = tx.update(SCALE * _dense(ids_R, rows_RD), state, w_VD)
    w_VD = optax.apply_updates(w_VD, updates)
    np.testing.assert_allclose(table.w_VD, w_VD, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decay", [-1e-6, float("nan"), float("inf")])
def test_impossible_decay_is_named(decay):
  with pytest.raises(UserError, match=r"^SGD\.weight_decay is .*; it must be"):
    SGD(weight_decay=decay)


def test_accumulation_without_gradients_or_with_too_few_weights_is_refused():
  grads = row_grads(np.array([1]), np.ones((1, D)), V)
  for args in ([], [1.0]), ([], []), ([grads, grads], [1.0]):
    with pytest.raises(UserError, match=r"accumulate: \d gradients and \d weights"):
      accumulate(*args)
  for given in (None, grads):
    with pytest.raises(UserError, match=r"grads is of type \w+: pass a list"):
      accumulate(given)
  with pytest.raises(UserError, match="have different structures"):
    accumulate([grads, jnp.ones((V, D))])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("size", [1e-4, 300.0])
def test_norm_of_16_bit_floats_neither_overflows_nor_vanishes(dtype, size):
  x = jnp.full(100, size, dtype)
  want = np.sum(np.square(np.float64(x)))
  np.testing.assert_allclose(sq_norm({"x": x}), want, rtol=1e-5)


def test_sums_of_ids_make_rows_nan():
  """The sums exceed V, and would otherwise be ignored as padding."""
  grads = row_grads(np.array([V - 1, V - 2]), np.ones((2, D), np.float32), V)
  wrong = jax.tree.map(jnp.add, grads, grads)
  for opt in (SGD(), Momentum()):
    after = jax.jit(opt.update)(opt.init(jnp.ones((V, D))), wrong, LR, SCALE)
    assert np.isnan(after.w_VD).any()


def test_norm_of_repeated_rows_is_the_norm_of_their_sum():
  ids_R, rows_RD = next(_batches(1))
  expected = float(jnp.sum(_dense(ids_R, rows_RD) ** 2))
  got = float(sq_norm(row_grads(ids_R, rows_RD, V)))
  assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
  ("name", "with_rows"),
  others_long(
    itertools.product(OPTIMIZERS, [False, True]),
    [("sgd", False), ("rowwise_adagrad", True), ("adamw", True)],
  ),
)
def test_donated_update_touches_rows_in_place(name, with_rows):
  """Guards speed without timing.

  The table is aliased, no array of its size is made, and arrays computed from many rows
  are made for a part of them at a time.
  """
  opt = OPTIMIZERS[name]()
  num_rows, dim = 1_000_000, 64  # one number per row exceeds all temporaries
  table = jax.eval_shape(opt.init, jax.ShapeDtypeStruct((num_rows, dim), jnp.float32))
  update = opt.update_and_rows if with_rows else opt.update

  def step(table, ids_R, rows_RD):
    return update(table, row_grads(ids_R, rows_RD, num_rows), LR, 1.0)

  for num_ids, bound in ((256, 2**20), (8192, 2.5 * 8192 * dim * 4)):
    ids_R = jax.ShapeDtypeStruct((num_ids,), jnp.int32)
    rows_RD = jax.ShapeDtypeStruct((num_ids, dim), jnp.float32)
    compiled = jax.jit(step, donate_argnums=0).lower(table, ids_R, rows_RD).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= num_rows * dim * 4
    assert memory.temp_size_in_bytes < bound

  undonated = jax.jit(step).lower(table, ids_R, rows_RD).compile().memory_analysis()
  assert undonated.alias_size_in_bytes == 0


def test_adagrad_with_positive_initial_sums_needs_no_eps():
  """Duchi et al. 2011 have no eps."""
  table = Adagrad(eps=0.0).init(jnp.zeros((1, 1)))
  g = row_grads(jnp.array([0]), jnp.array([[1.0]]), 1)
  w_VD = Adagrad(eps=0.0).update(table, g, lr=1.0, scale=1.0).w_VD
  np.testing.assert_allclose(w_VD, -(1.1**-0.5), rtol=1e-6)
  with pytest.raises(UserError, match="set one of them above 0"):
    Adagrad(eps=0, initial_accumulator=0)


def test_ids_outside_the_table_are_padding():
  table = SGD().init(jnp.zeros((4, 1)))
  ids_R = jnp.array([1, -1, 4, -4])
  grads = jax.jit(row_grads, static_argnums=2)(ids_R, jnp.ones((4, 1)), 4)
  table = SGD().update(table, grads, 1.0)
  assert table.w_VD[:, 0].tolist() == [0, -1, 0, 0]
