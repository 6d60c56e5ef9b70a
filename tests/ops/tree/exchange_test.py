"""Compares the exchange algorithm with the definition of the likelihood."""

import itertools

import numpy as np
import pytest

from largevocab.ops.tree.exchange import exchange, log_likelihood
from largevocab.samplers.bigram import count_pairs

V, K = 30, 5
PLANTED_V = np.arange(V) % K


def text(seed=0, length=10_000, flat=0.0):
  """A chain of the planted clusters; Zipfian words of them."""
  rng = np.random.default_rng(seed)
  next_KK = np.cumsum(rng.dirichlet(np.full(K, 0.3 + flat), K), axis=1)
  k, cluster_T = 0, np.empty(length, int)
  for t, u in enumerate(rng.random(length)):
    k = cluster_T[t] = min(np.searchsorted(next_KK[k], u), K - 1)
  p_S = 1 / np.arange(1, V // K + 1)
  return cluster_T + K * rng.choice(V // K, length, p=p_S / p_S.sum())


def by_definition(tokens, cluster_V):
  """The log-likelihood, token by token."""
  a_T, b_T = cluster_V[tokens[:-1]], cluster_V[tokens[1:]]
  total = 0.0
  for token, a, b in zip(tokens[1:], a_T, b_T, strict=True):
    p_b = ((a_T == a) & (b_T == b)).sum() / (a_T == a).sum()
    total += np.log(p_b * (tokens[1:] == token).sum() / (b_T == b).sum())
  return total


def passes(tokens, cluster_V, most=V, num=4):
  pairs = count_pairs(tokens, len(cluster_V))
  return list(itertools.islice(exchange(*pairs, cluster_V, most), num))


def same(a_V, b_V):
  """Whether clusters are the same up to their numbers."""
  return len(set(zip(a_V, b_V, strict=True))) == len(set(a_V)) == len(set(b_V))


def test_likelihood_equals_the_definition():
  tokens = text(length=300)
  for cluster_V in (PLANTED_V, np.arange(V) // 7, np.zeros(V, int), np.arange(V)):
    got = log_likelihood(*count_pairs(tokens, V), cluster_V)
    np.testing.assert_allclose(got, by_definition(tokens, cluster_V), rtol=1e-12)


def test_likelihood_is_kept_up_to_date_and_never_falls():
  tokens = np.repeat(text(seed=1, length=1000, flat=1.0), 2)  # words follow themselves
  start_V = np.random.default_rng(1).integers(0, K, V)
  pairs = count_pairs(tokens, V)
  last = log_likelihood(*pairs, start_V)
  for sweep in passes(tokens, start_V, num=5):
    want = log_likelihood(*pairs, sweep.cluster_V)
    np.testing.assert_allclose(sweep.log_likelihood, want, rtol=1e-12)
    assert want > last if sweep.moved else want == last
    last = want


def test_no_single_move_is_better_at_the_end():
  tokens = text(seed=2, length=500, flat=1.0)
  pairs = count_pairs(tokens, V)
  *_, (cluster_V, moved, best) = passes(tokens, np.arange(V) % 3, num=20)
  assert moved == 0
  for c, k in itertools.product(range(V), range(3)):
    other_V = np.where(np.arange(V) == c, k, cluster_V)
    assert log_likelihood(*pairs, other_V) <= best + 1e-6


def test_planted_clusters_are_found():
  """From some starts, exchange ends in a local optimum; from most it does not."""
  tokens = text(flat=0.7)
  found = [
    same(passes(tokens, start_V, num=10)[-1].cluster_V, PLANTED_V)
    for start_V in np.random.default_rng(0).integers(0, K, (3, V))
  ]
  assert sum(found) >= 2
  flat = np.random.default_rng(0).permutation(tokens)  # nothing to be found
  assert not same(passes(flat, np.arange(V) // 6)[-1].cluster_V, PLANTED_V)


@pytest.mark.parametrize("most", [7, 9])
def test_clusters_stay_within_their_size(most):
  start_V = np.arange(V) // 6
  cluster_V = passes(text(), start_V, most)[-1].cluster_V
  assert np.bincount(cluster_V).max() <= most
  assert (cluster_V != start_V).any()


def test_words_without_neighbours_are_not_moved():
  tokens = text(length=2000)
  start_V = np.append(np.arange(V) // 6, [1, 3])
  cluster_V = passes(tokens, start_V)[-1].cluster_V
  assert cluster_V[V:].tolist() == [1, 3]
