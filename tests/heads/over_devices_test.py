"""Heads on up to eight devices: the same numbers up to rounding, and little is sent."""

import copy
import dataclasses
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
  Adaptive,
  DSoftmax,
  Full,
  Hierarchical,
  Huffman,
  OverDevices,
  Sampled,
  Spherical,
  class_mesh,
)
from largevocab.heads.adaptive import AdaptiveState
from largevocab.labels import Targets, single_targets
from largevocab.ops.class_blocks import Blocks, check_devices
from largevocab.ops.factored.table import factor, implied
from largevocab.samplers import PPS, Softmax, Unigram
from tests.heads.on_devices import ADDED, READ

N, D, P, MOST = 24, 8, 2, 8  # N as it is divided by 8 devices
ONE = class_mesh(jax.devices()[:1])
PROPERTIES = {"in_place", "equal", "sent"}
HEADS_OVER_DEVICES = [
  "full",
  "sampled/pps",
  "adaptive",
  "d_softmax",
  "full@bfloat16",  # of the rows
  "adaptive@bfloat16",
  "sampled/softmax",
  "sampled/quadratic_prior",
  "sampled/lsh_embedding",
  "sampled/lsh_label",
  "sampled/ivf",
  "sampled/block",
  "sampled/top_k",
  "sampled/bernoulli",
  "sampled/bigram",
  'sampled/pps {"exact_frequent": 5, "exact_ids": [200, 8]}',
  "nce/unigram",
  "negative_sampling/unigram",
  "ranking/uniform",
  "blackout/unigram",
  "spherical",
  "huffman",
  "hierarchical",
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
    for name in one.keys() - {"loss", "norm", "rows", "top_k", *PROPERTIES}:
      np.testing.assert_allclose(got[name], one[name], **close, err_msg=name)
    for got_rows, rows in zip(got["rows"], one["rows"], strict=True):
      np.testing.assert_allclose(got_rows, rows, **close)


@pytest.mark.parametrize("path", READ)
def test_the_best_classes_are_the_same(trained, path):
  """But for those with equal scores."""
  one, *others = trained[path].values()
  gaps = np.abs(np.diff(one["scores"], axis=1))
  is_tie = np.pad(gaps, ((0, 0), (0, 1)), constant_values=1) < 1e-5
  is_tie |= np.pad(gaps, ((0, 0), (1, 0)), constant_values=1) < 1e-5
  for got in others:
    assert ((np.array(got["top_k"]) == one["top_k"]) | is_tie).all()


@pytest.mark.parametrize("path", ADDED)
def test_gradients_of_parts_add_up_to_those_of_the_batch(trained, path):
  for got in trained[path].values():
    np.testing.assert_allclose(got["by parts"], got["at once"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got["sum"], got["scaled sum"], rtol=1e-6, atol=1e-7)
    assert not np.allclose(got["part"], got["at once"], atol=1e-4)


@pytest.mark.parametrize("path", HEADS_OVER_DEVICES)
def test_a_step_sends_no_rows_and_keeps_tables_in_place(trained, path):
  for got in trained[path].values():
    rows = P * 2 * D if path == "sampled/lsh_label" else 0  # of the true classes
    assert got["in_place"]
    assert got["equal"]  # what all devices have
    assert 0 < got["sent"] <= N * max(D, P * MOST, rows)


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


def test_more_blocks_are_the_same_factored_table():
  """With unused rows, which are in no sum, and a true class twice."""
  V, blocks, rng = 13, Blocks(13, 4), np.random.default_rng(0)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  ids_NP = np.array([[1, 5], [3, 3], [7, V], [12, 0], [5, 2]], np.int32)
  y = Targets(ids_NP, (ids_NP < V).astype(np.float32), np.zeros(5, np.int32))
  head = Spherical(init_scale=1.0, limit=1.1)
  over = OverDevices(head, ONE, blocks.num)
  state = over.init(jax.random.key(0), np.ones(V, int), 4)
  one = factor(state.parts.v_VD[blocks.row(jnp.arange(V))])
  np.testing.assert_allclose(state.parts.gram_DD, one.gram_DD, rtol=1e-5, atol=1e-6)
  on_blocks, on_one = stepper(over), stepper(head)
  for step in range(3):
    state, got = on_blocks(state, h_ND, y, jax.random.key(step))
    one, want = on_one(one, h_ND, y, jax.random.key(step))
    np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
    np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-4)
    state = jax.jit(over.refresh)(state, jax.random.key(step))
    one = jax.jit(head.refresh)(one, jax.random.key(step))
  rows_RD = jax.jit(over.class_rows)(state, jnp.arange(V))
  np.testing.assert_allclose(rows_RD, implied(one), rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(state.parts.gram_DD, one.gram_DD, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(state.parts.gram_DD, rows_RD.T @ rows_RD, atol=1e-4)
  got, want = (
    jax.jit(h.monitor)(s, h_ND, y, jax.random.key(0))
    for h, s in ((over, state), (head, one))
  )
  assert got["drift"] < 1e-4
  np.testing.assert_allclose(got["spread"], want["spread"], rtol=1e-4)


def paths(tree, blocks):
  """For each class the inner nodes above it, as rows and signs."""
  above = [np.asarray(a) for a in (tree.above_class_V, tree.above_node_V)]
  top = [np.asarray(a) for a in (tree.top.above_class_V, tree.top.above_node_V)]

  def climb(of_leaf, of_node, leaf, row_of):
    link = of_leaf[leaf]
    while link >= 0:
      yield row_of(link // 2), 2 * (link % 2) - 1
      link = of_node[link // 2]

  for c in range(blocks.num_classes):
    b, start = c % blocks.num, c % blocks.num * blocks.size
    own = [a[start : start + blocks.size] for a in above]
    within = climb(*own, c // blocks.num, lambda i, start=start: start + i)
    yield [*within, *climb(*top, b, lambda i: (i + 1) * blocks.size - 1)]


@pytest.mark.parametrize(("V", "B"), [(13, 4), (12, 4), (5, 5)])
def test_the_trees_of_blocks_are_one_binary_tree(V, B):
  """The loss and its gradients are those of a naive walk from the leaves."""
  blocks, rng = Blocks(V, B), np.random.default_rng(0)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  ids_NP = rng.integers(0, V, (5, 2)).astype(np.int32)
  w_NP = rng.random((5, 2)).astype(np.float32)
  ids_NP[3, 1], w_NP[3, 1], w_NP[4] = V, 0, 0
  y = Targets(ids_NP, w_NP, np.zeros(5, np.int32))
  head = Huffman(init_scale=1.0, bias=False)
  over = OverDevices(head, ONE, B)
  state = over.init(jax.random.key(0), rng.integers(1, 50, V), 4)
  w_VD = np.asarray(state.parts.nodes.w_VD)
  ways = list(paths(state.parts.tree, blocks))
  assert len({row for way in ways for row, _ in way}) == V - 1  # none is shared

  def log_p(w_VD, h_ND):
    steps = [[s * (h_ND @ w_VD[row]) for row, s in way] for way in ways]
    return jnp.stack([sum(map(jax.nn.log_sigmoid, each)) for each in steps], axis=1)

  log_p_NV = log_p(w_VD, h_ND)
  np.testing.assert_allclose(jnp.exp(log_p_NV).sum(axis=1), 1, rtol=1e-5)

  def loss(w_VD, h_ND):
    all_NV = jnp.pad(log_p(w_VD, h_ND), ((0, 0), (0, 1)))
    at_NP = jnp.take_along_axis(all_NV, jnp.asarray(ids_NP), axis=1)
    return -jnp.sum(w_NP * at_NP) / w_NP.sum()

  want, (dw_VD, dh_ND) = jax.value_and_grad(loss, (0, 1))(w_VD, h_ND)
  new, got = stepper(over)(state, h_ND, y, jax.random.key(0))
  np.testing.assert_allclose(got.loss, want, rtol=1e-5)
  np.testing.assert_allclose(got.dh_ND, dh_ND, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(got.sq_norm, jnp.sum(dw_VD**2), rtol=1e-4)
  np.testing.assert_allclose(
    new.parts.nodes.w_VD, w_VD - 0.5 * dw_VD, rtol=1e-4, atol=1e-6
  )
  ids_NK, got_NK = jax.jit(over.top_k, static_argnums=2)(state, h_ND, V)
  np.testing.assert_array_equal(np.sort(ids_NK), np.tile(np.arange(V), (5, 1)))
  want_NK = jnp.take_along_axis(log_p_NV, ids_NK, axis=1)
  np.testing.assert_allclose(got_NK, want_NK, rtol=1e-4, atol=1e-5)
  at_0 = jax.jacobian(lambda h_D: log_p(w_VD, h_D[None])[0])(jnp.zeros(4))
  rows_VD = jax.jit(over.class_rows)(state, jnp.arange(V))
  np.testing.assert_allclose(rows_VD, at_0, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("binning", ["equal", "sqrt"])
def test_more_blocks_are_the_same_clusters(binning):
  """Five clusters in four blocks, of which three have a row for none."""
  V, B, rng = 13, 4, np.random.default_rng(0)
  counts, blocks = 100 // np.arange(1, V + 1), Blocks(5, B)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  ids_NP = np.array([[1, 5], [3, 3], [7, V], [12, 0], [5, 2]], np.int32)
  y = Targets(ids_NP, (ids_NP < V).astype(np.float32), np.zeros(5, np.int32))
  head = Hierarchical(num_clusters=5, binning=binning, init_scale=1.0)
  over = OverDevices(head, ONE, B)
  state = over.init(jax.random.key(0), counts, 4)
  one = head.init(jax.random.key(0), counts, 4)
  at_K, parts = blocks.row(jnp.arange(5)), state.parts
  np.testing.assert_array_equal(parts.members_KS[at_K], one.members_KS)
  one = one._replace(
    clusters=head.optimizer.init(parts.clusters.w_VD[at_K]),
    leaves=head.optimizer.init(parts.leaves.w_VD[at_K]),
  )
  on_blocks, on_one = stepper(over), stepper(head)
  for step in range(3):
    state, got = on_blocks(state, h_ND, y, jax.random.key(step))
    one, want = on_one(one, h_ND, y, jax.random.key(step))
    np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
    np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-4)
  got, want = (jax.jit(x.evaluate)(s, h_ND, y) for x, s in ((over, state), (head, one)))
  np.testing.assert_allclose(got["nll"], want["nll"], rtol=1e-5)
  got, want = (
    jax.jit(x.top_k, static_argnums=2)(s, h_ND, V)
    for x, s in ((over, state), (head, one))
  )
  np.testing.assert_array_equal(got[0], want[0])
  np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-5)
  every_V = jnp.arange(V)
  rows_VD = jax.jit(over.class_rows)(state, every_V)
  np.testing.assert_allclose(rows_VD, head.class_rows(one, every_V), rtol=1e-4)


def test_more_blocks_than_clusters_are_refused():
  over = OverDevices(Hierarchical(num_clusters=3), ONE, 4)
  with pytest.raises(UserError, match=r"mesh\.blocks is 4, and there are 3 clusters"):
    over.init(jax.random.key(0), np.ones(13, int), 4)


def undivided(state, counts):
  """A state of blocks on one device as that of a head without blocks: its rows in the
  order of classes or, in clusters, of places."""

  def in_order(x_LD, num):
    blocks = Blocks(num, state.blocks.num)
    return x_LD[blocks.row(jnp.arange(num))] if jnp.ndim(x_LD) else x_LD

  def table(t, num):
    return jax.tree.map(lambda x: in_order(x, num), t)

  parts, V = state.parts, len(counts)
  places = {name: in_order(getattr(parts, name), V) for name in ("place_V", "class_V")}
  if isinstance(parts, AdaptiveState):
    short, *others = parts.clusters.sizes
    head = table(parts.head, short + len(others))
    tails = tuple(map(table, parts.tails, others))
    return dataclasses.replace(parts, head=head, tails=tails, **places)
  rows = tuple(map(table, parts.rows, parts.sizes))
  return dataclasses.replace(parts, rows=rows, **places)


CLUSTERS = {"cutoffs": (5, 14), "factor": 2, "align": 1, "init_scale": 1.0}


@pytest.mark.parametrize(
  "head",
  [
    Adaptive(**CLUSTERS),
    Adaptive(**CLUSTERS, tied=True, bias=False, method="classes"),
    Adaptive(**CLUSTERS, tail_bias=False, lazy=False, method="reference"),
    DSoftmax(**CLUSTERS),
    DSoftmax(**CLUSTERS, projected=True, bias=False, method="classes"),
    DSoftmax(**CLUSTERS, projected=True, method="reference"),
    DSoftmax(**CLUSTERS, projected=True, method="tiles"),
  ],
  ids=lambda head: f"{type(head).__name__} {head.method} {head.bias}",
)
def test_more_blocks_are_the_same_clusters_by_count(head):
  """Rows of each cluster are at other places; the results are those of one device."""
  rng, V = np.random.default_rng(0), 31
  counts = rng.permutation(np.arange(1, V + 1))
  h_ND = rng.standard_normal((9, 8)).astype(np.float32)
  y = single_targets(rng.integers(0, V, 9), rng.random(9))
  over = OverDevices(head, ONE, 4)
  state = over.init(jax.random.key(0), counts, 8)
  alone = undivided(state, counts)
  fresh = head.init(jax.random.key(0), counts, 8)
  jax.tree.map(np.testing.assert_array_equal, alone.downs, fresh.downs)
  np.testing.assert_array_equal(alone.place_V, fresh.place_V)
  np.testing.assert_array_equal(alone.class_V, fresh.class_V)
  assert jax.tree.map(jnp.shape, alone) == jax.tree.map(jnp.shape, fresh)
  on_blocks, on_one = stepper(over), stepper(head)
  for step in range(2):
    state, got = on_blocks(state, h_ND, y, jax.random.key(step))
    alone, want = on_one(alone, h_ND, y, jax.random.key(step))
    np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
    np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-4)
  close = {"rtol": 1e-4, "atol": 1e-5}
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, **close),
    undivided(state, counts),
    alone,
  )
  got = jax.jit(over.evaluate)(state, h_ND, y)["nll"]
  np.testing.assert_allclose(
    got, jax.jit(head.evaluate)(alone, h_ND, y)["nll"], **close
  )
  got, want = (
    jax.jit(of.top_k, static_argnums=2)(s, h_ND, 20)
    for of, s in ((over, state), (head, alone))
  )
  np.testing.assert_array_equal(got[0], want[0])
  np.testing.assert_allclose(got[1], want[1], **close)
  got = jax.jit(over.class_rows)(state, jnp.arange(V))
  want = jax.jit(head.class_rows)(alone, jnp.arange(V))
  np.testing.assert_allclose(got, want, **close)


@pytest.mark.parametrize("name", ["adaptive", "d_softmax"])
def test_a_cluster_of_fewer_classes_than_blocks_is_refused(name):
  over = OverDevices(HEADS[name](cutoffs=(3, 20)), ONE, 4)
  with pytest.raises(UserError, match=r"mesh\.blocks to 3 or less, or head\.cutoffs"):
    over.init(jax.random.key(0), np.arange(1, 32), 8)


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
    ("sampled", {"exact_frequent": 3, "exact_ids": [0, 5, 12]}),
    ("sampled", {"exact_ids": [1], "loss": {"corrected": False}}),
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


def test_exact_classes_count_once_whatever_is_drawn():
  """The exact softmax, though hardly a class is drawn and blocks have other numbers."""
  V, counts = 13, np.arange(1, 14)
  h_ND, y = np.ones((3, 4), np.float32), single_targets([0, 12, 5])
  others = [c for c in range(V) if c not in (5, 12, 11)]  # all but the most frequent
  head = Sampled(exact_frequent=3, exact_ids=(5, *others), num_samples=4)
  head = dataclasses.replace(head, init_scale=1.0, bias=False)
  over = OverDevices(head, ONE, 4)
  state = over.init(jax.random.key(0), counts, 4)
  exact_BT = np.asarray(state.parts.exact_T).reshape(4, -1)
  assert exact_BT.shape == (4, 4)
  assert sorted(exact_BT.ravel()) == [*range(V), V, V, V]
  assert (exact_BT % 4 == np.arange(4)[:, None])[exact_BT < V].all()
  _, out = stepper(over)(state, h_ND, y, jax.random.key(0))
  nll_N = jax.jit(over.evaluate)(state, h_ND, y)["nll"]
  np.testing.assert_allclose(out.loss, jnp.mean(nll_N), rtol=1e-6)
  few = dataclasses.replace(head, exact_frequent=0, exact_ids=(5,))
  state = OverDevices(few, ONE, 4).init(jax.random.key(0), counts, 4)
  _, sampled = stepper(OverDevices(few, ONE, 4))(state, h_ND, y, jax.random.key(0))
  assert abs(sampled.loss - out.loss) > 1e-3


def test_exact_classes_that_do_not_exist_are_named():
  over = OverDevices(Sampled(exact_ids=(13,), num_samples=4), ONE, 4)
  with pytest.raises(UserError, match=r"exact_ids has 13, and there are 13 classes"):
    over.init(jax.random.key(0), np.ones(13, int), 4)


def ratio_of_z(head, V, times):
  """Z~ / Z of one example, for several draws in four blocks, f64[times]."""
  over = OverDevices(head, ONE, 4)
  state = over.init(jax.random.key(0), np.arange(1, V + 1), 4)
  h_ND = jnp.asarray(np.random.default_rng(0).standard_normal((1, 4)), jnp.float32)
  y = Targets(jnp.array([[5, 8, 5]]), jnp.array([[0.5, 0.25, 0.25]]), jnp.array([3]))
  nll = jax.jit(over.evaluate)(state, h_ND, y)["nll"][0]
  loss = lambda key: over.backward(state, h_ND, y, key).loss
  losses = jax.jit(lambda keys: jax.lax.map(loss, keys))(
    jax.random.split(jax.random.key(1), times)
  )
  return np.exp(np.float64(losses - nll))


@pytest.mark.parametrize("m", [4, 12])
@pytest.mark.parametrize("fields", [{}, {"exact_ids": (0, 2, 4)}])
def test_the_sampler_softmax_has_the_exact_loss_in_blocks(fields, m):
  head = Sampled(sampler=Softmax(), num_samples=m, init_scale=1.0, bias=False, **fields)
  np.testing.assert_allclose(ratio_of_z(head, 12, 20), 1, rtol=1e-5)


@pytest.mark.parametrize("sampler", [Softmax(), Unigram(per_example=True)], ids=str)
def test_estimates_in_blocks_are_unbiased(sampler):
  """Also if blocks have an unused row, which may be drawn."""
  head = Sampled(sampler=sampler, num_samples=8, init_scale=1.0, exact_ids=(2,))
  ratio_S = ratio_of_z(head, 13, 20_000)
  error = np.std(ratio_S) / np.sqrt(len(ratio_S))
  assert 0 < error < 0.01
  assert abs(np.mean(ratio_S) - 1) < 5 * error
