"""The inverted multi-index: in every state the law is the softmax of quantised rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from largevocab.heads import Sampled, ShardedHead, class_mesh
from largevocab.labels import Counts, single_targets
from largevocab.ops import shards
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shards import AXIS
from largevocab.samplers import MIDX
from largevocab.samplers.in_blocks import in_blocks
from tests.long import others_long

V, N, D, M = 60, 3, 6, 16
COUNTS = Counts(np.arange(V) % 7)
KEY = jax.random.key(0)
SAMPLERS = [
  MIDX(codewords=5),
  MIDX(codewords=5, quantizer="product"),
  MIDX(codewords=3, power=0.5, smoothing=0.0),
]
law = jax.jit(
  lambda sampler, *args: jnp.exp(sampler.log_expected(*args)), static_argnums=0
)


def problem(seed=0, num=V):
  rng = np.random.default_rng(seed)
  w_VD = jnp.asarray(rng.standard_normal((num, D)), jnp.float32)
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  return w_VD, h_ND, single_targets(rng.integers(0, num, N))


def definition(sampler, stats, h_ND, counts=COUNTS):
  """From the words of each class, in float64."""
  first, second = np.float64(stats.first_KA), np.float64(stats.second_KB)
  one_V, two_V = np.divmod(np.asarray(stats.cell_V), len(first))
  parts = first[one_V], second[two_V]
  is_product = sampler.quantizer == "product"
  w_VD = np.hstack(parts) if is_product else sum(parts)
  f_V = np.ones(len(w_VD))
  if sampler.power:
    f_V = counts.unigram_V**sampler.power * (counts.unigram_V > 0)
  q_NV = f_V * np.exp(np.float64(h_ND) @ w_VD.T)
  return M * q_NV / q_NV.sum(axis=1, keepdims=True)


def words_of(sampler, stats, w_VD):
  """The words nearest to each row."""
  first, second = np.float64(stats.first_KA), np.float64(stats.second_KB)
  nearest = lambda x, book: ((x[:, None] - book[None]) ** 2).sum(-1).argmin(1)
  w_VD, A = np.float64(w_VD), first.shape[1]
  one_V = nearest(w_VD[:, :A], first)
  is_product = sampler.quantizer == "product"
  rest_VB = w_VD[:, A:] if is_product else w_VD - first[one_V]
  return one_V * len(first) + nearest(rest_VB, second)


@pytest.mark.parametrize("sampler", others_long(SAMPLERS, SAMPLERS[1:]), ids=repr)
def test_law_equals_the_definition_in_every_state(sampler):
  w_VD, h_ND, y = problem()
  new_VD = problem(1)[0]
  stats = sampler.init(COUNTS, w_VD, M)
  updated = sampler.update(stats, new_VD, jnp.arange(V), w_VD, new_VD)
  refreshed = sampler.refresh(stats, new_VD, KEY)
  for state, rows in ((stats, w_VD), (updated, new_VD), (refreshed, new_VD)):
    got = law(sampler, state, rows, h_ND, y, jnp.arange(V))
    np.testing.assert_allclose(got, definition(sampler, state, h_ND), 1e-5, 1e-7)
  for state, rows in ((stats, w_VD), (refreshed, new_VD)):
    np.testing.assert_array_equal(state.cell_V, words_of(sampler, state, rows))
  assert (np.asarray(updated.cell_V) != np.asarray(refreshed.cell_V)).any()


def test_refresh_follows_the_model():
  """Quantised rows are nearer to the rows than words of one codebook, and the law to
  the softmax than before."""
  sampler = SAMPLERS[0]
  old_VD, h_ND, y = problem()
  w_VD = problem(1)[0]
  stats = sampler.init(COUNTS, old_VD, M)
  p_NV = np.float64(jax.nn.softmax(h_ND @ w_VD.T))

  def distance(stats):
    q_NV = np.float64(law(sampler, stats, w_VD, h_ND, y, jnp.arange(V))) / M
    return np.sum(p_NV**2 / q_NV, axis=1).mean() - 1  # chi squared

  stale = distance(stats)
  for seed in range(4):
    stats = sampler.refresh(stats, w_VD, jax.random.key(seed))
  assert distance(stats) < 0.5 * min(stale, np.mean(V * np.sum(p_NV**2, axis=1)) - 1)


def test_eight_blocks_have_the_laws_of_eight_samplers():
  blocks, sampler = Blocks(V - 1, 8), SAMPLERS[0]  # rows are left over
  mesh = class_mesh(jax.devices()[:1])
  counts = Counts(COUNTS.unigram_V[: V - 1])
  h_ND, y = problem()[1:]
  head = Sampled(sampler=sampler, num_samples=M, bias=False)
  state = ShardedHead(head, mesh, 8).init(KEY, counts, D)

  def draw_and_law(stats, w_VD):
    with shards.over(blocks):
      every, ids = in_blocks(sampler), jnp.arange(len(w_VD))
      draw = every.sample(stats, w_VD, KEY, h_ND, y)
      return draw, jnp.exp(every.log_expected(stats, w_VD, h_ND, y, ids))

  split, whole = PartitionSpec(AXIS), PartitionSpec()
  mapped = jax.shard_map(
    draw_and_law, mesh=mesh, in_specs=(split, split), out_specs=whole, check_vma=False
  )
  draw, got_NV = jax.jit(mapped)(state.parts.stats, state.parts.table.w_VD)
  of_block = lambda b: jax.tree.map(lambda x: x[b], state.parts.stats)
  ones = Counts(np.ones(blocks.size, int))
  want = [definition(sampler, of_block(b), h_ND, ones) / 8 for b in range(8)]
  np.testing.assert_allclose(got_NV, np.hstack(want), rtol=1e-5)
  of_draw = np.take_along_axis(np.asarray(got_NV), np.asarray(draw.ids), axis=1)
  np.testing.assert_allclose(np.exp(draw.log_expected), of_draw, rtol=1e-5)
  assert (np.asarray(draw.ids).reshape(N, 8, 2) // blocks.size == np.c_[:8]).all()


def test_far_cells_are_still_drawn():
  """Every class has a positive probability for activations of any length."""
  sampler = SAMPLERS[0]
  w_VD, h_ND, y = problem()
  stats = sampler.init(COUNTS, w_VD, M)
  got = law(sampler, stats, w_VD, 1e4 * h_ND, y, jnp.arange(V))
  assert (np.asarray(got) > 0).all()
  np.testing.assert_allclose(got.sum(axis=1), M, rtol=1e-5)


def test_refresh_holds_no_second_table():
  num, dim = 300_000, 64
  for sampler in (MIDX(codewords=8), MIDX(codewords=8, quantizer="product")):
    rows = jax.ShapeDtypeStruct((num, dim), jnp.float32)
    stats = jax.eval_shape(lambda w, s=sampler: s.init(COUNTS, w, M), rows)
    lowered = jax.jit(sampler.refresh).lower(stats, rows, KEY)
    memory = lowered.compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * num * dim / 2
