"""Clusters that heads choose for themselves, and those that they are given."""

import logging

import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads.partitioned import Partitioned
from largevocab.labels import as_counts

COUNTS = as_counts(10**6 // np.arange(1, 20_001))


def test_given_cutoffs_win(caplog):
  with caplog.at_level(logging.INFO, "largevocab"):
    got = Partitioned(cutoffs=(1000, 5000)).clusters(COUNTS, 64)
  assert got.sizes == (1000, 4000, 15_000)
  assert got.widths == (64, 16, 8)
  (message,) = caplog.messages
  assert "short list: 1,000 classes" in message
  assert "ms a step predicted" in message


def test_chosen_by_what_the_fields_say():
  free = Partitioned().cluster_plan(COUNTS, 64)
  assert 2 <= len(free.clusters.sizes) <= 5
  assert free.clusters.masses[0] >= 0.8 - 1e-9
  assert Partitioned(num_clusters=3).clusters(COUNTS, 64).widths == (64, 16, 8)
  assert Partitioned(num_clusters=1).clusters(COUNTS, 64).sizes == (20_000,)
  two = {"num_clusters": 2, "factor": 2, "min_head_mass": 0.5}
  limit = Partitioned(**two).cluster_plan(COUNTS, 64)
  tight = Partitioned(**two, max_mib=limit.num_bytes / 2**20 - 0.01)
  assert tight.cluster_plan(COUNTS, 64).num_bytes < limit.num_bytes
  longer = Partitioned(min_head_mass=0.9).clusters(COUNTS, 64)
  assert longer.sizes[0] > free.clusters.sizes[0]
  small = Partitioned(batch_examples=8).cluster_plan(COUNTS, 64)
  assert sum(small.seconds) < sum(free.seconds)


def test_places_by_count_and_then_by_id():
  counts = as_counts([3, 5, 3, 9, 9])
  head = Partitioned(cutoffs=(3,))
  place_V, class_V = head.places(counts, head.clusters(counts, 8))
  assert class_V.tolist() == [1, 3, 4, 0, 2]
  assert place_V.tolist() == [3, 0, 4, 1, 2]


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"factor": 0}, r"head\.factor is 0"),
    ({"align": 0}, r"head\.align is 0"),
    ({"batch_examples": 0}, r"head\.batch_examples is 0"),
    ({"num_clusters": -1}, r"head\.num_clusters is -1"),
    ({"max_mib": -1.0}, r"head\.max_mib is -1"),
    ({"min_head_mass": 1.5}, r"head\.min_head_mass is 1.5"),
    ({"cutoffs": (5, 5)}, r"head\.cutoffs is \(5, 5\)"),
    ({"cutoffs": (0,)}, r"head\.cutoffs is \(0,\)"),
    ({"cutoffs": (5.0,)}, r"head\.cutoffs is \(5.0,\)"),
    ({"cutoffs": (5,), "num_clusters": 3}, "head.num_clusters is 3, but head.cutoffs"),
  ],
)
def test_wrong_fields(fields, message):
  with pytest.raises(UserError, match=message):
    Partitioned(**fields)


@pytest.mark.parametrize(
  ("fields", "counts", "message"),
  [
    ({"cutoffs": (9,)}, [5, 3, 1], r"head\.cutoffs is \(9,\).*only V = 3 classes"),
    ({"num_clusters": 4}, [5, 3, 1], r"head\.num_clusters is 4.*only V = 3"),
    ({"max_mib": 2**-10}, [5, 3, 1], r"head\.max_mib: 0.000977 MiB are too few"),
    ({}, [0, 0, 0], "no class occurs"),
    ({"cost_model": "abacus"}, [5, 3, 1], "no cost model 'abacus'"),
  ],
)
def test_what_cannot_be_with_these_classes(fields, counts, message):
  with pytest.raises(UserError, match=message):
    Partitioned(**fields).clusters(as_counts(counts), 64)
