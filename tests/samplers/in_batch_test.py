"""In-batch negatives: the law of independent labels by enumeration, and its estimates.

`contract_test.py` leaves them out: given the batch, the draw is not random.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled, ShardedHead, class_mesh
from largevocab.labels import Counts, Targets, single_targets
from largevocab.samplers import InBatch, Mixture
from tests.heads.on_devices import stepper
from tests.long import others_long
from tests.samplers.changes import rows_of_batch
from tests.samplers.compiled import log_expected, sample, update

V, N, D = 20, 6, 3
COUNT_V = np.append(60 // np.arange(1, V), 0)
W_VD = jnp.zeros((V, D))
H_ND = jnp.ones((N, D))
KEY = jax.random.key(0)


def in_a_batch(q_V, num):
  """P(c is among the given number of independent labels)."""
  return 1 - (1 - q_V) ** num


def q_of(count_V, smoothing=1.0):
  return (count_V + smoothing) / (count_V + smoothing).sum()


def law(sampler, stats, y, num_classes=V):
  w_VD = jnp.zeros((num_classes, D))
  log = log_expected(sampler, stats, w_VD, H_ND, y, jnp.arange(num_classes))
  return np.exp(np.float64(log))


def drawn(sampler, stats, y, key=KEY):
  draw = sample(sampler, stats, W_VD, key, H_ND, y)
  return draw, sorted(np.asarray(draw.ids)[np.asarray(draw.mask)].tolist())


def test_each_class_of_the_batch_is_drawn_once():
  sampler = InBatch()
  stats = sampler.init(Counts(COUNT_V), W_VD, 8)
  y = single_targets([3, 1, 3, 0, 19, 7], weight_N=[1, 1, 1, 0, 2, 0.5])
  draw, ids = drawn(sampler, stats, y)
  assert ids == [1, 3, 7, 19]
  assert draw.ids.shape == draw.log_expected.shape == draw.mask.shape == (8,)
  law_V = law(sampler, stats, y)
  np.testing.assert_allclose(np.exp(draw.log_expected), law_V[draw.ids], rtol=1e-6)
  several = Targets(
    jnp.array([[3, 1], [V, 3]]), jnp.array([[1.0, 1], [0, 1]]), jnp.zeros(2, int)
  )
  assert drawn(sampler, stats, several)[1] == [1, 3]
  # As in what `update` gets: an entry without weight, but of an example that has some.
  padded = Targets(
    jnp.array([[3, 1], [7, 0]]), jnp.array([[1.0, 0], [0, 0]]), jnp.zeros(2, int)
  )
  assert drawn(sampler, stats, padded)[1] == [1, 3]


def test_initial_law_is_that_of_independent_labels():
  """By enumeration of all batches."""
  count_V, num = np.array([4, 1, 0]), 3
  q_V, p_V = q_of(count_V), np.zeros(3)
  for batch in itertools.product(range(3), repeat=num):
    p_V[[*set(batch)]] += np.prod(q_V[[*batch]])
  sampler = InBatch()
  stats = sampler.init(Counts(count_V), jnp.zeros((3, D)), num)
  got_V = law(sampler, stats, single_targets([0, 1, 1]), 3)
  np.testing.assert_allclose(got_V, p_V, rtol=1e-6)
  assert not np.allclose(num * q_V, p_V, rtol=0.1)  # nor with multiplicity


def test_sums_are_unbiased_except_for_an_examples_own_label():
  """Over all batches: for a newcomer the sum is right, for an example of the batch its
  own class is exact and the others are found in the rest of the batch."""
  count_V, z_V, num = np.array([4, 1, 0]), np.array([0.5, 2.0, 3.0]), 3
  q_V = q_of(count_V)
  sampler = InBatch()
  stats = sampler.init(Counts(count_V), jnp.zeros((3, D)), num)
  weight_V = 1 / law(sampler, stats, single_targets([0]), 3)
  mean, of_first, wrong = 0.0, np.zeros(3), 0.0
  for batch in itertools.product(range(3), repeat=num):
    p = np.prod(q_V[[*batch]])
    mean += p * sum(z_V[c] * weight_V[c] for c in set(batch))
    wrong += p * sum(z_V[c] for c in set(batch))
    others = set(batch) - {batch[0]}
    z = z_V[batch[0]] + sum(z_V[c] * weight_V[c] for c in others)
    of_first[batch[0]] += p / q_V[batch[0]] * z
  assert mean == pytest.approx(z_V.sum(), rel=1e-5)
  assert abs(wrong - z_V.sum()) > 0.1 * z_V.sum()
  too_small_V = in_a_batch(q_V, num - 1) / in_a_batch(q_V, num)
  for c in range(3):
    want = z_V[c] + (z_V * too_small_V).sum() - z_V[c] * too_small_V[c]
    assert of_first[c] == pytest.approx(want, rel=1e-5)
  assert (too_small_V >= 1 - 1 / num).all()  # as the docstring says
  assert (too_small_V < 1).all()


def test_random_set_is_chosen_if_classes_exceed_the_draws():
  sampler, times = InBatch(), 4000
  y = single_targets([0, 1, 2, 3, 4, 4])
  stats = sampler.init(Counts(COUNT_V), W_VD, 2)
  whole = sampler.init(Counts(COUNT_V), W_VD, 5)._replace(gap_V=stats.gap_V)
  np.testing.assert_allclose(
    law(sampler, stats, y), law(sampler, whole, y) * 2 / 5, rtol=1e-6
  )

  def one(key):
    draw = sampler.sample(stats, W_VD, key, H_ND, y)
    return jnp.zeros(V).at[draw.ids].add(draw.mask)

  share_V = jax.jit(jax.vmap(one))(jax.random.split(KEY, times)).mean(axis=0)
  error = np.sqrt(0.4 * 0.6 / times)
  assert (np.abs(share_V[:5] - 0.4) < 4 * error).all()
  assert not share_V[5:].any()
  assert (np.abs(share_V[:5] - 0.5) > 4 * error).all()


def stream(sampler, stats, batch_TN):
  """Statistics after each batch, and before it the weight of each class if it is there:
  f32[T, V] both."""

  def step(stats, ids_N):
    ids_R = rows_of_batch(ids_N, V)
    is_there_V = jnp.zeros(V).at[ids_R].set(1, mode="drop")
    rows = jnp.zeros((len(ids_R), D))
    new = sampler.update(stats, W_VD, ids_R, rows, rows)
    return new, (new.gap_V, is_there_V * stats.gap_V)

  return jax.jit(lambda s, b: jax.lax.scan(step, s, b))(stats, jnp.asarray(batch_TN))


def test_gaps_equal_those_of_algorithm_2():
  sampler = InBatch(rate=0.25)
  stats = sampler.init(Counts(COUNT_V), W_VD, N)
  rng = np.random.default_rng(0)
  batch_TN = rng.choice(V, size=(50, N), p=q_of(COUNT_V))
  a, b = np.zeros(V), np.float64(stats.gap_V)
  for t, batch in enumerate(batch_TN, start=1):
    for c in set(batch.tolist()):
      b[c] = (1 - 0.25) * b[c] + 0.25 * (t - a[c])
      a[c] = t
  stats, _ = stream(sampler, stats, batch_TN)
  np.testing.assert_allclose(stats.gap_V, b, rtol=1e-5)
  np.testing.assert_array_equal(stats.seen_V, a)
  assert stats.step == 50
  want_V = np.exp(-np.log(b))
  np.testing.assert_allclose(
    law(sampler, stats, single_targets([0])), want_V, rtol=1e-5
  )


def test_stationary_stream_is_estimated_with_the_right_weights():
  """Starts far off, from equal counts. Tolerances are five standard errors."""
  sampler = InBatch(rate=0.05)
  stats = sampler.init(Counts(np.ones(V, int)), W_VD, N)
  start_V = np.float64(stats.gap_V)
  q_V, T = q_of(COUNT_V), 12_000
  batch_TN = np.random.default_rng(1).choice(V, size=(T, N), p=q_V)
  _, (gap_TV, weight_TV) = stream(sampler, stats, batch_TN)
  half = T // 2
  p_V = in_a_batch(q_V, N)
  seen_V = p_V * half
  error_V = np.sqrt((1 - p_V) / seen_V) / p_V  # of a mean of so many gaps
  gap_V = np.float64(gap_TV[half:]).mean(axis=0)
  assert (np.abs(gap_V - 1 / p_V) < 5 * error_V).all()
  assert (np.abs(start_V - 1 / p_V) > 5 * error_V).mean() > 0.8
  weight_V = np.float64(weight_TV[half:]).mean(axis=0)  # of an estimate of 1
  error_V = np.float64(weight_TV[half:]).std(axis=0) / np.sqrt(half) + error_V * p_V
  assert (np.abs(weight_V - 1) < 5 * error_V).all()
  assert (np.abs(p_V * start_V - 1) > 5 * error_V).mean() > 0.8
  relative_V = np.float64(gap_TV[half:]).var(axis=0) * p_V**2
  np.testing.assert_allclose(relative_V.mean(), 0.05 / 2 * (1 - p_V).mean(), rtol=0.2)


def test_drifting_stream_is_followed_at_the_documented_rate():
  """Classes all alike: of the distance of their mean gap from the new one a factor
  1 - rate remains with each appearance."""
  rate, p, r, before, after = 0.05, 0.5, 0.1, 400, 250
  num = 3000
  sampler = InBatch(rate=rate)
  w_VD = jnp.zeros((num, D))
  stats = sampler.init(Counts(np.ones(num, int)), w_VD, 1)
  stats = stats._replace(gap_V=jnp.full(num, 1 / p))
  ids_V = jnp.arange(num)

  def step(stats, args):
    key, share = args
    is_there_V = jax.random.bernoulli(key, share, (num,))
    ids_R = jnp.where(is_there_V, ids_V, num + ids_V)
    stats = sampler.update(stats, w_VD, ids_R, w_VD, w_VD)
    return stats, stats.gap_V.mean()

  keys = jax.random.split(KEY, before + after)
  share_T = jnp.where(jnp.arange(before + after) < before, p, r)
  _, gap_T = jax.jit(lambda s: jax.lax.scan(step, s, (keys, share_T)))(stats)
  assert gap_T[before - 1] == pytest.approx(1 / p, rel=0.02)
  for t in (100, after):
    want = 1 / r + (1 - rate * r) ** t * (1 / p - 1 / r)
    assert gap_T[before + t - 1] == pytest.approx(want, rel=0.06)
    assert abs(want - 1 / p) > 0.2 / p  # neither the old law
    assert abs(want - 1 / r) > 0.2 / r  # nor yet the new one


@pytest.mark.parametrize(
  ("fields", "blocks"),
  others_long(
    itertools.product([{}, {"exact_frequent": 2}], [None, 3]),
    [({}, 3), ({"exact_frequent": 2}, None)],
  ),
)
def test_head_counts_the_classes_of_its_batches(blocks, fields):
  """Of examples with weight, in blocks as on one device; exact sets count besides."""
  head = Sampled(sampler=InBatch(rate=0.5), num_samples=6, **fields)
  if blocks:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), blocks)
  state, step = head.init(KEY, COUNT_V, D), stepper(head)
  batches = [([3, 5, 3, 9], [1, 1, 1, 0]), ([5, 19, 7, 7], [1, 1, 1, 2])]
  for i, (ids, weights) in enumerate(batches):
    y = single_targets(ids, weights)
    state, out = step(state, jnp.ones((4, D)), y, jax.random.key(i))
    assert np.isfinite(out.loss)
  want_V = np.zeros(V)
  want_V[[3, 5, 7, 19]] = 1, 2, 2, 2
  if fields:
    want_V[:2] = 2
  stats = state.parts.stats if blocks else state.stats
  seen_V = np.asarray(stats.seen_V).reshape(blocks or 1, -1).T.ravel()[:V]
  np.testing.assert_array_equal(seen_V, want_V)


def test_rare_class_has_a_finite_law_once_it_was_seen():
  sampler, rows = InBatch(rate=1.0), jnp.zeros((1, D))
  stats = sampler.init(Counts([10**15, 10**15, 0, 0]), W_VD[:4], 4)
  stats = update(sampler, stats, W_VD[:4], jnp.array([2]), rows, rows)
  assert np.isfinite(np.log(law(sampler, stats, single_targets([3, 1]), 4))).all()


def test_padding_has_no_law_and_changes_nothing():
  sampler = InBatch()
  stats = sampler.init(Counts(COUNT_V), W_VD, N)
  y = single_targets([3, 1])
  ids = jnp.array([V, 3, -1, 3, 2**31 - 1])
  log = np.asarray(log_expected(sampler, stats, W_VD, H_ND, y, ids))
  assert np.isfinite(log).tolist() == [False, True, False, True, False]
  assert (log[[0, 2, 4]] == -np.inf).all()
  rows = jnp.zeros((2, D))
  new = update(sampler, stats, W_VD, jnp.array([V, V + 5]), rows, rows)
  np.testing.assert_array_equal(new.gap_V, stats.gap_V)
  np.testing.assert_array_equal(new.seen_V, stats.seen_V)
  nothing = single_targets([3, 1], weight_N=[0, 0])
  draw, ids = drawn(sampler, stats, nothing)
  assert ids == []
  assert np.isfinite(draw.log_expected).all()


@pytest.mark.parametrize("num_classes", [1, 2])
def test_few_classes_are_all_drawn(num_classes):
  sampler = InBatch()
  w_VD = jnp.zeros((num_classes, D))
  stats = sampler.init(Counts(np.ones(num_classes, int)), w_VD, 5)
  y = single_targets([0, num_classes - 1])
  draw = sample(sampler, stats, w_VD, KEY, H_ND, y)
  assert int(draw.mask.sum()) == num_classes
  law_V = law(sampler, stats, y, num_classes)
  np.testing.assert_allclose(
    law_V, in_a_batch(np.full(num_classes, 1 / num_classes), 5)
  )


def test_counts_are_needed():
  with pytest.raises(UserError, match="counts of all 20 classes are zero"):
    InBatch().init(Counts(np.zeros(V, int)), W_VD, N)


def test_in_batch_cannot_be_part_of_a_mixture():
  """The other part's draws would be counted as the batch's."""
  with pytest.raises(UserError, match="first is 'in_batch'; it must be one of"):
    Mixture("in_batch")
