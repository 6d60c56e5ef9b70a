"""What is particular to the sampled softmax."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Full, Sampled
from largevocab.labels import single_targets
from largevocab.samplers import PPS, Draw, Softmax, Uniform, Unigram

N, V, D = 7, 30, 5
KEY = jax.random.key(0)
COUNTS = np.arange(V, 0, -1)


def batch(seed=0):
  rng = np.random.default_rng(seed)
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  return h_ND, single_targets(rng.integers(0, V, N))


@dataclasses.dataclass(frozen=True)
class ExactSet(PPS):
  """`PPS` that asks for some classes to be summed exactly besides."""

  exact: int = 0
  per_example: bool = False

  def sample(self, stats, w_VD, key, h_ND, y, m):
    draw = super().sample(stats, w_VD, key, h_ND, y, m)
    exact_S = jnp.append(jnp.arange(self.exact), V)  # some padding
    if self.per_example:
      exact_S = jnp.broadcast_to(exact_S, (len(h_ND), self.exact + 1))
    return draw._replace(exact_ids=exact_S)


@dataclasses.dataclass(frozen=True)
class AlwaysClass(Uniform):
  """A law whose draws are always one class."""

  target: int = 0

  def sample(self, stats, w_VD, key, h_ND, y, m):
    ids_M = jnp.full(m, self.target)
    return Draw(ids_M, jnp.full(m, jnp.log(float(m))), jnp.ones(m, bool))


@pytest.mark.parametrize(
  "head",
  [
    Sampled(sampler=PPS(), num_samples=V),
    Sampled(sampler=PPS(), num_samples=V + 9),
    Sampled(sampler=PPS(), num_samples=V, absolute=True),
    Sampled(sampler=ExactSet(exact=V), num_samples=4),
    Sampled(sampler=ExactSet(exact=V, per_example=True), num_samples=4),
  ],
)
def test_with_every_class_summed_it_is_the_full_softmax(head):
  h_ND, y = batch()
  full = Full(absolute=head.absolute, method="reference")
  state, full_state = (x.init(KEY, COUNTS, D) for x in (head, full))
  np.testing.assert_array_equal(state.table.w_VD, full_state.table.w_VD)
  for step in range(5):
    key = jax.random.key(step)
    out = head.backward(state, h_ND, y, key)
    want = full.backward(full_state, h_ND, y, key)
    np.testing.assert_allclose(out.loss, want.loss, rtol=1e-5)
    np.testing.assert_allclose(out.dh_ND, want.dh_ND, atol=1e-6)
    np.testing.assert_allclose(out.sq_norm, want.sq_norm, rtol=1e-4)
    state = head.update(state, out.grads, 0.5, 1.0)
    full_state = full.update(full_state, want.grads, 0.5, 1.0)
    np.testing.assert_allclose(state.table.w_VD, full_state.table.w_VD, atol=1e-5)


@pytest.mark.parametrize(
  "head",
  [
    Sampled(sampler=Uniform(), num_samples=10),
    Sampled(sampler=Unigram(per_example=True), num_samples=10),
    Sampled(sampler=PPS(), num_samples=10),
    Sampled(sampler=ExactSet(exact=5), num_samples=10),
    Sampled(sampler=ExactSet(exact=5, per_example=True), num_samples=10),
  ],
)
def test_the_normaliser_is_unbiased(head):
  """Also where draws hit the true class or the exact set: those are masked."""
  h_ND, y = batch()
  state = head.init(KEY, COUNTS, D)
  state = state._replace(table=state.table._replace(w_VD=10 * state.table.w_VD))
  one = lambda h_D, id: head_z(head, state, h_D[None], single_targets(id[None]))
  z_NS = jax.vmap(one)(h_ND, y.ids_NP[:, 0])
  log_z_N = jax.nn.logsumexp(h_ND @ state.table.w_VD[:, :D].T, axis=1)
  ratio_NS = z_NS / jnp.exp(log_z_N)[:, None]
  error_N = ratio_NS.std(axis=1) / np.sqrt(ratio_NS.shape[1])
  assert float(jnp.max(jnp.abs(ratio_NS.mean(axis=1) - 1) / error_N)) < 4.5
  # The test would see the true class counted twice where it is likely enough.
  true_N = jnp.exp(head_true(state, h_ND, y) - log_z_N)
  assert float(jnp.max(true_N / error_N)) > 9


def head_true(state, h_ND, y):
  return jnp.sum(h_ND * state.table.w_VD[y.ids_NP[:, 0], :D], axis=1)


def head_z(head, state, h_ND, y, draws=4000):
  """Estimates Z~ over many draws: exp(loss + o_y)."""
  keys = jax.random.split(jax.random.key(1), draws)
  loss_S = jax.lax.map(lambda k: head.backward(state, h_ND, y, k).loss, keys)
  return jnp.exp(loss_S + head_true(state, h_ND, y))


def test_draws_that_all_hit_the_true_class_leave_nothing_to_learn():
  head = Sampled(sampler=AlwaysClass(target=3), num_samples=6)
  h_ND, _ = batch()
  out = head.backward(head.init(KEY, COUNTS, D), h_ND, single_targets([3] * N), KEY)
  assert float(out.loss) == pytest.approx(0, abs=1e-6)
  assert not out.dh_ND.any()
  assert float(out.sq_norm) == 0


def test_correcting_the_positive_is_tensorflows_formula():
  head = Sampled(sampler=Unigram(), num_samples=9, correct_positive=True)
  h_ND, y = batch(3)
  state = head.init(KEY, COUNTS, D)
  key = jax.random.key(5)
  w_VD = state.table.w_VD[:, :D]
  x_ND = head.features(h_ND)
  draw = head.sampler.sample(state.stats, state.table.w_VD, key, x_ND, y, 9)
  q_V = (COUNTS + 1) / (COUNTS + 1).sum()
  ids_N = np.asarray(y.ids_NP[:, 0])
  true_N1 = (jnp.sum(h_ND * w_VD[ids_N], 1) - np.log(9 * q_V[ids_N]))[:, None]
  o_NM = h_ND @ w_VD[draw.ids].T - np.log(9 * q_V[np.asarray(draw.ids)])[None, :]
  o_NM = jnp.where(draw.ids[None, :] == ids_N[:, None], -jnp.inf, o_NM)
  logits = jnp.concatenate([true_N1, o_NM], axis=1)
  want = jnp.mean(-jax.nn.log_softmax(logits)[:, 0])
  loss = head.backward(state, h_ND, y, key).loss
  assert float(loss) == pytest.approx(float(want), rel=1e-4)


def test_a_label_given_twice_is_that_label():
  h_ND, y = batch()
  twice = y._replace(ids_NP=jnp.repeat(y.ids_NP, 2, axis=1), w_NP=jnp.full((N, 2), 0.5))
  for correct in (False, True):
    head = Sampled(sampler=Unigram(), num_samples=9, correct_positive=correct)
    state = head.init(KEY, COUNTS, D)
    a, b = (head.backward(state, h_ND, t, KEY) for t in (y, twice))
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-6)
    np.testing.assert_allclose(a.dh_ND, b.dh_ND, atol=1e-6)


def test_a_sampler_of_another_model_is_refused():
  with pytest.raises(UserError, match=r"head\.absolute"):
    Sampled(absolute=True, sampler=Softmax())


def test_bfloat16_keeps_rows_and_sums_in_float32():
  head, exact = Sampled(num_samples=16, dtype="bfloat16"), Sampled(num_samples=16)
  h_ND, y = batch()
  state = exact.init(KEY, COUNTS, D)
  a, b = (x.backward(state, h_ND, y, KEY) for x in (head, exact))
  assert a.grads.rows_RD.dtype == a.loss.dtype == jnp.float32
  assert 0 < abs(float(a.loss - b.loss)) < 1e-2 * float(b.loss)
  np.testing.assert_allclose(a.dh_ND, b.dh_ND, atol=2e-3)


def test_a_step_neither_makes_nor_copies_anything_of_the_tables_size():
  head = Sampled(num_samples=64)
  num_classes, dim = 100_000, 64
  counts = np.ones(num_classes, int)
  state = head.init(KEY, counts, dim)
  h_ND = jnp.ones((16, dim))
  y = single_targets(np.arange(16))

  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, 0.1, 1.0), out.dh_ND

  compiled = jax.jit(step, donate_argnums=0).lower(state, h_ND, y, KEY).compile()
  memory = compiled.memory_analysis()
  assert memory.alias_size_in_bytes >= state.table.w_VD.nbytes
  assert memory.temp_size_in_bytes < 2**20


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import single_targets
from largevocab.rows import Adagrad

N, V, D = 8, 64, 7
mesh = jax.make_mesh((4,), ("vocab",), axis_types=(AxisType.Auto,))
by_class = lambda x: NamedSharding(mesh, PartitionSpec("vocab")
                                   if x.ndim and x.shape[0] == V else PartitionSpec())
head = Sampled(num_samples=16, optimizer=Adagrad())
rng = np.random.default_rng(0)

@jax.jit
def step(state, h_ND, y, key):
  out = head.backward(state, h_ND, y, key)
  return head.update(state, out.grads, 0.5, 1.0), out.loss

alone = head.init(jax.random.key(0), np.arange(V, 0, -1), D)
spread = jax.device_put(alone, jax.tree.map(by_class, alone))
assert len(spread.table.w_VD.addressable_shards) == 4
for i in range(3):
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  y = single_targets(rng.integers(0, V, N))
  alone, a = step(alone, h_ND, y, jax.random.key(i))
  spread, b = step(spread, h_ND, y, jax.random.key(i))
  np.testing.assert_allclose(a, b, rtol=1e-5)
  np.testing.assert_allclose(alone.table.w_VD, spread.table.w_VD, atol=1e-5)
assert spread.table.w_VD.sharding.is_equivalent_to(by_class(alone.table.w_VD), 2)
np.testing.assert_allclose(head.evaluate(alone, h_ND, y)["nll"],
                           head.evaluate(spread, h_ND, y)["nll"], rtol=1e-4)
"""


def test_a_table_sharded_over_classes_trains_the_same():
  flags = "--xla_force_host_platform_device_count=4"
  run = subprocess.run(
    [sys.executable, "-c", SHARDED],
    env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == 0, run.stderr
