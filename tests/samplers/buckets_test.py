"""SCE and RECE, compared with naive references and the losses of the papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, Targets
from largevocab.samplers import RECE, SCE
from largevocab.samplers.buckets import _SEED
from tests.long import others_long
from tests.samplers import naive_buckets
from tests.samplers.compiled import sample

V, N, D, M = 37, 11, 4, 12
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
COUNTS = Counts(np.ones(V, int))
W_VD = jnp.asarray(RNG.normal(size=(V, D)), jnp.float32)
H_ND = jnp.asarray(RNG.normal(size=(N, D)), jnp.float32)
W_NP = np.ones((N, 2), np.float32) / 2
W_NP[[3, 8]] = 0  # without weight
IDS_NP = RNG.integers(0, V, (N, 2))
Y = Targets(jnp.asarray(IDS_NP, jnp.int32), jnp.asarray(W_NP), jnp.zeros(N, int))
SAMPLERS = [
  SCE(),
  SCE(buckets=3, examples=2),
  SCE(mix=False, buckets=5, examples=4),
  RECE(),
  RECE(buckets=5, rounds=2, neighbours=0),
  RECE(rounds=2, neighbours=2),
  RECE(buckets=1, rounds=3),
]


def stats_of(sampler, m=M, updates=0):
  stats = sampler.init(COUNTS, W_VD, m)
  for _ in range(updates):
    rows = jnp.zeros((1, D))
    stats = sampler.update(stats, W_VD, jnp.array([V]), rows, rows)
  return stats


def sets_of(draw):
  ids_NM, mask_NM = np.asarray(draw.ids), np.asarray(draw.mask)
  rows = [ids_M[mask_M].tolist() for ids_M, mask_M in zip(ids_NM, mask_NM, strict=True)]
  assert all(len(set(row)) == len(row) for row in rows)
  return [*map(set, rows)]


@pytest.mark.parametrize("sampler", others_long(SAMPLERS, SAMPLERS[::2]), ids=repr)
def test_candidates_equal_those_of_the_definition(sampler):
  """Also after an update, with other projections; weightless examples have none."""
  seen = []
  for updates in (0, 3):
    draw = sample(sampler, stats_of(sampler, updates=updates), W_VD, KEY, H_ND, Y)
    assert draw.ids.shape == (N, M)
    assert not draw.log_expected.any()
    seen.append(sets_of(draw))
    assert seen[-1] == naive_buckets.chosen(sampler, W_VD, H_ND, Y, M, updates)
    assert seen[-1][3] == seen[-1][8] == set()
  assert seen[0] != seen[1]


@pytest.mark.parametrize(
  "sampler", [SCE(buckets=6, examples=6), RECE(buckets=5)], ids=repr
)
def test_examples_without_weight_change_nothing(sampler):
  stats = stats_of(sampler)
  want = sets_of(sample(sampler, stats, W_VD, KEY, H_ND, Y))
  h_ND = H_ND.at[jnp.array([3, 8])].set(9.0)
  assert sets_of(sample(sampler, stats, W_VD, KEY, h_ND, Y)) == want
  more = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:2])])
  longer = sets_of(sample(sampler, stats, W_VD, KEY, more(H_ND), jax.tree.map(more, Y)))
  assert longer == [*want, set(), set()]


def loss_of(sampler, y=Y, m=M):
  """A head's loss; its scores of all classes for weighted examples, in float64."""
  head = Sampled(sampler=sampler, num_samples=m, bias=False)
  state = head.init(KEY, COUNTS, D)
  state = state._replace(table=state.table._replace(w_VD=W_VD))
  step = jax.jit(head.backward)(state, H_ND, y, KEY)
  return float(step.loss), step, np.float64(H_ND) @ np.float64(W_VD).T, (head, state)


SINGLE = Y._replace(ids_NP=Y.ids_NP[:, :1], w_NP=2 * Y.w_NP[:, :1])
LIVE_N = W_NP.any(axis=1)


def naive_key():
  return jax.random.fold_in(jax.random.key(_SEED), 0)


def test_loss_is_the_largest_of_those_in_the_buckets():
  """The paper's rule, except for examples in no bucket."""
  sampler = SCE(buckets=3, examples=2)
  loss, step, o_NV, _ = loss_of(sampler, SINGLE)
  args = naive_key(), np.float64(W_VD), np.float64(H_ND), LIVE_N, M
  losses = [[] for _ in range(N)]
  for examples, classes in naive_buckets.sce_buckets(sampler, *args):
    for n in examples:
      true = IDS_NP[n, 0]
      with_true = o_NV[n, sorted({*classes, true})]
      losses[n].append(logsumexp(with_true) - o_NV[n, true])
  of_some = [max(some) for some in losses if some]
  assert max(map(len, losses)) > 1
  assert 1 < len(of_some) < LIVE_N.sum()
  assert loss == pytest.approx(sum(of_some) / LIVE_N.sum(), rel=1e-5)
  smallest = sum(min(some) for some in losses if some) / LIVE_N.sum()
  assert abs(loss - smallest) > 1e-3
  for n in range(N):
    assert bool(step.dh_ND[n].any()) == bool(losses[n])


def test_repeated_classes_count_once_like_logits_minus_log_count():
  """The authors subtract the log of a class's occurrences from each of its logits."""
  sampler = RECE(rounds=2, neighbours=1)
  loss, _, o_NV, _ = loss_of(sampler, SINGLE)
  args = naive_key(), np.float64(W_VD), np.float64(H_ND), LIVE_N, M
  found = naive_buckets.rece_occurrences(sampler, *args)
  want, without = [], []
  for n in np.flatnonzero(LIVE_N):
    true = IDS_NP[n, 0]
    false = [c for c in found[n] if c != true]
    repeats = np.array([false.count(c) for c in false])
    for losses, log_repeats in ((want, np.log(repeats)), (without, 0 * repeats)):
      o_M = o_NV[n, false] - log_repeats
      losses.append(logsumexp([*o_M, o_NV[n, true]]) - o_NV[n, true])
  assert loss == pytest.approx(np.mean(want), rel=1e-5)
  assert abs(loss - np.mean(without)) > 1e-3


WHOLE = [SCE(examples=N), RECE(neighbours=9)]


@pytest.mark.parametrize("sampler", others_long(WHOLE, WHOLE[:1]), ids=repr)
def test_monitor_measures_the_bias(sampler):
  """Z lacks classes outside the buckets; it is exact if buckets have all classes."""
  for m in (19, V * 19):
    *_, o_NV, (head, state) = loss_of(sampler, SINGLE, m)
    seen = jax.jit(head.monitor)(state, H_ND, SINGLE, KEY)
    chosen = naive_buckets.chosen(sampler, W_VD, H_ND, SINGLE, m)
    logs = [
      logsumexp(o_NV[n, sorted({*chosen[n], IDS_NP[n, 0]})]) - logsumexp(o_NV[n])
      for n in np.flatnonzero(LIVE_N)
    ]
    assert seen["log_z_bias"] == pytest.approx(np.mean(logs), rel=1e-4, abs=1e-5)
    relvar = np.mean(np.square(np.expm1(logs)))
    assert seen["relvar"] == pytest.approx(relvar, rel=1e-4, abs=1e-9)
    assert (np.mean(logs) < -0.05) == (m < V)


def test_too_few_draws_for_the_chunks_are_refused():
  with pytest.raises(UserError, match=r"num_samples is 5 .* the 6 chunks of an exam"):
    RECE(rounds=2).init(COUNTS, W_VD, 5)
