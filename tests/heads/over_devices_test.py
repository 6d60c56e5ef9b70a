"""Heads on up to eight devices: the same numbers up to rounding, and little is sent."""

import copy
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import (
  HEADS,
  Full,
  OverDevices,
  Sampled,
  class_mesh,
)
from largevocab.labels import single_targets
from largevocab.ops.shards import Blocks, check_devices
from largevocab.samplers import PPS

N, D, P, MOST = 24, 8, 2, 8  # N as it is divided by 8 devices
ONE = class_mesh(jax.devices()[:1])
HEADS_OVER_DEVICES = [
  "full",
  "sampled/pps",
  "full@bfloat16",  # of the rows
  "sampled/softmax",
  "sampled/quadratic_prior",
  "sampled/lsh_embedding",
  "sampled/ivf",
  "sampled/block",
  "sampled/top_k",
  "nce/unigram",
  "negative_sampling/unigram",
  "ranking/uniform",
  "blackout/unigram",
]


@pytest.fixture(scope="module")
def trained():
  """Results of each head by the number of devices, from processes with eight."""

  flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"

  def start(*args):
    return subprocess.Popen(
      [sys.executable, "-m", "tests.heads.on_devices", *args],
      env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  full, pps, *others = HEADS_OVER_DEVICES
  rows = []
  for process in [start("1,2,4,8", full, pps), start("1,8", *others)]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    rows += map(json.loads, out.splitlines())
  return {row["head"]: row["results"] for row in rows}


@pytest.mark.parametrize("path", HEADS_OVER_DEVICES)
def test_the_number_of_devices_changes_nothing(trained, path):
  one, *others = trained[path].values()
  # Of rows of bfloat16 a sum that is rounded otherwise may change a last digit.
  close = {"rtol": 1e-4, "atol": 1e-3 if "@" in path else 1e-5}
  assert others
  assert np.ptp(one["loss"]) > 1e-3  # it is trained
  for got in others:
    np.testing.assert_allclose(got["loss"], one["loss"], rtol=1e-5)
    np.testing.assert_allclose(got["norm"], one["norm"], **close)
    for name in one.keys() - {"loss", "norm", "top_k", "in_place", "sent"}:
      np.testing.assert_allclose(got[name], one[name], **close, err_msg=name)


@pytest.mark.parametrize("path", ["full", "sampled/pps", "nce/unigram"])
def test_the_best_classes_are_the_same(trained, path):
  """But for those with equal scores."""
  one, *others = trained[path].values()
  gaps = np.abs(np.diff(one["scores"], axis=1))
  is_tie = np.pad(gaps, ((0, 0), (0, 1)), constant_values=1) < 1e-5
  is_tie |= np.pad(gaps, ((0, 0), (1, 0)), constant_values=1) < 1e-5
  for got in others:
    assert ((np.array(got["top_k"]) == one["top_k"]) | is_tie).all()


@pytest.mark.parametrize("path", HEADS_OVER_DEVICES)
def test_a_step_sends_no_rows_and_keeps_tables_in_place(trained, path):
  for got in trained[path].values():
    assert got["in_place"]
    assert 0 < got["sent"] <= N * max(D, P * MOST)


def stepper(head):
  """A compiled step: the new state, and the loss and gradients."""

  @jax.jit
  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, 0.5, 1.0), out._replace(grads=None)

  return step


def test_more_blocks_are_the_same_exact_softmax():
  """Rows are at other places; the loss and its gradient are those of one device."""
  V, counts = 13, np.ones(13, int)
  rng = np.random.default_rng(0)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  y = single_targets(rng.integers(0, V, 5))
  blocks, head = Blocks(V, 4), Full(bias=False, init_scale=1.0)
  over = OverDevices(head, ONE, blocks.num)
  state = over.init(jax.random.key(0), counts, 4)
  place_V = blocks.row(jnp.arange(V))
  alone = head.init(jax.random.key(0), counts, 4)
  w_VD = state.parts.table.w_VD[place_V]
  alone = alone._replace(table=head.optimizer.init(w_VD))
  on_blocks, on_one = stepper(over), stepper(head)
  for step in range(2):
    state, got = on_blocks(state, h_ND, y, jax.random.key(step))
    alone, want = on_one(alone, h_ND, y, jax.random.key(step))
    np.testing.assert_allclose(got.loss, want.loss, rtol=1e-6)
    np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-5)
  got = jax.jit(over.evaluate)(state, h_ND, y)["nll"]
  want = jax.jit(head.evaluate)(alone, h_ND, y)["nll"]
  np.testing.assert_allclose(got, want, rtol=1e-5)
  rows_RD = jax.jit(over.class_rows)(state, jnp.arange(V))
  np.testing.assert_allclose(rows_RD, alone.table.w_VD, rtol=1e-5, atol=1e-6)
  assert not np.allclose(state.parts.table.w_VD[:V], rows_RD)  # they are elsewhere


@pytest.mark.parametrize("method", ["reference", "examples", "tiles", "classes"])
def test_unused_rows_are_no_classes_for_any_method(method):
  V = 13  # four blocks of four rows
  over = OverDevices(Full(method=method, init_scale=0.0), ONE, 4)
  state = over.init(jax.random.key(0), np.ones(V, int), 4)
  y = single_targets([0, 12, 5])
  _, out = stepper(over)(state, jnp.ones((3, 4)), y, jax.random.key(0))
  np.testing.assert_allclose(out.loss, np.log(V), rtol=1e-5)


@pytest.mark.parametrize(
  ("loss", "fields"),
  [
    ("sampled", {}),
    ("sampled", {"loss": {"correct_positive": True}}),
    ("sampled", {"loss": {"corrected": False}}),
    ("sampled", {"exact_batch": True}),
    ("nce", {"loss": {"normalizer": "global"}}),
    ("nce", {"loss": {"normalizer": "context"}}),
    ("negative_sampling", {"loss": {"calibration": 1.0, "add_log_q": True}}),
    ("ranking", {}),
    ("blackout", {}),
    ("upper_bound", {}),
  ],
)
def test_every_loss_is_that_of_one_device(loss, fields):
  """If all classes are drawn, there is no chance, and blocks change nothing."""
  V, blocks, rng = 13, Blocks(13, 4), np.random.default_rng(0)
  counts = np.arange(1, V + 1)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  y = single_targets(rng.integers(0, V, 5))
  y = y._replace(context_N=jnp.asarray(rng.integers(0, V, 5)))
  make = lambda num: config.head(
    f"{loss}/pps", num_samples=num, init_scale=1.0, **copy.deepcopy(fields)
  )
  over, alone = OverDevices(make(16), ONE, 4), make(16)
  state = over.init(jax.random.key(0), counts, 4)
  w_VD = state.parts.table.w_VD[blocks.row(jnp.arange(V))]
  one = alone.init(jax.random.key(0), counts, 4)
  one = one._replace(table=alone.optimizer.init(w_VD))
  on_blocks, on_one = stepper(over), stepper(alone)
  for step in range(2):
    state, got = on_blocks(state, h_ND, y, jax.random.key(step))
    one, want = on_one(one, h_ND, y, jax.random.key(step))
    np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
    np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-4)
  found = jax.jit(over.evaluate)(state, h_ND, y)
  for name, want_N in jax.jit(alone.evaluate)(one, h_ND, y).items():
    np.testing.assert_allclose(found[name], want_N, rtol=1e-4, atol=1e-5, err_msg=name)


def test_more_blocks_than_classes_are_refused():
  with pytest.raises(UserError, match=r"mesh\.blocks is 8, and there are 5 classes"):
    OverDevices(Full(), ONE, 8).init(jax.random.key(0), np.ones(5, int), 4)


def test_statistics_of_unequal_sizes_are_named():
  head = Sampled(sampler=PPS(smoothing=0.0), num_samples=8)
  counts = np.array([5, 3, 2, 1, 1, 0, 4, 0])  # two blocks have one class to draw
  with pytest.raises(UserError, match="other sizes in some blocks"):
    OverDevices(head, ONE, 4).init(jax.random.key(0), counts, 4)


def test_an_invalid_label_is_no_loss():
  over = OverDevices(Full(), ONE, 2)
  state = over.init(jax.random.key(0), np.ones(6, int), 4)
  h_ND, y = jnp.ones((2, 4)), single_targets([1, 6])
  assert np.isnan(stepper(over)(state, h_ND, y, jax.random.key(0))[1].loss)


def test_initial_rows_depend_on_the_block_only():
  def rows(num_blocks):
    over = OverDevices(Full(), ONE, num_blocks)
    return over.init(jax.random.key(0), np.ones(8, int), 4).parts.table.w_VD

  two, four = rows(2), rows(4)
  np.testing.assert_array_equal(four[:2], two[:2])  # of block 0
  assert not np.allclose(two[:2], two[4:6])


@pytest.mark.parametrize(
  ("blocks", "devices", "remedy"),
  [
    (8, 3, r"mesh\.blocks to 6 or 9, or mesh\.num to 2 or 4"),
    (1, 2, r"mesh\.blocks to 2, or mesh\.num to 1"),
  ],
)
def test_devices_that_do_not_divide_the_blocks_are_named(blocks, devices, remedy):
  with pytest.raises(UserError, match=remedy):
    check_devices(blocks, devices)


@pytest.mark.parametrize("name", sorted(HEADS.keys() - {"full", "sampled"}))
def test_heads_that_cannot_be_divided_yet_say_so(name):
  with pytest.raises(UserError, match=r"cannot be divided .* mesh\.blocks to 1"):
    OverDevices(HEADS[name](), ONE, 2)


def test_exact_sets_by_name_are_refused():
  with pytest.raises(UserError, match=r"exact_frequent .* mesh\.blocks to 1"):
    OverDevices(Sampled(exact_frequent=2), ONE, 2)
