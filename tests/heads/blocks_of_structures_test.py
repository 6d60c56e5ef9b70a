"""Factored tables, trees and clusters in several blocks, on one device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import (
  HEADS,
  Adaptive,
  DSoftmax,
  Hierarchical,
  Huffman,
  ShardedHead,
  Spherical,
  class_mesh,
)
from largevocab.heads.adaptive import AdaptiveState
from largevocab.labels import Targets, single_targets
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.factored.table import factor, implied
from tests.heads.on_devices import stepper
from tests.heads.same_steps import assert_same_steps

ONE = class_mesh(jax.devices()[:1])
long = functools.partial(pytest.param, marks=pytest.mark.long)


def test_factored_table_is_the_same_in_more_blocks():
  """Includes unused rows, which no sum may contain, and a repeated true class."""
  V, blocks, rng = 13, Blocks(13, 4), np.random.default_rng(0)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  ids_NP = np.array([[1, 5], [3, 3], [7, V], [12, 0], [5, 2]], np.int32)
  y = Targets(ids_NP, (ids_NP < V).astype(np.float32), np.zeros(5, np.int32))
  head = Spherical(init_scale=1.0, limit=1.1)
  over = ShardedHead(head, ONE, blocks.num)
  state = over.init(jax.random.key(0), np.ones(V, int), 4)
  one = factor(state.parts.v_VD[blocks.row(jnp.arange(V))])
  np.testing.assert_allclose(state.parts.gram_DD, one.gram_DD, rtol=1e-5, atol=1e-6)
  state, one = assert_same_steps(over, state, head, one, (h_ND, y), 3, refresh=True)
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


@pytest.mark.parametrize(("V", "B"), [(13, 4), long(12, 4), long(5, 5)])
def test_trees_of_blocks_form_one_binary_tree(V, B):
  """Loss and gradients equal those of a naive walk from the leaves."""
  blocks, rng = Blocks(V, B), np.random.default_rng(0)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  ids_NP = rng.integers(0, V, (5, 2)).astype(np.int32)
  w_NP = rng.random((5, 2)).astype(np.float32)
  ids_NP[3, 1], w_NP[3, 1], w_NP[4] = V, 0, 0
  y = Targets(ids_NP, w_NP, np.zeros(5, np.int32))
  head = Huffman(init_scale=1.0, bias=False)
  over = ShardedHead(head, ONE, B)
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


@pytest.mark.parametrize("binning", ["equal", long("sqrt")])
def test_clusters_are_the_same_in_more_blocks(binning):
  """Five clusters in four blocks: three blocks have an unused row."""
  V, B, rng = 13, 4, np.random.default_rng(0)
  counts, blocks = 100 // np.arange(1, V + 1), Blocks(5, B)
  h_ND = rng.standard_normal((5, 4)).astype(np.float32)
  ids_NP = np.array([[1, 5], [3, 3], [7, V], [12, 0], [5, 2]], np.int32)
  y = Targets(ids_NP, (ids_NP < V).astype(np.float32), np.zeros(5, np.int32))
  head = Hierarchical(num_clusters=5, binning=binning, init_scale=1.0)
  over = ShardedHead(head, ONE, B)
  state = over.init(jax.random.key(0), counts, 4)
  one = head.init(jax.random.key(0), counts, 4)
  at_K, parts = blocks.row(jnp.arange(5)), state.parts
  np.testing.assert_array_equal(parts.members_KS[at_K], one.members_KS)
  one = one._replace(
    clusters=head.optimizer.init(parts.clusters.w_VD[at_K]),
    leaves=head.optimizer.init(parts.leaves.w_VD[at_K]),
  )
  state, one = assert_same_steps(over, state, head, one, (h_ND, y), 3)
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
  over = ShardedHead(Hierarchical(num_clusters=3), ONE, 4)
  message = r"mesh\.blocks is 4, but there are only 3 clusters"
  with pytest.raises(UserError, match=message):
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
    long(Adaptive(**CLUSTERS)),
    long(Adaptive(**CLUSTERS, tied=True, bias=False, method="classes")),
    long(Adaptive(**CLUSTERS, tail_bias=False, lazy=False, method="reference")),
    long(DSoftmax(**CLUSTERS)),
    DSoftmax(**CLUSTERS, projected=True, bias=False, method="classes"),
    long(DSoftmax(**CLUSTERS, projected=True, method="reference")),
    long(DSoftmax(**CLUSTERS, projected=True, method="tiles")),
  ],
  ids=lambda head: f"{type(head).__name__} {head.method} {head.bias}",
)
def test_clusters_by_count_are_the_same_in_more_blocks(head):
  """Rows are at other places, but results equal those of one device."""
  rng, V = np.random.default_rng(0), 31
  counts = rng.permutation(np.arange(1, V + 1))
  h_ND = rng.standard_normal((9, 8)).astype(np.float32)
  y = single_targets(rng.integers(0, V, 9), rng.random(9))
  over = ShardedHead(head, ONE, 4)
  state = over.init(jax.random.key(0), counts, 8)
  alone = undivided(state, counts)
  fresh = head.init(jax.random.key(0), counts, 8)
  jax.tree.map(np.testing.assert_array_equal, alone.downs, fresh.downs)
  np.testing.assert_array_equal(alone.place_V, fresh.place_V)
  np.testing.assert_array_equal(alone.class_V, fresh.class_V)
  assert jax.tree.map(jnp.shape, alone) == jax.tree.map(jnp.shape, fresh)
  state, alone = assert_same_steps(over, state, head, alone, (h_ND, y), 2)
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
def test_cluster_with_fewer_classes_than_blocks_is_refused(name):
  over = ShardedHead(HEADS[name](cutoffs=(3, 20)), ONE, 4)
  with pytest.raises(UserError, match=r"mesh\.blocks to 3 or less, or head\.cutoffs"):
    over.init(jax.random.key(0), np.arange(1, 32), 8)


def test_blocks_and_projections_have_different_random_numbers():
  """With this generator, `fold_in(key, i)` is also one of the keys of `split(key)`."""
  head = Adaptive(cutoffs=(40,), bias=False)
  over = ShardedHead(head, ONE, 4)
  parts = over.init(jax.random.key(0), np.arange(80, 0, -1), 64).parts
  rows_RD = np.asarray(parts.head.w_VD)
  down_ED = np.asarray(parts.downs[0].w_VD)
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
  assert np.abs(unit(rows_RD) @ unit(down_ED).T).max() < 0.8
