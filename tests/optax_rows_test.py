"""Row-wise optimisers of optax, and decoupled decay of rows that are not touched."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab.errors import UserError
from largevocab.rows import (
  SGD,
  Adam,
  AdamW,
  Lion,
  Momentum,
  OptaxRows,
  RMSProp,
  RowGrads,
  carry_rows,
)

V, D, R = 12, 3, 5
LR = 0.05
FAR = 2e-4  # a wrong treatment of rows differs by at least this


def normal(seed, *shape):
  return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@functools.cache
def update_of(opt):
  return jax.jit(opt.update)


def some(seed, num_rows=V):
  """Distinct ids with some padding, and the gradient of these rows of a table."""
  rng = np.random.default_rng(seed)
  ids_R = rng.permutation(num_rows + 2)[:R].astype(np.int32)
  ids_R = np.where(ids_R < num_rows, ids_R, V + ids_R)
  return ids_R, jnp.asarray(rng.standard_normal((R, D)), jnp.float32)


def masked(tx, tree, old, touched_V):
  """A state with the new rows of those touched and the old ones of others."""
  pick = lambda new, old: (
    jnp.where(touched_V[:, None], new, old) if np.ndim(new) == 2 else new
  )
  return jax.tree.map(pick, tree, old)


CASES = {
  "adamw": (AdamW(decoupled_decay=0.0), optax.adamw(1.0, weight_decay=0.0)),
  "lion": (Lion(decoupled_decay=0.0), optax.lion(1.0, weight_decay=0.0)),
  "rmsprop": (RMSProp(), optax.rmsprop(1.0)),
  "decay inside": (OptaxRows(tx := optax.adamw(1.0, weight_decay=0.1)), tx),
  "schedule and mask": (
    OptaxRows(
      tx := optax.chain(
        optax.scale_by_belief(),
        optax.masked(optax.add_decayed_weights(0.1), lambda w: w.ndim == 2),
        optax.scale_by_schedule(optax.cosine_decay_schedule(-1.0, 60)),
      )
    ),
    tx,
  ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_match_optax_on_the_whole_table_with_untouched_rows_masked(case):
  """Over 50 steps. Rows that a step does not touch keep their value and state."""
  opt, tx = CASES[case]
  table, w_VD = opt.init(normal(1, V, D)), normal(1, V, D)
  state = tx.init(w_VD)
  whole = jax.jit(tx.update)
  for number in range(50):
    ids_R, rows_RD = some(number)
    before_VD = table.w_VD
    table = update_of(opt)(table, RowGrads(ids_R, rows_RD), LR, 0.5)
    g_VD = jnp.zeros((V, D)).at[ids_R].add(0.5 * rows_RD, mode="drop")
    touched_V = np.isin(np.arange(V), ids_R)
    updates_VD, new = whole(g_VD, state, w_VD)
    w_VD = jnp.where(touched_V[:, None], w_VD + LR * updates_VD, w_VD)
    state = masked(tx, new, state, touched_V)
    np.testing.assert_array_equal(table.w_VD[~touched_V], before_VD[~touched_V])
    np.testing.assert_allclose(table.w_VD, w_VD, rtol=1e-5, atol=1e-6)
    kept = [leaf for leaf in jax.tree.leaves(state) if np.ndim(leaf) == 2]
    for slot, leaf in zip(table.slots.values(), kept, strict=True):
      np.testing.assert_allclose(slot, leaf, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", ["lion", "schedule and mask"])
def test_touching_all_rows_equals_optax(case):
  """50 steps, also of `dense_update` and of a network; 49 steps differ."""
  opt, tx = CASES[case]
  start_VD = normal(1, V, D)
  table = dense = opt.init(start_VD)
  w_VD = net_VD = start_VD
  of_net = opt.transformation()
  state, net = tx.init(w_VD), of_net.init(w_VD)
  whole, on_net, on_all = map(jax.jit, (tx.update, of_net.update, opt.dense_update))
  for number in range(50):
    g_VD, before_VD = normal(number, V, D), w_VD
    table = update_of(opt)(table, RowGrads(np.arange(V), g_VD), LR, 1.0)
    dense = on_all(dense, g_VD, LR, 1.0)
    updates_VD, state = whole(g_VD, state, w_VD)
    w_VD = w_VD + LR * updates_VD
    updates_VD, net = on_net(g_VD, net, net_VD)
    net_VD = net_VD - LR * updates_VD
  for got_VD in (table.w_VD, dense.w_VD, net_VD):
    np.testing.assert_allclose(got_VD, w_VD, rtol=2e-5, atol=1e-5)
  assert np.abs(table.w_VD - before_VD).max() > FAR


RATES = 0.02 + 0.5 * np.random.default_rng(2).random(40)


def naive_decay(rates, decay, w_VD, touched, step):
  """Dense decay in float64: all rows decay in each step, touched ones also `step`."""
  w_VD = np.array(w_VD, np.float64)
  for lr, ids_R, number in zip(rates, touched, range(len(rates)), strict=True):
    w_VD *= 1 - lr * decay
    w_VD[ids_R] -= lr * step(number)
  return w_VD


@pytest.mark.parametrize("opt", [SGD, Momentum])
def test_lazy_decay_equals_dense_decay_for_any_learning_rates(opt):
  """To 1e-6, for all rows once settled, and for a row as soon as it is touched.

  Without the decay of the steps in between they differ.
  """
  decay, start_VD = 0.1, normal(1, V, D)
  make = functools.partial(opt, **({"momentum": 0.0} if opt is Momentum else {}))
  opt = make(decoupled_decay=decay)
  table, touched, grads = opt.init(start_VD), [], []
  stale = make(decoupled_decay=0.0).init(start_VD)
  for number, lr in enumerate(RATES):
    ids_R, rows_RD = some(number, num_rows=V - 2)  # two rows are never touched
    real_R = ids_R < V
    touched.append(ids_R[real_R])
    grads.append(np.float64(rows_RD[real_R]))
    table = update_of(opt)(table, RowGrads(ids_R, rows_RD), lr, 1.0)
    stale = update_of(make(decoupled_decay=0.0))(
      stale, RowGrads(ids_R, rows_RD), lr, 1.0
    )
  want_VD = naive_decay(RATES, decay, start_VD, touched, grads.__getitem__)
  last = touched[-1]
  np.testing.assert_allclose(table.w_VD[last], want_VD[last], rtol=1e-6, atol=1e-6)
  settled = jax.jit(opt.settled)(table)
  np.testing.assert_allclose(settled.w_VD, want_VD, rtol=1e-6, atol=1e-6)
  again = opt.settled(settled)
  np.testing.assert_array_equal(again.w_VD, settled.w_VD)
  for wrong_VD in (stale.w_VD, start_VD):
    assert np.abs(wrong_VD - want_VD)[last].max() > FAR
  if isinstance(opt, SGD):  # momentum writes all rows
    assert np.abs(table.w_VD[-2:] - want_VD[-2:]).min() > FAR


def test_many_small_steps_beside_a_large_sum_are_not_rounded_away():
  """In plain float32 each step would be rounded to a multiple of 4e-6."""
  opt, num, total = SGD(decoupled_decay=0.01), 100_000, np.float32(-40)
  none = RowGrads(jnp.array([1]), jnp.zeros((1, 1)))
  slots = {"log_decay": jnp.asarray(total), "log_decay_V": jnp.full(2, total)}
  table = opt.init(jnp.ones((2, 1)))
  table = table._replace(slots=table.slots | slots)
  step = lambda table, _: (opt.update(table, none, 1e-3, 1.0), None)
  table = jax.jit(lambda table: jax.lax.scan(step, table, length=num)[0])(table)
  want = (1 - 1e-5) ** num
  np.testing.assert_allclose(opt.settled(table).w_VD, want, rtol=2e-3)
  np.testing.assert_allclose(opt.settled(table).w_VD[0], want, rtol=1e-5)
  plain = sum([np.float32(np.log1p(-1e-5))] * num, start=total)
  assert abs(np.exp(plain - total) / want - 1) > 0.01


def test_adam_with_decoupled_decay_equals_dense_adamw_on_touched_rows():
  """Some rows are touched in all steps, others are not."""
  opt, tx = Adam(decoupled_decay=0.1), optax.adamw(LR, weight_decay=0.1)
  w_VD = normal(1, V, D)
  table, state = opt.init(w_VD), tx.init(w_VD)
  whole = jax.jit(tx.update)
  always = np.arange(3)
  for number in range(50):
    ids_R = np.concatenate([always, 3 + some(number, V - 3)[0]])
    rows_RD = normal(number, len(ids_R), D)
    table = update_of(opt)(table, RowGrads(ids_R, rows_RD), LR, 1.0)
    g_VD = jnp.zeros((V, D)).at[ids_R].add(rows_RD, mode="drop")
    updates_VD, state = whole(g_VD, state, w_VD)
    w_VD = w_VD + updates_VD
  np.testing.assert_allclose(table.w_VD[always], w_VD[always], rtol=2e-5, atol=1e-6)
  assert np.abs(table.w_VD[3:] - w_VD[3:]).max() > FAR  # moved by momentum alone


REFUSED = {
  "global norm": (
    optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)),
    "mixes rows",
  ),
  "trust ratio": (optax.lamb(1.0), "mixes rows"),
  "orthogonalised": (optax.contrib.muon(1.0), "mixes rows"),
  "column norms": (optax.adaptive_grad_clip(0.1), "mixes rows"),
  "factored": (optax.scale_by_factored_rms(), "neither a state of each row nor"),
  "several steps": (
    optax.MultiSteps(optax.sgd(1.0), 3).gradient_transformation(),
    "neither a state of each row nor",
  ),
  "history": (optax.scale_by_lbfgs(), "not a state of each row"),
  "loss needed": (optax.polyak_sgd(1.0), "cannot update rows .*value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_transformation_without_row_state_is_refused_with_the_reason(name):
  tx, why = REFUSED[name]
  with pytest.raises(UserError, match=why) as caught:
    OptaxRows(tx)
  assert "\n" not in str(caught.value)


def test_transformation_that_factors_large_tables_is_refused_at_init():
  opt = OptaxRows(optax.scale_by_factored_rms(min_dim_size_to_factor=200))
  with pytest.raises(UserError, match="not a state of each row"):
    opt.init(jnp.zeros((300, 200)))


def test_transformations_are_not_probed_within_a_trace():
  """Heads replace fields of their optimiser during tracing."""
  tx = optax.adam(1.0)

  @jax.jit
  def traced(x):
    OptaxRows(tx)
    return x + 1

  assert traced(1) == 2


@pytest.mark.parametrize(
  "opt", [AdamW(decoupled_decay=0.1), OptaxRows(CASES["lion"][1])]
)
def test_bfloat16_rows_step_like_rounded_float32_rows(opt):
  short = dataclasses.replace(opt, row_dtype="bfloat16")
  start_VD = normal(1, V, D).astype(jnp.bfloat16).astype(jnp.float32)
  grads = RowGrads(*some(3))
  after = lambda opt: opt.settled(opt.update(opt.init(start_VD), grads, LR, 1.0))
  table, want = jax.jit(after, static_argnums=0)(short), jax.jit(lambda: after(opt))()
  assert table.w_VD.dtype == jnp.bfloat16
  np.testing.assert_allclose(table.w_VD, want.w_VD, rtol=2**-7, atol=1e-6)
  assert all(slot.dtype == jnp.float32 for slot in table.slots.values())


def test_rows_carried_to_another_table_decay_as_before():
  """New rows have no pending decay."""
  opt = SGD(decoupled_decay=0.5)
  table = opt.init(jnp.ones((2, 1)))
  touch = lambda table, row: opt.update(
    table, RowGrads(jnp.array([row]), jnp.zeros((1, 1))), lr=1.0, scale=1.0
  )
  table = touch(table, 0)
  later = carry_rows(opt.init(jnp.full((3, 1), 7.0)), table, [1, -1, 0])
  settled = opt.settled(later).w_VD[:, 0].tolist()
  assert settled == pytest.approx([0.5, 7.0, 0.5])
  assert opt.settled(touch(later, 1)).w_VD[:, 0].tolist() == pytest.approx(
    [0.25, 3.5, 0.25]
  )
