"""Batches by length: all examples, no truncation, and few shapes."""

import dataclasses

import numpy as np
import pytest

from largevocab.data.classes import Classes
from largevocab.data.labels.bucketed import (
  BucketedExamples,
  HeldOutBuckets,
  buckets_of,
  capacities,
)
from largevocab.data.labels.documents import Documents, pointers
from largevocab.data.labels.multi_label import LabelledDocuments, MultiLabel
from largevocab.errors import UserError

NUM_FEATURES, NUM_CLASSES = 300, 90


def examples(number, seed=0, max_labels=40, unit_norm=False):
  """Random documents of very different lengths, some without labels."""
  rng = np.random.default_rng(seed)
  features = np.minimum(rng.geometric(0.04, number), NUM_FEATURES)
  labels = np.minimum(rng.geometric(0.15, number) - 1, max_labels)
  draw = lambda lengths, size: np.concatenate(
    [np.zeros(0, int), *(rng.permutation(size)[:length] for length in lengths)]
  ).astype(np.int32)
  values = rng.uniform(0.5, 2, features.sum()).astype(np.float32)
  documents = Documents(
    pointers(features), draw(features, NUM_FEATURES), values, pointers(labels),
    draw(labels, NUM_CLASSES),
  )  # fmt: skip
  return LabelledDocuments(documents, NUM_FEATURES, NUM_CLASSES, unit_norm)


def made_of(source, batch_size, shares):
  """The arguments of batches."""
  return source, batch_size, capacities(source.lengths, shares)


def check_whole(batch, source):
  """Checks that each example of a batch has all features and labels, and padding."""
  documents = source.documents
  for row, at in enumerate(batch.y.context_N):
    of = slice(documents.feature_ptr[at], documents.feature_ptr[at + 1])
    length = of.stop - of.start
    ids, values = batch.x.ids_BF[row], batch.x.values_BF[row]
    np.testing.assert_array_equal(ids[:length], documents.feature_ids[of])
    np.testing.assert_array_equal(values[:length], documents.values[of])
    assert (ids[length:] == NUM_FEATURES).all()
    assert not values[length:].any()
    of = slice(documents.label_ptr[at], documents.label_ptr[at + 1])
    length = of.stop - of.start
    ids, weights = batch.y.ids_NP[row], batch.y.w_NP[row]
    np.testing.assert_array_equal(ids[:length], documents.label_ids[of])
    assert (ids[length:] == NUM_CLASSES).all()
    assert not weights[length:].any()
    if weights.any():
      np.testing.assert_allclose(weights[:length], 1 / length)


def shape(batch):
  return batch.x.ids_BF.shape, batch.y.ids_NP.shape


@pytest.mark.parametrize("number", [20, 203, 1000])
@pytest.mark.parametrize("batch_size", [1, 7, 20])
@pytest.mark.parametrize("shares", [(), (0.5, 0.9)])
def test_epoch_has_every_example_at_most_once(number, batch_size, shares):
  source = examples(number)
  batches = BucketedExamples(*made_of(source, batch_size, shares), seed=3)
  steps = batches.steps_per_epoch
  assert steps == number // batch_size
  shapes = []
  for epoch in range(2):
    read = [batches.batch(epoch * steps + t) for t in range(steps)]
    seen = np.concatenate([batch.y.context_N for batch in read])
    assert len(set(seen)) == len(seen) == steps * batch_size
    for batch in read[:20]:
      check_whole(batch, source)
    shapes.append(sorted(map(shape, read)))
  assert shapes[0] == shapes[1]  # the same number of each in every epoch
  assert len(set(shapes[0])) <= len(shares) + 1


def test_omitted_examples_vary_and_do_not_depend_on_length():
  source = examples(203)
  batches = BucketedExamples(*made_of(source, 20, (0.5, 0.9)), seed=1)
  missed = [
    {*range(203)} - {*np.concatenate(batches.plan(epoch).examples).tolist()}
    for epoch in range(300)
  ]
  assert {len(part) for part in missed} == {3}
  of_N = buckets_of(source.lengths, batches.capacities)
  ever = set().union(*missed)
  # Short examples, too, can move to longer buckets and be left over.
  assert {*of_N[list(ever)].tolist()} == {0, 1, 2}
  longest = set(np.argsort(source.lengths.sum(axis=1))[-10:].tolist())
  assert all(len(longest - part) >= 7 for part in missed)


def test_order_depends_on_seed_and_epoch_and_mixes_the_buckets():
  source = examples(1000)
  made = made_of(source, 20, (0.5, 0.9))
  plan = lambda seed, epoch: BucketedExamples(*made, seed=seed).plan(epoch)
  flat = lambda seed, epoch: np.concatenate(plan(seed, epoch).examples)
  np.testing.assert_array_equal(flat(0, 4), flat(0, 4))
  assert not np.array_equal(flat(0, 4), flat(0, 5))
  assert not np.array_equal(flat(0, 4), flat(1, 4))
  buckets = plan(0, 0).bucket_S
  assert set(buckets) == {0, 1, 2}
  assert (np.diff(buckets) < 0).sum() > 5  # buckets are interleaved


def test_batches_are_a_function_of_the_step():
  source = examples(100)
  forward = BucketedExamples(*made_of(source, 9, (0.5,)), seed=2)
  read = [forward.batch(step).y.context_N for step in range(30)]
  back = BucketedExamples(*made_of(source, 9, (0.5,)), seed=2)
  for step in reversed(range(30)):
    np.testing.assert_array_equal(back.batch(np.int64(step)).y.context_N, read[step])


@pytest.mark.parametrize("number", [1, 6, 20, 203])
@pytest.mark.parametrize("batch_size", [1, 7, 20])
def test_held_out_examples_are_read_once(number, batch_size):
  source = examples(number)
  batches = HeldOutBuckets(*made_of(source, batch_size, (0.5, 0.9)))
  read = list(batches)
  assert len(read) == len(batches) == -(-number // batch_size)
  weight = np.zeros(number)
  for batch in read:
    assert len(batch.y.context_N) == batch_size
    check_whole(batch, source)
    np.add.at(weight, batch.y.context_N, batch.y.w_NP.sum(axis=1))
  np.testing.assert_allclose(weight, source.lengths[:, 1] > 0, rtol=1e-6)
  assert len(set(map(shape, read))) <= 3
  again = [batch.y.context_N for batch in batches]
  np.testing.assert_array_equal(again, [batch.y.context_N for batch in read])


def test_capacities_are_rounded_nested_and_sufficient():
  lengths = examples(500).lengths
  limits = capacities(lengths, (0.5, 0.9))
  assert (limits % np.array([8, 4]) == 0).all()
  assert (np.diff(limits, axis=0) >= 0).all()
  assert (limits[-1] >= lengths.max(axis=0)).all()
  for share, limit in zip((0.5, 0.9), limits, strict=False):
    assert ((lengths <= limit).mean(axis=0) >= share).all()
  of_N = buckets_of(lengths, limits)
  assert (lengths <= limits[of_N]).all()
  below = of_N > 0
  # Each example has the smallest limit that fits.
  assert (lengths[below] > limits[of_N[below] - 1]).any(axis=1).all()


@pytest.mark.parametrize(
  ("lengths", "expected"),
  [
    ([[8, 1], [3, 1]], [[8, 1]]),
    ([[9, 1], [3, 0]], [[8, 1], [16, 1]]),
    ([[8, 1], [3, 2]], [[8, 4]]),
    ([[0, 0]], [[8, 1]]),
  ],
)
def test_similar_lengths_give_few_capacities(lengths, expected):
  assert capacities(np.array(lengths), (0.5,)).tolist() == expected


@pytest.mark.parametrize("size", [1e25, 1e-25])
def test_large_and_small_values_have_unit_norm(size):
  """Their squares are not numbers of float32."""
  plain, unit = examples(9), examples(9, unit_norm=True)
  scaled = plain.documents._replace(values=np.float32(size) * plain.documents.values)
  at_B, weight_B = np.arange(9), np.ones(9)
  batch = dataclasses.replace(unit, documents=scaled).batch(at_B, weight_B, 99, 9)
  want = unit.batch(at_B, weight_B, 99, 9)
  np.testing.assert_allclose(batch.x.values_BF, want.x.values_BF, rtol=1e-6)


def test_values_can_have_unit_norm():
  batch = next(iter(HeldOutBuckets(*made_of(examples(50, unit_norm=True), 50, ()))))
  np.testing.assert_allclose(np.linalg.norm(batch.x.values_BF, axis=1), 1, rtol=1e-6)


def test_invalid_batch_sizes_are_refused():
  message = "3 training examples, but a batch takes 4: reduce"
  with pytest.raises(UserError, match=message):
    BucketedExamples(*made_of(examples(3), 4, ()))
  with pytest.raises(UserError, match=r"^HeldOutBuckets\.batch_size is 0; it must be"):
    HeldOutBuckets(*made_of(examples(3), 0, ()))


def test_all_splits_have_the_same_shapes():
  """Even if a held-out document is the longest of all."""
  splits = [examples(200, seed, max_labels=20 + seed).documents for seed in range(3)]
  counts_V = np.ones(NUM_CLASSES, int)
  classes = Classes([str(i) for i in range(NUM_CLASSES)], counts_V)
  data = MultiLabel(classes, NUM_FEATURES, *splits)
  training = data.training_batches(8, 1)
  shapes = {shape(training.batch(step)) for step in range(training.steps_per_epoch)}
  for split in ("valid", "test"):
    batches = data.evaluation_batches(split, 8, 1)
    assert {shape(batch) for batch in batches} <= shapes
  assert len(shapes) == 3
