"""Draws in blocks of classes: the law is that of each block's sampler, exactly."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from largevocab.errors import UserError
from largevocab.heads import OverDevices, Sampled, class_mesh
from largevocab.labels import Counts, Targets
from largevocab.ops import shards
from largevocab.ops.shards import AXIS, Blocks
from largevocab.samplers import SAMPLERS
from largevocab.samplers.in_blocks import in_blocks

V, B, D, N, M = 29, 4, 8, 3, 16
BLOCKS = Blocks(V, B)
COUNTS = Counts((300 / np.arange(1, V + 1)).astype(np.int64))
DIVISIBLE = sorted(SAMPLERS.keys() - {"bernoulli", "bigram", "lsh_label"})
MESH = class_mesh(jax.devices()[:1])


def made(name):
  """A head with the sampler, its state on one device, and one that has been trained."""
  sampler = SAMPLERS[name]()
  absolute = getattr(sampler, "absolute", False)
  head = Sampled(sampler=sampler, num_samples=M, absolute=absolute, bias=False)
  head = OverDevices(head, MESH, B)
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
  y = Targets(ids_NP, np.ones((N, 1), np.float32), np.zeros(N, np.int32))
  return rng.standard_normal((N, D)).astype(np.float32), y


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
  return jax.jit(mapped)(*args)


def law(head, state, h_ND, y):
  """Expected counts of all rows, by example: f64[N, rows]."""
  sampler, all_rows = in_blocks(head.head.sampler), jnp.arange(BLOCKS.num_rows)
  y = y._replace(ids_NP=rows_of(y))
  args = state.parts.stats, state.parts.table.w_VD, h_ND, y, all_rows
  log_expected = np.asarray(on_device(sampler.log_expected, *args), np.float64)
  return np.broadcast_to(np.exp(log_expected), (N, BLOCKS.num_rows))


def rows_of(y):
  return BLOCKS.row(jnp.asarray(y.ids_NP))


@pytest.mark.parametrize("name", DIVISIBLE)
def test_the_law_is_that_of_the_blocks(name):
  """Also after updates: statistics have followed the rows."""
  head, *states = made(name)
  sampler = head.head.sampler
  h_ND, y = batch(9)
  for state in states:
    got = law(head, state, h_ND, y)
    for b in range(B):
      part = slice(b * BLOCKS.size, (b + 1) * BLOCKS.size)
      stats = jax.tree.map(operator.itemgetter(b), state.parts.stats)
      rows = np.asarray(rows_of(y)) - part.start
      inside = np.where((rows >= 0) & (rows < BLOCKS.size), rows, BLOCKS.size)
      args = jnp.asarray(h_ND), y._replace(ids_NP=jnp.asarray(inside))
      of_block = jax.jit(sampler.log_expected)(
        stats, state.parts.table.w_VD[part], *args, jnp.arange(BLOCKS.size)
      )
      want = np.broadcast_to(np.exp(of_block), (N, BLOCKS.size))
      np.testing.assert_allclose(got[:, part], want, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["pps", "unigram", "quadratic_prior", "lsh_embedding"])
def test_classes_are_drawn_as_often_as_is_said(name):
  head, _, state = made(name)
  sampler = in_blocks(head.head.sampler)
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


def test_blocks_draw_with_keys_of_their_own():
  head, state, _ = made("uniform")
  sampler = in_blocks(head.head.sampler)
  h_ND, y = batch(0)
  draw = lambda *args: sampler.sample(*args).ids
  args = state.parts.stats, state.parts.table.w_VD, jax.random.key(0), h_ND
  ids_M = np.asarray(on_device(draw, *args, y._replace(ids_NP=rows_of(y))))
  within = (ids_M % BLOCKS.size).reshape(B, -1)
  assert len({tuple(row) for row in within}) == B


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - set(DIVISIBLE)))
def test_samplers_that_cannot_be_divided_say_so(name):
  with pytest.raises(UserError, match=r"mesh\.blocks"):
    in_blocks(SAMPLERS[name]())


def test_the_number_of_draws_must_be_a_multiple_of_the_blocks():
  head = OverDevices(Sampled(num_samples=M + 1), MESH, B)
  with pytest.raises(UserError, match=r"num_samples is 17.* set it to 16 or 20"):
    head.init(jax.random.key(0), COUNTS, D)
