"""Clusters that heads choose, and those that are given."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads.adaptive import Adaptive
from largevocab.labels import Counts, as_counts
from largevocab.ops.adaptive import cost_model
from largevocab.ops.adaptive.loss import capacities

COUNTS = as_counts(10**6 // np.arange(1, 20_001))


def test_given_cutoffs_override_the_plan(caplog):
  with caplog.at_level(logging.INFO, "largevocab"):
    got = Adaptive(cutoffs=(1000, 5000)).clusters(COUNTS, 64)
  assert got.sizes == (1000, 4000, 15_000)
  assert got.widths == (64, 16, 8)
  (message,) = caplog.messages
  assert "for batches of 2560 true classes" in message
  assert "short list: 1,000 classes" in message
  assert "with cutoffs=(1000, 5000): " in message
  assert "ms a step predicted" in message


@pytest.mark.parametrize("tail_bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("limit", [0.0, 2.0])
def test_planned_bytes_equal_those_of_the_parameters(tail_bias, tied, limit):
  head = Adaptive(tail_bias=tail_bias, tied=tied, max_mib=limit, num_clusters=4)
  state = jax.eval_shape(lambda key: head.init(key, COUNTS, 64), jax.random.key(0))
  tables = state.head, *state.tails, *state.downs
  num_bytes = head.cluster_plan(COUNTS, 64).num_bytes
  assert num_bytes == sum(4 * table.w_VD.size for table in tables)
  assert not limit or num_bytes <= limit * 2**20


def test_capacities_grow_with_the_true_classes_per_example():
  """Padding up to the largest number of true classes does not count."""
  counts = Counts(COUNTS.unigram_V, examples=COUNTS.unigram_V.sum() // 2)
  clusters = Adaptive(cutoffs=(1000, 5000)).clusters(counts, 64)
  plain = Adaptive(cutoffs=(1000, 5000)).clusters(COUNTS, 64)
  assert clusters.labels == pytest.approx(2.0)
  assert capacities(clusters, 100, 50) == capacities(plain, 200)
  assert capacities(clusters, 100, 1) == capacities(plain, 100)


def test_cost_model_of_another_device_is_warned_about(caplog, tmp_path):
  fitted = cost_model.load(Adaptive().cost_model)
  path = tmp_path / "gpu.json"
  dataclasses.replace(fitted, platform="gpu").save(path)
  Adaptive().clusters(COUNTS, 64)
  assert not [r for r in caplog.records if r.levelno == logging.WARNING]
  Adaptive(cost_model=str(path)).clusters(COUNTS, 64)
  Adaptive(dtype="bfloat16").clusters(COUNTS, 64)
  warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
  assert "gpu in float32, but this is cpu in float32" in warned[0]
  assert "cpu in float32, but this is cpu in bfloat16" in warned[1]


def test_fields_determine_the_clusters():
  free = Adaptive().cluster_plan(COUNTS, 64)
  assert 2 <= len(free.clusters.sizes) <= 5
  assert free.clusters.masses[0] >= 0.8 - 1e-9
  assert Adaptive(num_clusters=3).clusters(COUNTS, 64).widths == (64, 16, 8)
  assert Adaptive(num_clusters=1).clusters(COUNTS, 64).sizes == (20_000,)
  two = {"num_clusters": 2, "factor": 2, "min_head_mass": 0.5}
  limit = Adaptive(**two).cluster_plan(COUNTS, 64)
  tight = Adaptive(**two, max_mib=limit.num_bytes / 2**20 - 0.01)
  assert tight.cluster_plan(COUNTS, 64).num_bytes < limit.num_bytes
  longer = Adaptive(min_head_mass=0.9).clusters(COUNTS, 64)
  assert longer.sizes[0] > free.clusters.sizes[0]
  enough = Adaptive(min_head_mass=0.9, enough_classes=2000).clusters(COUNTS, 64)
  assert enough.masses[0] < 0.9
  assert 2000 <= enough.sizes[0] < 2064  # as few as may be, in steps of 64 rows
  small = Adaptive(batch_examples=8).cluster_plan(COUNTS, 64)
  assert sum(small.seconds) < sum(free.seconds)


def test_places_are_ordered_by_count_and_then_by_id():
  counts = as_counts([3, 5, 3, 9, 9])
  head = Adaptive(cutoffs=(3,))
  place_V, class_V = head.places(counts, head.clusters(counts, 8))
  assert class_V.tolist() == [1, 3, 4, 0, 2]
  assert place_V.tolist() == [3, 0, 4, 1, 2]


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"factor": 0}, r"^Adaptive\.factor is 0"),
    ({"align": 0}, r"^Adaptive\.align is 0"),
    ({"enough_classes": 0}, r"^Adaptive\.enough_classes is 0"),
    ({"method": "fast"}, r"^Adaptive\.method is 'fast'"),
    ({"batch_examples": 0}, r"^Adaptive\.batch_examples is 0"),
    ({"num_clusters": -1}, r"^Adaptive\.num_clusters is -1"),
    ({"max_mib": -1.0}, r"^Adaptive\.max_mib is -1"),
    ({"min_head_mass": 1.5}, r"^Adaptive\.min_head_mass is 1.5"),
    ({"cutoffs": (5, 5)}, r"^Adaptive\.cutoffs is \(5, 5\)"),
    ({"cutoffs": (0,)}, r"^Adaptive\.cutoffs is \(0,\)"),
    ({"cutoffs": (5.0,)}, r"^Adaptive\.cutoffs is \(5.0,\)"),
    ({"cutoffs": (5,), "num_clusters": 3}, "head.num_clusters is 3, but head.cutoffs"),
  ],
)
def test_invalid_fields_are_refused(fields, message):
  with pytest.raises(UserError, match=message):
    Adaptive(**fields)


@pytest.mark.parametrize(
  ("fields", "counts", "message"),
  [
    ({"cutoffs": (9,)}, [5, 3, 1], r"head\.cutoffs is \(9,\).*only V = 3 classes"),
    ({"num_clusters": 4}, [5, 3, 1], r"head\.num_clusters is 4.*only V = 3"),
    ({"max_mib": 2**-10}, [5, 3, 1], r"head\.max_mib: 0.000977 MiB are too few"),
    (
      {"max_mib": 2**-10, "cutoffs": (1,)},
      [5, 3, 1],
      r"head\.cutoffs = \(1,\) takes 0\.00",
    ),
    ({}, [0, 0, 0], "no class occurs"),
    ({"cost_model": "abacus"}, [5, 3, 1], "no cost model 'abacus'"),
  ],
)
def test_settings_impossible_for_the_classes_are_refused(fields, counts, message):
  with pytest.raises(UserError, match=message):
    Adaptive(**fields).clusters(as_counts(counts), 64)
