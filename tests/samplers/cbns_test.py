"""Remembered negatives: their law, which are forgotten, and rows that are kept.

`contract_test.py` leaves them out: given the batches, draws are not random.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled, ShardedHead, class_mesh
from largevocab.labels import Counts, single_targets
from largevocab.samplers import CBNS, InBatch, Mixture
from tests.long import others_long
from tests.samplers.changes import rows_of_batch
from tests.samplers.compiled import sample, update

V, N, D = 20, 4, 3
COUNT_V = np.append(60 // np.arange(1, V), 0)
W_VD = jnp.zeros((V, D))
H_ND = jnp.ones((N, D))
KEY = jax.random.key(0)


def q_of(count_V):
  return (count_V + 1) / (count_V + 1).sum()


# Compiled once for each sampler and shape, whatever the test.
log_expected = jax.jit(
  lambda sampler, *args: sampler.log_expected(*args), static_argnums=0
)


def law(sampler, stats, y, num_classes=V):
  w_VD = jnp.zeros((num_classes, D))
  log = log_expected(sampler, stats, w_VD, H_ND, y, jnp.arange(num_classes))
  return np.exp(np.float64(log))


def remember(sampler, stats, ids, num_classes=V):
  """Statistics after a step with the given distinct classes."""
  ids_R = np.full(6, num_classes)
  ids_R[: len({*ids})] = sorted({*ids})
  rows = jnp.zeros((len(ids_R), D))
  w_VD = jnp.zeros((num_classes, D))
  return update(sampler, stats, w_VD, ids_R, rows, rows)


def drawn(sampler, stats, y):
  """The classes of the batch and the remembered classes in a draw."""
  draw = sample(sampler, stats, W_VD, KEY, H_ND, y)
  ids, mask = np.asarray(draw.ids), np.asarray(draw.mask)
  old = np.asarray(draw.constant)
  assert len(set(ids[mask])) == mask.sum()
  np.testing.assert_allclose(
    np.exp(draw.log_expected), law(sampler, stats, y)[ids], rtol=1e-6
  )
  return sorted(ids[mask & ~old].tolist()), sorted(ids[mask & old].tolist())


def test_last_batches_are_remembered_and_each_class_is_drawn_once():
  sampler = CBNS(batches=2)
  stats = sampler.init(Counts(COUNT_V), W_VD, 12)
  y = single_targets([3, 1, 3, 0])
  want = [[], [5, 7], [5, 7, 9], [2, 7, 9], [2, 4]]
  for ids, old in zip([[5, 7, 3], [7, 9], [2], [2, 4, 1, 0], []], want, strict=True):
    assert drawn(sampler, stats, y) == ([0, 1, 3], old)
    stats = remember(sampler, stats, ids)
  nothing = single_targets([3, 1, 3, 0], weight_N=[0, 0, 0, 0])
  assert drawn(sampler, stats, nothing) == ([], [0, 1, 2, 4])


def test_initial_law_is_that_of_the_union_of_independent_batches():
  """By enumeration of all labels of two batches; one of them is remembered."""
  count_V, num = np.array([4, 1, 0]), 2
  q_V = q_of(count_V)
  union_V, now_V = np.zeros(3), np.zeros(3)
  for labels in itertools.product(range(3), repeat=2 * num):
    p = np.prod(q_V[[*labels]])
    union_V[[*set(labels)]] += p
    now_V[[*set(labels[:num])]] += p
  sampler = CBNS(batches=1, rate=1e-6)  # what it sees hardly counts
  stats = sampler.init(Counts(count_V), jnp.zeros((3, D)), 2 * num)
  y = single_targets([0, 2])
  np.testing.assert_allclose(law(sampler, stats, y, 3), now_V, rtol=1e-5)
  stats = remember(sampler, stats, [1, 2], 3)
  np.testing.assert_allclose(law(sampler, stats, y, 3), union_V, rtol=1e-5)
  assert not np.allclose(2 * now_V, union_V, rtol=0.1)  # nor the sum of both


def test_random_set_is_remembered_if_classes_exceed_the_room():
  sampler, times = CBNS(batches=1), 2000
  start = sampler.init(Counts(COUNT_V), W_VD, 4)  # two of each batch
  rows = jnp.zeros((5, D))

  def one(step):
    stats = start._replace(now=start.now._replace(step=step))
    stats = sampler.update(stats, W_VD, jnp.array([0, V, 3, 7, 9]), rows, rows)
    return jnp.zeros(V).at[stats.memory_KT[0]].add(1), stats.share_K[0]

  count_TV, share_T = jax.jit(jax.vmap(one))(jnp.arange(times))
  np.testing.assert_array_equal(share_T, 0.5)
  share_V = count_TV.mean(axis=0)[jnp.array([0, 3, 7, 9])]
  error = np.sqrt(0.25 / times)
  assert (np.abs(share_V - 0.5) < 4 * error).all()
  assert (np.abs(share_V - 0.4) > 4 * error).all()
  stats = remember(sampler, start, [0, 3, 7, 9])
  p_V = 1 / np.float64(stats.now.gap_V)
  want_V = 1 - (1 - p_V) * (1 - p_V / 2)
  np.testing.assert_allclose(
    law(sampler, stats, single_targets([1, 2])), want_V, rtol=1e-5
  )


def test_memory_does_not_depend_on_the_classes_of_other_devices():
  """Those classes are padding here; their number depends on the number of devices."""
  sampler, alone_R = CBNS(batches=1), jnp.array([0, 3, 7, 9])
  start = sampler.init(Counts(COUNT_V), W_VD, 4)  # two of each batch

  def remembered(ids_R):
    rows = jnp.zeros((len(ids_R), D))

    def one(step):
      stats = start._replace(now=start.now._replace(step=step))
      return sampler.update(stats, W_VD, ids_R, rows, rows).memory_KT[0]

    return jax.jit(jax.vmap(one))(jnp.arange(20))

  alone_ST = remembered(alone_R)
  assert len(np.unique(alone_ST, axis=0)) > 4
  padded_R = jnp.array([V, 0, V, V, 3, 7, V, 9, V])
  np.testing.assert_array_equal(remembered(padded_R), alone_ST)


@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_weights_of_a_stationary_stream_are_right_up_to_the_rate(rate):
  """Starts from the right estimates. The weights of `InBatch` would be wrong."""
  sampler, T = CBNS(batches=3, rate=rate), 10_000
  stats = sampler.init(Counts(COUNT_V), W_VD, 4 * N)
  q_V = q_of(COUNT_V)
  batch_TN = np.random.default_rng(1).choice(V, size=(T, N), p=q_V)

  def step(stats, ids_N):
    y = single_targets(ids_N)
    draw = sampler.sample(stats, W_VD, KEY, H_ND, y)
    here_V = jnp.zeros(V).at[draw.ids].add(draw.mask)
    log_V = sampler.log_expected(stats, W_VD, H_ND, y, jnp.arange(V))
    now_V = sampler.in_batch.log_expected(stats.now, W_VD, H_ND, y, jnp.arange(V))
    ids_R = rows_of_batch(ids_N, V)
    rows = jnp.zeros((N, D))
    weights = here_V * jnp.exp(-log_V), here_V * jnp.exp(-now_V)
    return sampler.update(stats, W_VD, ids_R, rows, rows), weights

  run = jax.jit(lambda stats, batches: jax.lax.scan(step, stats, batches)[1])
  weight_TV, of_batch_TV = (np.float64(x) for x in run(stats, jnp.asarray(batch_TN)))
  # The draws of four steps in a row share batches.
  error_V = weight_TV.reshape(-1, 50, V).mean(axis=1).std(axis=0) / np.sqrt(T / 50)
  assert (np.abs(weight_TV.mean(axis=0) - 1) < 4 * error_V + rate).all()
  assert (np.abs(of_batch_TV.mean(axis=0) - 1) > 4 * error_V + rate).all()


def test_remembered_rows_are_not_updated_but_activations_are():
  head = Sampled(sampler=CBNS(batches=1), num_samples=8, bias=False)
  alone = Sampled(sampler=InBatch(), num_samples=4, bias=False)
  state, other = head.init(KEY, COUNT_V, D), alone.init(KEY, COUNT_V, D)
  w_VD = jax.random.normal(KEY, (V, D))
  state = state._replace(table=state.table._replace(w_VD=w_VD))
  other = other._replace(table=other.table._replace(w_VD=w_VD))
  step, step_alone = jax.jit(head.backward), jax.jit(alone.backward)
  first, second = single_targets([3, 5, 3, 9]), single_targets([5, 1, 7, 7])
  update = jax.jit(head.update)
  state = update(state, step(state, H_ND, first, KEY).grads, 0.0, 1.0)
  out, without = step(state, H_ND, second, KEY), step_alone(other, H_ND, second, KEY)
  after = update(state, out.grads, 1.0, 1.0)
  changed = np.flatnonzero(after.table.w_VD != w_VD)
  assert set((changed // D).tolist()) == {1, 5, 7}
  assert (np.abs(out.dh_ND - without.dh_ND) > 1e-3).any()  # pushed away from 3 and 9
  stats = after.stats
  assert sorted(stats.memory_KT[0].tolist()) == [1, 5, 7, V]
  np.testing.assert_array_equal(np.flatnonzero(stats.now.seen_V), [1, 3, 5, 7, 9])


@pytest.mark.parametrize("blocks", others_long([None, 3], [3]))
def test_head_remembers_the_classes_of_its_batches(blocks):
  """Only of examples with weight; the same in blocks as on one device."""
  head = Sampled(sampler=CBNS(batches=2), num_samples=27)
  if blocks:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), blocks)
  state = head.init(KEY, COUNT_V, D)
  step, update = jax.jit(head.backward), jax.jit(head.update)
  for ids, weights in [([2, 8], [1, 1]), ([3, 9], [1, 0]), ([5, 19], [1, 2])]:
    y = single_targets(ids, weights)
    out = step(state, H_ND[:2], y, KEY)
    assert np.isfinite(out.loss)
    state = update(state, out.grads, 0.1, 1.0)
  stats = state.parts.stats if blocks else state.stats
  memory_BT = np.asarray(stats.memory_KT).reshape(blocks or 1, -1)
  size = -(-V // 3) if blocks else V
  found = {
    int(row) * (blocks or 1) + b
    for b, row_T in enumerate(memory_BT)
    for row in row_T[row_T < size]
  }
  assert found == {3, 5, 19}


def test_padding_has_no_law_and_a_single_draw_is_from_the_batch():
  sampler = CBNS()
  stats = sampler.init(Counts(COUNT_V), W_VD, 16)
  y = single_targets([3, 1])
  ids = jnp.array([V, 3, -1, 3, 2**31 - 1])
  log = np.asarray(log_expected(sampler, stats, W_VD, H_ND, y, ids))
  assert np.isfinite(log).tolist() == [False, True, False, True, False]
  assert (log[[0, 2, 4]] == -np.inf).all()
  stats = sampler.init(Counts(COUNT_V), W_VD, 1)
  stats = remember(sampler, stats, [3, 4])
  draw = sample(sampler, stats, W_VD, KEY, H_ND, y)
  assert draw.mask.tolist() == [True]
  assert draw.constant.tolist() == [False]


def test_certain_classes_have_weight_one():
  """A class of every batch: p = 1, and nothing is infinite."""
  sampler = CBNS(batches=2)
  stats = sampler.init(Counts(np.ones(1, int)), jnp.zeros((1, D)), 3)
  for _ in range(2):
    stats = remember(sampler, stats, [0], 1)
    np.testing.assert_allclose(law(sampler, stats, single_targets([0]), 1), 1)


def test_cbns_cannot_be_part_of_a_mixture():
  with pytest.raises(UserError, match="second is 'cbns'; it must be one of"):
    Mixture(second="cbns")
