"""Compares the chosen cutoffs with all possible ones."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from largevocab.ops.adaptive.clusters import capacity_of, cut, widths
from largevocab.ops.adaptive.plan import Costs, plan_clusters, price

V, DIM, BATCH = 11, 12, 40
ZIPF_V = (1e6 / np.arange(1, 200_001)).astype(int)


def random_seconds(seed):
  """Any t(k, B, d) that ascends in k and in B."""
  rng = np.random.default_rng(seed)
  steps = rng.exponential(size=(V + DIM + 20, BATCH + 1)) * (
    rng.random((V + DIM + 20, BATCH + 1)) < 0.3
  )
  t_kB = 1 + steps.cumsum(0).cumsum(1)
  return lambda k, B, d: t_kB[k, B] * (1 + 0.1 * d)


def naive(counts_V, ends, seconds, factor):
  """Seconds and bytes of the clusters with these ends, by the formula."""
  sorted_V = sorted(counts_V, reverse=True)
  J = len(ends) - 1
  total = seconds(ends[0] + J, BATCH, DIM)
  floats = (ends[0] + J) * DIM
  for j, (start, end) in enumerate(itertools.pairwise(ends), start=1):
    d = max(DIM // factor**j, 1)
    mean = BATCH * sum(sorted_V[start:end]) / sum(sorted_V)
    num = int(capacity_of(mean, BATCH))
    reached = 1 - math.exp(-mean)
    total += reached * (seconds(d, num, DIM) + seconds(end - start, num, d))
    floats += d * DIM + (end - start) * d
  return total, 4 * floats


def enumerated(counts_V, num, seconds, factor, min_head_mass):
  """(seconds, bytes, ends) of all cuts whose short list has enough mass."""
  sorted_V = np.sort(counts_V)[::-1]
  mass_V = sorted_V.cumsum() / sorted_V.sum()
  least = min(min_head_mass, mass_V[V - num]) - 1e-9
  for cutoffs in itertools.combinations(range(1, V), num - 1):
    ends = (*cutoffs, V)
    if mass_V[ends[0] - 1] >= least:
      yield *naive(counts_V, ends, seconds, factor), ends


@pytest.mark.parametrize("min_head_mass", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("num", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_plan_is_the_best_of_all_within_the_budget(seed, num, min_head_mass):
  counts_V = np.random.default_rng(seed).geometric(0.02, V)
  seconds, factor = random_seconds(seed), 1 + seed
  ways = list(enumerated(counts_V, num, seconds, factor, min_head_mass))
  limits = {"factor": factor, "align": 1, "min_head_mass": min_head_mass}
  make = lambda **more: plan_clusters(
    counts_V, Costs(DIM, seconds, BATCH), num_clusters=num, **limits, **more
  )
  free = make()
  assert sum(free.seconds) == pytest.approx(min(ways)[0])
  naive_seconds, naive_bytes = naive(counts_V, (*free.cutoffs, V), seconds, factor)
  assert sum(free.seconds) == pytest.approx(naive_seconds)
  assert free.num_bytes == naive_bytes
  least = min(num_bytes for _, num_bytes, _ in ways)
  for budget in {least, (least + free.num_bytes) // 2, free.num_bytes}:
    got = make(max_bytes=budget)
    assert got.num_bytes <= budget
    fitting = [way for way in ways if way[1] <= budget]
    assert sum(got.seconds) == pytest.approx(min(fitting)[0])
  with pytest.raises(ValueError, match="which take at least"):
    make(max_bytes=least - 1)


def test_budgets_of_these_tests_matter():
  """The tests above need this: the fastest plan is not the smallest."""
  binding = 0
  for seed in range(3):
    counts_V = np.random.default_rng(seed).geometric(0.02, V)
    ways = list(enumerated(counts_V, 3, random_seconds(seed), 1 + seed, 0.0))
    binding += min(ways)[1] > min(num_bytes for _, num_bytes, _ in ways)
  assert binding >= 2


def test_number_of_clusters_is_the_fastest():
  counts_V = np.random.default_rng(0).geometric(0.02, V)
  costs = Costs(DIM, random_seconds(0), BATCH)
  free = plan_clusters(counts_V, costs)
  given = [plan_clusters(counts_V, costs, num_clusters=num) for num in (2, 3, 4, 5)]
  assert sum(free.seconds) == min(sum(plan.seconds) for plan in given)


@pytest.mark.parametrize("num_classes", [1, 2, 3])
def test_few_classes_are_all_in_clusters(num_classes):
  costs = Costs(4, lambda k, B, d: 1.0 + k * B * d, batch=9)
  got = plan_clusters(np.ones(num_classes), costs)
  assert len(got.clusters.sizes) == min(num_classes, 2) or num_classes == 3
  assert sum(got.clusters.sizes) == num_classes
  assert min(got.clusters.sizes) > 0


def test_grid_of_boundaries_is_fine_enough():
  """With many classes only some boundaries are tried; little is lost."""
  t = lambda k, B, d: 3e-5 + (3e-9 + 6e-11 * d) * k * B + 1e-9 * k * d
  costs = Costs(256, t, batch=2560)
  got = plan_clusters(ZIPF_V, costs, num_clusters=2)
  best = min(
    sum(price(cut(ZIPF_V, (end,), (256, 64)), costs).seconds)
    for end in np.arange(got.cutoffs[0] // 2, 2 * got.cutoffs[0], 500).tolist()
    if ZIPF_V[:end].sum() >= 0.8 * ZIPF_V.sum()
  )
  assert sum(got.seconds) <= 1.01 * best
  assert got.full_seconds == t(len(ZIPF_V), 2560, 256)


def test_short_list_keeps_its_mass():
  t = lambda k, B, d: 3e-5 + 6e-11 * d * k * B
  sizes = []
  for least in (0.0, 0.6, 0.9):
    got = plan_clusters(ZIPF_V, Costs(256, t, 2560), min_head_mass=least)
    assert got.clusters.masses[0] >= least - 1e-9
    sizes.append(got.clusters.sizes[0])
  assert sizes[0] < 1000 < sizes[1] < sizes[2]  # by time alone it is too short


def test_frequencies_not_ids_matter():
  t = lambda k, B, d: 3e-5 + 6e-11 * d * k * B
  shuffled_V = np.random.default_rng(0).permutation(ZIPF_V)
  costs = Costs(64, t, batch=99)
  first, second = (plan_clusters(c_V, costs) for c_V in (ZIPF_V, shuffled_V))
  assert first == second


def test_widths_are_never_0():
  assert min(widths(200, 5, 4)) == 1
  t = lambda k, B, d: 3e-5 + 6e-11 * d * k * B
  got = plan_clusters(ZIPF_V, Costs(200, t, 99), num_clusters=5, align=1)
  assert got.clusters.widths == (200, 50, 12, 3, 1)


def test_rows_with_a_bias_are_wider():
  costs = Costs(64, lambda k, B, d: 1.0 * k * B * d, batch=1000)
  clusters = cut(ZIPF_V, (1000,), (64, 8))
  plain = price(clusters, costs)
  biased = price(clusters, dataclasses.replace(costs, bias=True))
  assert biased.seconds[0] / plain.seconds[0] == 72 / 64
  assert biased.num_bytes - plain.num_bytes == 4 * 8 * 1001
  biased = price(clusters, dataclasses.replace(costs, tail_bias=True))
  assert biased.seconds[0] == plain.seconds[0]
  assert biased.num_bytes - plain.num_bytes == 4 * 8 * 199_000


def test_long_short_lists_divide_over_devices():
  costs = Costs(256, lambda k, B, d: 3e-5 + 6e-11 * d * k * B, 2560)
  for num in (2, 3, 5):
    got = plan_clusters(ZIPF_V, costs, num_clusters=num, min_head_mass=0.6)
    short, *tails, _ = got.clusters.sizes
    assert short >= 1024
    assert {size % 64 for size in (short + num - 1, *tails)} == {0}


def test_short_list_is_shared_by_several_labels():
  costs = Costs(64, lambda k, B, d: 1.0 * k * B * d, batch=1000)
  clusters = cut(ZIPF_V, (1000,), (64, 8))
  one = price(clusters, costs)
  two = price(clusters, dataclasses.replace(costs, labels=2.0))
  assert two.seconds[0] == one.seconds[0] / 2
  assert two.seconds[1] == one.seconds[1]
  assert two.full_seconds == one.full_seconds / 2


def test_impossible_plans_are_refused():
  costs = Costs(4, lambda k, B, d: 1.0 * k * B * d, batch=9)
  with pytest.raises(ValueError, match="no class occurs"):
    plan_clusters(np.zeros(9), costs)
  with pytest.raises(ValueError, match="4 clusters, but 3 classes"):
    plan_clusters(np.ones(3), costs, num_clusters=4)
