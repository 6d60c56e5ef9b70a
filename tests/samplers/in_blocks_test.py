"""Draws in blocks of classes: the law is that of each block's sampler, exactly."""

import functools
import itertools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Sampled, ShardedHead, class_mesh
from largevocab.labels import Counts, Targets
from largevocab.ops import shards
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shards import AXIS
from largevocab.samplers import (
  PPS,
  SAMPLERS,
  Bernoulli,
  Bigram,
  Block,
  LSHEmbedding,
  Mixture,
  QuadraticPrior,
  Uniform,
  Unigram,
)
from largevocab.samplers.base import log_expected_in_range
from largevocab.samplers.in_blocks import in_blocks
from tests.long import others_long

V, B, D, N, M = 29, 4, 8, 3, 16
BLOCKS = Blocks(V, B)
WEIGHT_V = 1 / np.arange(1, V + 1)
TOKENS = np.random.default_rng(0).zipf(1.5, 600) - 1
TOKENS = TOKENS[TOKENS < V - 1]  # the last class is not seen
COUNTS = Counts((300 * WEIGHT_V).astype(np.int64), TOKENS)
MESH = class_mesh(jax.devices()[:1])
long = functools.partial(pytest.param, marks=pytest.mark.long)
BERNOULLI = [
  Bernoulli(),
  Bernoulli(per_example=True),
  Bernoulli(systematic=True),
  Bernoulli(inclusion="power", smoothing=0.0),
]


def made(sampler):
  """A head with the sampler, its state on one device, and one that has been trained."""
  absolute = getattr(sampler, "absolute", False)
  head = Sampled(sampler=sampler, num_samples=M, absolute=absolute, bias=False)
  head = ShardedHead(head, MESH, B)
  state = head.init(jax.random.key(0), COUNTS, D)
  later = state

  @jax.jit
  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, 5.0, 1.0)

  for i in range(2):
    later = step(later, *batch(i), jax.random.key(i))
  return head, state, later


def batch(i):
  rng = np.random.default_rng(i)
  ids_NP = rng.integers(0, V, (N, 1)).astype(np.int32)
  context_N = rng.choice(TOKENS, N).astype(np.int32)
  y = Targets(ids_NP, np.ones((N, 1), np.float32), context_N)
  return rng.standard_normal((N, D)).astype(np.float32), y


@functools.partial(jax.jit, static_argnums=0)
def on_device(function, *args):
  def traced(*args):
    with shards.over(BLOCKS):
      return function(*args)

  whole = PartitionSpec()
  split = PartitionSpec(AXIS)
  ins = (split, split, *[whole] * (len(args) - 2))
  mapped = jax.shard_map(
    traced, mesh=MESH, in_specs=ins, out_specs=whole, check_vma=False
  )
  return mapped(*args)


def law(head, state, h_ND, y):
  """Expected counts of all rows, by example: f64[N, rows]."""
  sampler, all_rows = in_blocks(head.head.sampler), jnp.arange(BLOCKS.num_rows)
  y = y._replace(ids_NP=rows_of(y))
  args = state.parts.stats, state.parts.table.w_VD, h_ND, y, all_rows
  log_expected = np.asarray(on_device(sampler.log_expected, *args), np.float64)
  return np.broadcast_to(np.exp(log_expected), (N, BLOCKS.num_rows))


def rows_of(y):
  return BLOCKS.row(jnp.asarray(y.ids_NP))


QUICK = ("pps", "quadratic_prior")


@pytest.mark.parametrize("name", [n if n in QUICK else long(n) for n in SAMPLERS])
def test_law_equals_that_of_the_blocks(name):
  """Also after updates, when statistics have followed the rows."""
  sampler = SAMPLERS[name]()
  head, *states = made(sampler)
  h_ND, y = batch(9)
  # `lsh_label` asks with rows, also with those of other blocks.
  alone = LSHEmbedding() if name == "lsh_label" else sampler
  log_expected = jax.jit(alone.log_expected)
  for state in states:
    got, asked_ND = law(head, state, h_ND, y), h_ND
    if name == "lsh_label":
      asked_ND = state.parts.table.w_VD[rows_of(y)[:, 0]]
    for b in range(B):
      part = slice(b * BLOCKS.size, (b + 1) * BLOCKS.size)
      stats = jax.tree.map(operator.itemgetter(b), state.parts.stats)
      rows = np.asarray(rows_of(y)) - part.start
      inside = np.where((rows >= 0) & (rows < BLOCKS.size), rows, BLOCKS.size)
      args = jnp.asarray(asked_ND), y._replace(ids_NP=jnp.asarray(inside))
      of_block = log_expected(
        stats, state.parts.table.w_VD[part], *args, jnp.arange(BLOCKS.size)
      )
      want = np.broadcast_to(np.exp(of_block), (N, BLOCKS.size))
      np.testing.assert_allclose(got[:, part], want, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize(
  "sampler",
  [
    PPS(),
    long(Unigram()),
    long(QuadraticPrior()),
    long(LSHEmbedding()),
    long(Bigram()),
    long(Mixture()),
    long(Mixture("bernoulli", "quadratic_prior")),
    long(Mixture("ivf", "softmax")),
    BERNOULLI[0],
    *map(long, BERNOULLI[1:]),
  ],
  ids=str,
)
def test_classes_are_drawn_as_often_as_reported(sampler):
  head, _, state = made(sampler)
  sampler = in_blocks(sampler)
  h_ND, y = batch(9)
  want = law(head, state, h_ND, y)[0]
  times = 4000

  def counted(stats, w_VD, key, h_ND, y):
    def one(key):
      draw = sampler.sample(stats, w_VD, key, h_ND, y)
      ids, mask = (jnp.atleast_2d(x)[0] for x in (draw.ids, draw.mask))
      return jnp.zeros(BLOCKS.num_rows).at[ids].add(mask)

    return jnp.sum(jax.lax.map(one, jax.random.split(key, times)), axis=0) / times

  args = state.parts.stats, state.parts.table.w_VD, jax.random.key(3), h_ND
  got = np.asarray(on_device(counted, *args, y._replace(ids_NP=rows_of(y))))
  is_class = np.asarray(BLOCKS.class_of(np.arange(BLOCKS.num_rows))) < V
  assert not got[~is_class].any()
  error = np.sqrt(np.maximum(want, 1e-3) / times)
  assert (np.abs(got - want)[is_class] < 5 * error[is_class]).all()
  shifted = np.roll(want[is_class], 1)  # another law is found out
  assert not (np.abs(got[is_class] - shifted) < 5 * error[is_class]).all()


def of_blocks(x_V):
  """Of an array over classes the part of each block, 0 for unused rows."""
  padded = np.zeros(BLOCKS.num_rows, x_V.dtype)
  padded[np.asarray(BLOCKS.row(jnp.arange(V)))] = x_V
  return padded.reshape(B, -1)


@pytest.mark.parametrize(
  ("sampler", "m"),  # of 24 nearly all are certain
  others_long(
    itertools.product(BERNOULLI, [4, 8, 24]),
    [*((sampler, 8) for sampler in BERNOULLI), (BERNOULLI[0], 24)],
  ),
  ids=str,
)
def test_sets_of_a_block_have_the_law_of_that_block_alone(sampler, m):
  """Statistics have the size of those of the largest block; the law is the same."""
  w_VD = jnp.zeros((V, D))
  count_V = np.random.default_rng(m).permutation(COUNTS.unigram_V) ** 2
  count_V[[5, 13, 10]] = 0
  head = ShardedHead(Sampled(sampler=sampler, num_samples=m, bias=False), MESH, B)
  state = head.init(jax.random.key(0), Counts(count_V), D)
  got = law(head, state, *batch(0))[0].reshape(B, -1)
  sizes = set()
  for b, count_S in enumerate(of_blocks(count_V)):
    alone = sampler.init(Counts(count_S), w_VD[: len(count_S)], m // B)
    want_S = np.exp(alone.log_expected_V)
    np.testing.assert_allclose(got[b], want_S, rtol=1e-5, atol=1e-8)
    sizes.add(str(jax.tree.map(jnp.shape, alone)))
  assert len(sizes) > 1  # there was something to pad


@pytest.mark.parametrize("name", others_long(["unigram", "bernoulli"], ["unigram"]))
def test_many_ids_are_looked_up_like_few_ids(name):
  """Each block looks up all of few ids; for many ids, one pass over rows is cheaper."""
  head, state, _ = made(SAMPLERS[name](per_example=True))
  h_ND, y = batch(9)
  args = state.parts.stats, state.parts.table.w_VD, h_ND, y
  log_expected = in_blocks(head.head.sampler).log_expected
  ids = np.random.default_rng(0).integers(-1, BLOCKS.num_rows + 2, 2 * BLOCKS.num_rows)
  many = on_device(log_expected, *args, jnp.asarray(ids))
  few = [on_device(log_expected, *args, jnp.asarray(ids[i : i + 2])) for i in range(6)]
  for i, of_two in enumerate(few):
    np.testing.assert_array_equal(many[:, i : i + 2], of_two)


@pytest.mark.parametrize(
  "path",
  others_long(["sampled/pps", "sampled/mixture", "nce/unigram"], ["sampled/pps"]),
)
def test_cost_of_a_step_in_blocks_does_not_depend_on_the_number_of_classes(path):
  head = ShardedHead(config.head(path, num_samples=64), MESH, 16)

  def cost(num_classes):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, h_ND, y, key):
      out = head.backward(state, h_ND, y, key)
      return head.update(state, out.grads, 0.1, 1.0), out.loss

    state = head.abstract_state(Counts(np.ones(num_classes, np.int64)), D)
    h_ND, y = batch(0)
    compiled = step.lower(state, h_ND, y, jax.random.key(0)).compile()
    memory, operations = compiled.memory_analysis(), compiled.cost_analysis()
    return memory.temp_size_in_bytes, operations["flops"]

  (few, flops), (many, more) = cost(2**14), cost(2**17)
  assert many <= few + 4096  # a block's statistic would be 28 KiB more
  assert more == flops


def test_consecutive_classes_of_a_single_block_have_the_same_law():
  sampler, one = Block(leaf_size=3), Blocks(V, 1)
  head = ShardedHead(Sampled(sampler=sampler, num_samples=M, bias=False), MESH, 1)
  parts = head.init(jax.random.key(0), COUNTS, D).parts
  h_ND, y = batch(0)

  def laws(parts, h_ND, y):
    args = in_blocks(sampler), parts.stats, parts.table.w_VD, h_ND, y
    ids_M = 2 + jnp.arange(5, dtype=jnp.int32)
    of_ids = args[0].log_expected(*args[1:], ids_M)
    return log_expected_in_range(*args, jnp.int32(2), 5), of_ids

  specs = (head._specs(parts), shards.WHOLE, shards.WHOLE)
  mapped = shards.on_each_device(laws, MESH, one, specs, shards.WHOLE)
  got_NM, want_NM = jax.jit(mapped)(parts, h_ND, y)
  assert got_NM.shape == (N, 5)
  np.testing.assert_allclose(got_NM, want_NM, rtol=1e-5)


def test_bigrams_of_a_block_are_those_that_end_in_it():
  head, state, _ = made(Bigram())
  h_ND, y = batch(0)
  y = y._replace(context_N=jnp.array([0, 1, V - 1]))
  got = law(head, state, h_ND, y).reshape(N, B, -1)
  pair_VV = np.zeros((V, V))
  np.add.at(pair_VV, (TOKENS[:-1], TOKENS[1:]), 1)
  for n, context in enumerate(y.context_N.tolist()):
    after_BS = of_blocks(pair_VV[context])
    for b, count_S in enumerate(of_blocks(COUNTS.unigram_V)):
      total, types = after_BS[b].sum(), np.count_nonzero(after_BS[b])
      trust = total / max(total + types, 1)
      want_S = (1 - trust) * (count_S + 1) / (count_S + 1).sum()
      want_S += trust * after_BS[b] / max(total, 1)
      np.testing.assert_allclose(got[n, b], want_S * M / B, rtol=1e-5)


def test_block_may_have_no_bigram():
  tokens = np.array([0, 4, 0, 8, 0, 1])  # all end in the first two of four blocks
  head = ShardedHead(Sampled(sampler=Bigram(), num_samples=M), MESH, B)
  counts = Counts(COUNTS.unigram_V, tokens)
  state = head.init(jax.random.key(0), counts, D)
  h_ND, y = batch(0)
  y = y._replace(context_N=jnp.array([0, 4, 2]))
  got = law(head, state, h_ND, y).reshape(N, B, -1)
  unigram_BS = of_blocks(COUNTS.unigram_V) + 1
  want_BS = unigram_BS / unigram_BS.sum(axis=1, keepdims=True) * M / B
  np.testing.assert_allclose(got[:, 2:], np.stack([want_BS[2:]] * N), rtol=1e-5)
  assert not np.allclose(got[0, :2], want_BS[:2], rtol=1e-2)


def test_blocks_draw_with_their_own_keys():
  head, state, _ = made(Uniform())
  sampler = in_blocks(head.head.sampler)
  h_ND, y = batch(0)
  draw = lambda *args: sampler.sample(*args).ids
  args = state.parts.stats, state.parts.table.w_VD, jax.random.key(0), h_ND
  ids_M = np.asarray(on_device(draw, *args, y._replace(ids_NP=rows_of(y))))
  within = (ids_M % BLOCKS.size).reshape(B, -1)
  assert len({tuple(row) for row in within}) == B


def test_number_of_draws_must_be_a_multiple_of_the_blocks():
  head = ShardedHead(Sampled(num_samples=M + 1), MESH, B)
  with pytest.raises(UserError, match=r"num_samples is 17.* set it to 16 or 20"):
    head.init(jax.random.key(0), COUNTS, D)


@pytest.mark.parametrize("name", SAMPLERS)
def test_traits_of_a_sampler_are_the_same_in_blocks(name):
  sampler = SAMPLERS[name]()
  for trait, default in (
    *(("independent", False), ("distinct", False), ("counts_rows", False)),
    *(("weighable", True), ("keeps_up", True)),
  ):
    got, want = (getattr(s, trait, default) for s in (in_blocks(sampler), sampler))
    assert got == want, trait
