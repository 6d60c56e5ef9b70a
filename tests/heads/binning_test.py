"""How classes are put into clusters."""

import logging

import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Hierarchical
from largevocab.heads.binning import BINNINGS, brown, equal, frequency, sqrt
from largevocab.labels import Counts
from largevocab.ops.tree.exchange import log_likelihood
from largevocab.samplers.bigram import count_pairs

V = 60


def counts(seed=0, length=3000):
  """Counts and tokens of two kinds of words that alternate."""
  rng = np.random.default_rng(seed)
  tokens = rng.zipf(1.3, length).clip(max=V // 2) - 1
  tokens = 2 * tokens + np.arange(length) % 2
  return Counts(np.bincount(tokens, minlength=V), tokens)


@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize(("num", "most"), [(1, V), (7, 20), (15, 4), (30, 3), (V, 4)])
def test_clusters_are_neither_empty_nor_too_large(binning, num, most):
  size_K = np.bincount(BINNINGS[binning](counts(), num, most), minlength=num)
  assert len(size_K) == num
  assert size_K.max() <= most
  assert size_K.min() >= (binning != "brown")  # there it is free to empty them


@pytest.mark.parametrize("binning", ["equal", "frequency", "sqrt"])
def test_bins_by_count_are_ordered(binning):
  given = counts()
  cluster_V = BINNINGS[binning](given, 7, 40)
  order_V = np.argsort(-given.unigram_V, kind="stable")
  assert (np.diff(cluster_V[order_V]) >= 0).all()


def test_masses_are_as_equal_as_classes_allow():
  count_V = np.random.default_rng(1).integers(50, 150, 1000)
  mass_K = np.bincount(frequency(Counts(count_V), 10, 1000), count_V)
  np.testing.assert_allclose(mass_K, count_V.sum() / 10, atol=300)
  mass_K = np.bincount(sqrt(Counts(count_V), 10, 1000), np.sqrt(count_V))
  np.testing.assert_allclose(mass_K, np.sqrt(count_V).sum() / 10, atol=26)
  equal_K = np.bincount(equal(Counts(count_V), 10, 1000), count_V)
  assert np.ptp(equal_K) > 3 * 300


def test_classes_beside_full_clusters_are_shared_evenly():
  count_V = np.append(np.ones(100, int), np.full(20, 100))
  cluster_V = frequency(Counts(count_V), 7, 50)
  assert np.bincount(cluster_V).tolist() == [4, 4, 4, 4, 4, 50, 50]


def test_brown_clusters_are_likelier_than_bins_by_count(caplog):
  given = counts()
  with caplog.at_level(logging.INFO, "largevocab"):
    brown_V = brown(given, 8, 100)
  assert "pass 1: " in caplog.text
  pairs = count_pairs(given.tokens, V)
  gain = log_likelihood(*pairs, brown_V) - max(
    log_likelihood(*pairs, BINNINGS[b](given, 8, 100)) for b in ("equal", "sqrt")
  )
  assert gain > 0.5 * len(given.tokens) * np.log(2)  # which kind comes next is known
  even_V = np.arange(V) % 2 == 0
  kinds_K = [set(even_V[(brown_V == k) & (given.unigram_V > 20)]) for k in range(8)]
  assert max(map(len, kinds_K)) == 1


def test_brown_needs_a_token_stream():
  for tokens in (None, np.array([1])):
    with pytest.raises(UserError, match=r"head.binning is 'brown'.*token stream"):
      Hierarchical(binning="brown").cluster_of(Counts(np.ones(4, int), tokens))


def test_slack_limits_the_size_of_clusters():
  given = Counts(np.append(10_000, np.ones(99, int)))
  size_K = lambda **how: np.bincount(
    Hierarchical(num_clusters=10, **how).cluster_of(given)
  )
  assert size_K(binning="frequency", slack=1.0).tolist() == [10] * 10
  assert size_K(binning="frequency").max() == 15
  assert size_K(binning="frequency", slack=3.0).max() == 30
  for slack in (0.9, 64.1):
    with pytest.raises(UserError, match=rf"^Hierarchical\.slack is {slack}; it must"):
      Hierarchical(slack=slack)


def test_sqrt_bins_of_words_are_not_capped_at_slack_four():
  """Counts of a text, from 5 on: with `slack` 4 the bins are those of the rule,
  with the default they are not."""
  given = Counts((5e6 / np.arange(1, 20_001) ** 1.4).astype(int) + 1)
  V = given.num_classes
  bins = lambda name, **how: Hierarchical(binning=name, **how).cluster_of(given)
  num = bins("sqrt").max() + 1
  free_V = sqrt(given, num, V)
  np.testing.assert_array_equal(bins("sqrt", slack=4.0), free_V)
  assert (bins("sqrt") != free_V).any()
  assert 2 < np.bincount(free_V).max() / (V / num) < 4
  mass_K = np.bincount(free_V, np.sqrt(given.unigram_V))
  rare_K = mass_K[np.bincount(free_V) > 50]
  assert len(rare_K) > 50
  np.testing.assert_allclose(rare_K, mass_K.sum() / num, rtol=0.25)


def test_unknown_binning_is_named():
  with pytest.raises(
    UserError,
    match=r"binning is 'zipf'; it must be one of equal, .*sqrt",
  ):
    Hierarchical(binning="zipf")
