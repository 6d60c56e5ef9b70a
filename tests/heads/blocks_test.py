"""Heads with their classes in several blocks, on one device: the exact loss and
gradients do not change, and estimates stay unbiased."""

import copy
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import (
  Full,
  Sampled,
  ShardedHead,
  class_mesh,
)
from largevocab.labels import Targets, single_targets
from largevocab.ops.class_blocks import Blocks
from largevocab.samplers import PPS, Softmax, Unigram
from tests.heads.on_devices import stepper
from tests.heads.same_steps import assert_same_steps
from tests.long import others_long

ONE = class_mesh(jax.devices()[:1])


def test_mesh_with_other_axes_is_refused():
  for axes in ("data", "model"), ("data",):
    devices = np.array(jax.devices()[:1]).reshape([1] * len(axes))
    with pytest.raises(UserError, match=r"the mesh has the axes .* pass class_mesh"):
      ShardedHead(Full(), jax.sharding.Mesh(devices, axes), 1)


long = functools.partial(pytest.param, marks=pytest.mark.long)


def test_exact_softmax_is_the_same_in_more_blocks():
  """Rows are at other places, but loss and gradient equal those of one device."""
  V, counts = 13, np.ones(13, int)
  rng = np.random.default_rng(0)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  y = single_targets(rng.integers(0, V, 5))
  blocks, head = Blocks(V, 4), Full(bias=False, init_scale=1.0)
  over = ShardedHead(head, ONE, blocks.num)
  state = over.init(jax.random.key(0), counts, 4)
  place_V = blocks.row(jnp.arange(V))
  alone = head.init(jax.random.key(0), counts, 4)
  w_VD = state.parts.table.w_VD[place_V]
  alone = alone._replace(table=head.optimizer.init(w_VD))
  state, alone = assert_same_steps(over, state, head, alone, (h_ND, y), 2, rtol=1e-5)
  got = jax.jit(over.evaluate)(state, h_ND, y)["nll"]
  want = jax.jit(head.evaluate)(alone, h_ND, y)["nll"]
  np.testing.assert_allclose(got, want, rtol=1e-5)
  rows_RD = jax.jit(over.class_rows)(state, jnp.arange(V))
  np.testing.assert_allclose(rows_RD, alone.table.w_VD, rtol=1e-5, atol=1e-6)
  assert not np.allclose(state.parts.table.w_VD[:V], rows_RD)  # they are elsewhere


@pytest.mark.parametrize("sampler", others_long([PPS(), Unigram()], [PPS()]))
def test_block_may_have_only_unseen_classes(sampler):
  over = ShardedHead(Sampled(sampler=sampler, num_samples=4), ONE, 4)
  counts = [50, 20, 10, 0, 5, 3, 1, 0]  # the fourth block has the classes 3 and 7
  state = over.init(jax.random.key(0), counts, 4)
  step = jax.jit(over.backward)(
    state, jnp.ones((2, 4)), single_targets([0, 3]), jax.random.key(1)
  )
  assert np.isfinite(step.loss)
  strict = dataclasses.replace(sampler, smoothing=0.0)
  with pytest.raises(
    UserError, match=r"of a block was counted: set head\.sampler\.smoo"
  ):
    ShardedHead(Sampled(sampler=strict, num_samples=4), ONE, 4).init(
      jax.random.key(0), counts, 4
    )
  with pytest.raises(UserError, match="counts of all 8 classes are zero"):
    over.init(jax.random.key(0), [0] * 8, 4)


@pytest.mark.parametrize("method", ["reference", "examples", "tiles", "classes"])
def test_unused_rows_are_not_classes_in_any_method(method):
  V = 13  # four blocks of four rows
  over = ShardedHead(Full(method=method, init_scale=0.0), ONE, 4)
  state = over.init(jax.random.key(0), np.ones(V, int), 4)
  y = single_targets([0, 12, 5])
  _, out = stepper(over)(state, jnp.ones((3, 4)), y, jax.random.key(0))
  np.testing.assert_allclose(out.loss, np.log(V), rtol=1e-5)


@pytest.mark.parametrize(
  ("loss", "fields"),
  [
    ("sampled", {"exact_frequent": 3, "exact_ids": [0, 5, 12]}),
    ("nce", {"loss": {"normalizer": "global"}}),
    long("sampled", {}),
    long("sampled", {"loss": {"correct_positive": True}}),
    long("sampled", {"loss": {"corrected": False}}),
    long("sampled", {"exact_batch": True}),
    long("sampled", {"exact_ids": [1], "loss": {"corrected": False}}),
    long("nce", {"loss": {"normalizer": "context"}}),
    long("negative_sampling", {"loss": {"calibration": 1.0, "add_log_q": True}}),
    long("ranking", {}),
    long("blackout", {}),
    long("upper_bound", {}),
    long("importance", {}),
  ],
)
def test_every_loss_equals_that_of_one_device(loss, fields):
  """All classes are drawn, so nothing is random, and blocks change nothing."""
  V, blocks, rng = 13, Blocks(13, 4), np.random.default_rng(0)
  counts = np.arange(1, V + 1)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  y = single_targets(rng.integers(0, V, 5))
  y = y._replace(context_N=jnp.asarray(rng.integers(0, V, 5)))
  make = lambda num: config.head(
    f"{loss}/pps", num_samples=num, init_scale=1.0, **copy.deepcopy(fields)
  )
  over, alone = ShardedHead(make(16), ONE, 4), make(16)
  state = over.init(jax.random.key(0), counts, 4)
  w_VD = state.parts.table.w_VD[blocks.row(jnp.arange(V))]
  one = alone.init(jax.random.key(0), counts, 4)
  one = one._replace(table=alone.optimizer.init(w_VD))
  state, one = assert_same_steps(over, state, alone, one, (h_ND, y), 2)
  found = jax.jit(over.evaluate)(state, h_ND, y)
  for name, want_N in jax.jit(alone.evaluate)(one, h_ND, y).items():
    np.testing.assert_allclose(found[name], want_N, rtol=1e-4, atol=1e-5, err_msg=name)


def test_more_blocks_than_classes_are_refused():
  message = r"mesh\.blocks is 8, but there are only 5 classes"
  with pytest.raises(UserError, match=message):
    ShardedHead(Full(), ONE, 8).init(jax.random.key(0), np.ones(5, int), 4)


class OfSeen(PPS):
  """A sampler whose statistics have one entry per class that was seen."""

  def init(self, counts, w_VD, m):
    seen = jnp.ones(np.count_nonzero(counts.unigram_V), bool)
    return super().init(counts, w_VD, m)._replace(mask_M=seen)


@pytest.mark.parametrize(
  ("sampler", "message"),
  [
    (OfSeen(), "differ in size between blocks"),
    (PPS(smoothing=0.0), "only 1 that were counted, .* head.num_samples to 4 or less"),
  ],
)
def test_statistics_of_unequal_sizes_are_refused(sampler, message):
  head = Sampled(sampler=sampler, num_samples=8)
  counts = np.array([5, 3, 2, 1, 1, 0, 4, 0])  # two blocks have one class to draw
  with pytest.raises(UserError, match=message):
    ShardedHead(head, ONE, 4).init(jax.random.key(0), counts, 4)


def test_invalid_label_makes_the_loss_nan():
  over = ShardedHead(Full(), ONE, 2)
  state = over.init(jax.random.key(0), np.ones(6, int), 4)
  h_ND, y = jnp.ones((2, 4)), single_targets([1, 6])
  assert np.isnan(stepper(over)(state, h_ND, y, jax.random.key(0))[1].loss)


def test_initial_rows_depend_on_the_block_only():
  def rows(num_blocks):
    over = ShardedHead(Full(), ONE, num_blocks)
    return over.init(jax.random.key(0), np.ones(8, int), 4).parts.table.w_VD

  two, four = rows(2), rows(4)
  np.testing.assert_array_equal(four[:2], two[:2])  # of block 0
  assert not np.allclose(two[:2], two[4:6])


def test_exact_classes_count_once_whatever_is_drawn():
  """Equals the exact softmax with few draws, and blocks of different sizes."""
  V, counts = 13, np.arange(1, 14)
  h_ND, y = np.ones((3, 4), np.float32), single_targets([0, 12, 5])
  others = [c for c in range(V) if c not in (5, 12, 11)]  # all but the most frequent
  head = Sampled(exact_frequent=3, exact_ids=(5, *others), num_samples=4)
  head = dataclasses.replace(head, init_scale=1.0, bias=False)
  over = ShardedHead(head, ONE, 4)
  state = over.init(jax.random.key(0), counts, 4)
  exact_BT = np.asarray(state.parts.exact_T).reshape(4, -1)
  assert exact_BT.shape == (4, 4)
  assert sorted(exact_BT.ravel()) == [*range(V), V, V, V]
  assert (exact_BT % 4 == np.arange(4)[:, None])[exact_BT < V].all()
  _, out = stepper(over)(state, h_ND, y, jax.random.key(0))
  nll_N = jax.jit(over.evaluate)(state, h_ND, y)["nll"]
  np.testing.assert_allclose(out.loss, jnp.mean(nll_N), rtol=1e-6)
  few = dataclasses.replace(head, exact_frequent=0, exact_ids=(5,))
  state = ShardedHead(few, ONE, 4).init(jax.random.key(0), counts, 4)
  _, sampled = stepper(ShardedHead(few, ONE, 4))(state, h_ND, y, jax.random.key(0))
  assert abs(sampled.loss - out.loss) > 1e-3


def test_nonexistent_exact_classes_are_named():
  over = ShardedHead(Sampled(exact_ids=(13,), num_samples=4), ONE, 4)
  message = r"exact_ids contains 13, but there are 13 classes"
  with pytest.raises(UserError, match=message):
    over.init(jax.random.key(0), np.ones(13, int), 4)


def ratio_of_z(head, V, times):
  """Z~ / Z of one example, for several draws in four blocks, f64[times]."""
  over = ShardedHead(head, ONE, 4)
  state = over.init(jax.random.key(0), np.arange(1, V + 1), 4)
  h_ND = jnp.asarray(np.random.default_rng(0).standard_normal((1, 4)), jnp.float32)
  y = Targets(jnp.array([[5, 8, 5]]), jnp.array([[0.5, 0.25, 0.25]]), jnp.array([3]))
  nll = jax.jit(over.evaluate)(state, h_ND, y)["nll"][0]
  loss = lambda key: over.backward(state, h_ND, y, key).loss
  losses = jax.jit(lambda keys: jax.lax.map(loss, keys))(
    jax.random.split(jax.random.key(1), times)
  )
  return np.exp(np.float64(losses - nll))


EXACT = {"exact_ids": (0, 2, 4)}


@pytest.mark.parametrize(
  ("fields", "m"),  # with 48 enough for weights given the exact set
  others_long(itertools.product([{}, EXACT], [16, 48]), [({}, 16), (EXACT, 48)]),
)
def test_sampler_softmax_has_the_exact_loss_in_blocks(fields, m):
  head = Sampled(sampler=Softmax(), num_samples=m, init_scale=1.0, bias=False, **fields)
  np.testing.assert_allclose(ratio_of_z(head, 12, 20), 1, rtol=1e-5)


@pytest.mark.parametrize(
  ("sampler", "m"),  # with 16 weights are given the exact set
  others_long(
    itertools.product([Softmax(), Unigram(per_example=True)], [8, 16]),
    [(Softmax(), 16), (Unigram(per_example=True), 8)],
  ),
  ids=str,
)
def test_estimates_in_blocks_are_unbiased(sampler, m):
  """Includes blocks with an unused row, which may be drawn."""
  head = Sampled(sampler=sampler, num_samples=m, init_scale=1.0, exact_ids=(2,))
  ratio_S = ratio_of_z(head, 13, 20_000)
  error = np.std(ratio_S) / np.sqrt(len(ratio_S))
  assert 0 < error < 0.0025  # an unused row that counts as a class is 1/20 of Z
  assert abs(np.mean(ratio_S) - 1) < 5 * error
