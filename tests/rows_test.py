"""Row-sparse updates against optax on the whole table."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab.errors import UserError
from largevocab.rows import (
  OPTIMIZERS,
  SGD,
  Adagrad,
  Adam,
  Momentum,
  accumulate,
  row_grads,
  sq_norm,
)

V, D, R = 12, 3, 8
LR, SCALE = 0.1, 0.5


def _batches(num, seed=0):
  rng = np.random.default_rng(seed)
  for _ in range(num):
    ids_R = rng.integers(0, V + 2, R).astype(np.int32)  # repeated, and some padding
    yield ids_R, rng.standard_normal((R, D)).astype(np.float32)


def _dense(ids_R, rows_RD):
  return jnp.zeros((V, D)).at[ids_R].add(rows_RD, mode="drop")


@pytest.mark.parametrize("opt", [SGD(), Momentum(0.9), Adagrad()])
def test_rows_equal_dense_optax_over_updates(opt):
  w_VD = jnp.asarray(np.random.default_rng(1).standard_normal((V, D)), jnp.float32)
  table, tx = opt.init(w_VD), opt.transformation()
  state = tx.init(w_VD)
  for ids_R, rows_RD in _batches(20):
    table = opt.update(table, row_grads(ids_R, rows_RD, V), LR, SCALE)
    direction, state = tx.update(SCALE * _dense(ids_R, rows_RD), state)
    w_VD = w_VD - LR * direction
    np.testing.assert_allclose(table.w_VD, w_VD, rtol=1e-5, atol=1e-6)


def test_momentum_is_that_of_optax_also_on_rows_that_are_not_touched():
  """Every row moves by what earlier steps left, as in optax on the whole table."""
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


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_impossible_momentum_is_named(momentum):
  with pytest.raises(UserError, match=r"^Momentum\.momentum is .*; it must be"):
    Momentum(momentum)


def test_lazy_adam_has_dense_moments_on_touched_rows_and_moves_no_other():
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_update_equals_touching_every_row(name):
  opt = OPTIMIZERS[name]()
  dense = sparse = opt.init(jnp.ones((V, D)))
  for seed in range(5):
    g_VD = jnp.asarray(np.random.default_rng(seed).standard_normal((V, D)), jnp.float32)
    dense = opt.dense_update(dense, g_VD, LR, SCALE)
    grads = row_grads(jnp.arange(V), g_VD, V)
    sparse = opt.update(sparse, grads, LR, SCALE)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), dense, sparse)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_accumulated_rows_are_one_gradient(name):
  """Batches of unequal size whose ids repeat, within and across: a step by the sum,
  which no optimiser but SGD could make of two steps."""
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


def test_sums_without_any_gradient_or_with_too_few_weights_are_refused():
  grads = row_grads(np.array([1]), np.ones((1, D)), V)
  for args in ([], [1.0]), ([], []), ([grads, grads], [1.0]):
    with pytest.raises(UserError, match=r"accumulate: \d gradients and \d weights"):
      accumulate(*args)


def test_sum_of_ids_outside_the_table_is_not_silent():
  """All sums of ids lie above V, so that no row would be touched."""
  grads = row_grads(np.array([V - 1, V - 2]), np.ones((2, D), np.float32), V)
  wrong = jax.tree.map(jnp.add, grads, grads)
  for opt in (SGD(), Momentum()):
    after = jax.jit(opt.update)(opt.init(jnp.ones((V, D))), wrong, LR, SCALE)
    assert np.isnan(after.w_VD).any()


def test_norm_of_repeated_rows_is_that_of_their_sum():
  ids_R, rows_RD = next(_batches(1))
  expected = float(jnp.sum(_dense(ids_R, rows_RD) ** 2))
  got = float(sq_norm(row_grads(ids_R, rows_RD, V)))
  assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_donated_update_touches_rows_in_place(name):
  """Guards speed without timing: the table is aliased, nothing of its size is made."""
  opt = OPTIMIZERS[name]()
  num_rows, dim = 100_000, 64
  table = jax.eval_shape(opt.init, jax.ShapeDtypeStruct((num_rows, dim), jnp.float32))
  ids_R = jax.ShapeDtypeStruct((256,), jnp.int32)
  rows_RD = jax.ShapeDtypeStruct((256, dim), jnp.float32)

  def step(table, ids_R, rows_RD):
    return opt.update(table, row_grads(ids_R, rows_RD, num_rows), LR, 1.0)

  compiled = jax.jit(step, donate_argnums=0).lower(table, ids_R, rows_RD).compile()
  memory = compiled.memory_analysis()
  assert memory.alias_size_in_bytes >= num_rows * dim * 4
  assert memory.temp_size_in_bytes < 2**20

  undonated = jax.jit(step).lower(table, ids_R, rows_RD).compile().memory_analysis()
  assert undonated.alias_size_in_bytes == 0


def test_adagrad_needs_no_eps_where_its_sums_start_above_0():
  """Duchi et al. 2011 have none."""
  table = Adagrad(eps=0.0).init(jnp.zeros((1, 1)))
  g = row_grads(jnp.array([0]), jnp.array([[1.0]]), 1)
  w_VD = Adagrad(eps=0.0).update(table, g, lr=1.0, scale=1.0).w_VD
  np.testing.assert_allclose(w_VD, -(1.1**-0.5), rtol=1e-6)
  with pytest.raises(UserError, match="set one of them above 0"):
    Adagrad(eps=0, initial_accumulator=0)
