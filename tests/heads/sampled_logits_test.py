"""Compares the logits of a draw in code without a head with the head."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import Counts, multi_targets, sampled_logits
from largevocab.heads import Sampled
from largevocab.losses import (
  NCE,
  BlackOut,
  NegativeSampling,
  Ranking,
  SampledSoftmax,
  blackout_loss,
  nce_loss,
  sampled_softmax_loss,
)
from largevocab.samplers import IVF, SAMPLERS, Unigram
from largevocab.samplers.base import Draw, NoUpkeep, Size
from tests.long import others_long

N, V, D, M = 6, 40, 8, 24
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
H_ND = jnp.asarray(RNG.normal(size=(N, D)), jnp.float32)
TOKENS = RNG.integers(0, V, 500)
COUNTS = Counts(np.bincount(TOKENS, minlength=V), tokens=TOKENS)
Y = multi_targets([[3, 1], [0, -1], [7, 9], [1, -1], [39, 2], [-1, -1]], num_classes=V)


def of_head(sampler, **fields):
  """Loss, and its dense gradients, of the head, and its table."""
  head = Sampled(sampler=sampler, num_samples=M, bias=False, init_scale=0.5, **fields)
  state = head.init(KEY, COUNTS, D)
  step = jax.jit(head.backward)(state, H_ND, Y, KEY)
  rows = step.grads.rows
  dense_VD = jnp.zeros((V, D)).at[rows.ids_R].add(rows.rows_RD, mode="drop")
  return (step.loss, step.dh_ND, dense_VD), state


def alone(sampler, state):
  def loss(h_ND, w_VD):
    draw = sampler.sample(state.stats, w_VD, KEY, h_ND, Y)
    return sampled_softmax_loss(**sampled_logits(draw, h_ND, w_VD, Y))

  value, grads = jax.jit(jax.value_and_grad(loss, (0, 1)))(H_ND, state.table.w_VD)
  return value, *grads


def made(name):
  """A sampler, but those whose draws the loss may not weigh, or weighs by a set."""
  sampler = SAMPLERS[name]()
  is_like = getattr(sampler, "weighable", True)
  return sampler if is_like and not getattr(sampler, "independent", False) else None


@pytest.mark.parametrize(
  "name",
  others_long(
    [name for name in SAMPLERS if made(name)],
    ["uniform", "pps", "bigram", "softmax", "block"],
  ),
)
def test_loss_and_gradients_equal_those_of_the_head(name):
  want, state = of_head(made(name))
  for a, b in zip(alone(made(name), state), want, strict=True):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


# The lists that IVF probes are summed exactly, also where they have a true class.
NOISE = [Unigram(), Unigram(per_example=True), IVF(clusters=8, probes=3)]


@pytest.mark.parametrize(
  ("name", "sampler"),
  others_long(
    itertools.product(["NCE", "BlackOut"], NOISE),
    [("NCE", NOISE[2]), ("BlackOut", NOISE[1])],
  ),
)
def test_discriminative_losses_equal_those_of_the_head(name, sampler):
  """They differ if hits are masked for NCE, or kept for BlackOut."""
  loss, function = {"NCE": (NCE(), nce_loss), "BlackOut": (BlackOut(), blackout_loss)}[
    name
  ]
  want, state = of_head(sampler, loss=loss)

  def alone(h_ND, w_VD, keep_hits):
    args = state.stats, w_VD
    draw = sampler.sample(*args, KEY, h_ND, Y)
    log_NP = sampler.log_expected(*args, h_ND, Y, Y.ids_NP)
    return function(**sampled_logits(draw, h_ND, w_VD, Y, log_NP, keep_hits))

  both = jax.jit(jax.value_and_grad(alone, (0, 1)), static_argnums=2)
  value, grads = both(H_ND, state.table.w_VD, name == "NCE")
  for a, b in zip((value, *grads), want, strict=True):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
  other, _ = both(H_ND, state.table.w_VD, name != "NCE")
  assert abs(other - value) > 0.01


def test_draws_per_example_are_weighted_by_their_expected_counts():
  """Compares with float64, draw by draw; draws of labels do not count."""
  sampler = Unigram(per_example=True)
  _, state = of_head(sampler)
  w_VD = np.asarray(state.table.w_VD, np.float64)
  draw = sampler.sample(state.stats, state.table.w_VD, KEY, H_ND, Y)
  total = 0.0
  for n in range(N):
    o_V = w_VD @ np.asarray(H_ND[n], np.float64)
    true = [int(c) for c in Y.ids_NP[n] if c >= 0]
    z = sum(np.exp(o_V[c]) for c in true)
    for c, log_expected in zip(draw.ids[n], draw.log_expected[n], strict=True):
      z += np.exp(o_V[c] - log_expected) if int(c) not in true else 0.0
    total += sum((np.log(z) - o_V[c]) / len(true) for c in true)
  assert any(set(draw.ids[n].tolist()) & set(Y.ids_NP[n].tolist()) for n in range(N))
  np.testing.assert_allclose(alone(sampler, state)[0], total / (N - 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_products_are_summed_in_float32(dtype):
  h_ND = np.asarray(H_ND.astype(dtype))  # NumPy's arrays, too
  w_VD = np.asarray(jax.random.normal(KEY, (V, D)).astype(dtype))
  sampler = Unigram(per_example=True)
  stats = sampler.init(COUNTS, jnp.asarray(w_VD), M)
  draw = sampler.sample(stats, jnp.asarray(w_VD), KEY, jnp.asarray(h_ND), Y)
  got = sampled_logits(draw, h_ND, w_VD, Y)
  want_NV = np.float64(h_ND) @ np.float64(w_VD).T
  want_NM = np.take_along_axis(want_NV, np.asarray(draw.ids), axis=1)
  assert got["o_NM"].dtype == got["o_NP"].dtype == jnp.float32
  np.testing.assert_allclose(got["o_NM"], want_NM, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", others_long(["bigram", "softmax", "block"], ["block"]))
def test_draw_within_the_loss_is_a_constant(name):
  sampler = SAMPLERS[name]()
  _, state = of_head(sampler)
  inside = alone(sampler, state)
  draw = sampler.sample(state.stats, state.table.w_VD, KEY, H_ND, Y)
  loss = lambda h_ND, w_VD: sampled_softmax_loss(**sampled_logits(draw, h_ND, w_VD, Y))
  outside = jax.jit(jax.grad(loss, (0, 1)))(H_ND, state.table.w_VD)
  for a, b in zip(inside[1:], outside, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


LOSSES = SampledSoftmax(), NegativeSampling(), Ranking()


@pytest.mark.parametrize(
  ("loss", "wrong", "per_example"),
  others_long(
    itertools.product(LOSSES, [V, -1], [False, True]),
    [(LOSSES[0], V, False), (LOSSES[1], -1, True)],
  ),
)
def test_draw_of_an_invalid_id_makes_the_loss_nan(per_example, wrong, loss):
  """As an invalid label does. A masked draw may be any id."""

  def step(ids_M, mask_M):
    sampler = Given(tuple(ids_M), tuple(mask_M), per_example)
    # V is also what pads labels and exact sets.
    exact = {"exact_batch": True} if loss == SampledSoftmax() else {}
    head = Sampled(sampler=sampler, num_samples=3, loss=loss, **exact)
    return head.backward(head.init(KEY, COUNTS, D), H_ND, Y, KEY).loss

  assert np.isfinite(step([5, 6, 8], [True] * 3))
  assert np.isfinite(step([5, wrong, 8], [True, False, True]))
  assert np.isnan(step([5, wrong, 8], [True] * 3))
  draw = Draw(jnp.array([5, wrong]), jnp.zeros(2), jnp.ones(2, bool))
  logits = sampled_logits(draw, H_ND, jnp.ones((V, D)), Y)
  assert np.isnan(sampled_softmax_loss(**logits))


@dataclasses.dataclass(frozen=True)
class Given(NoUpkeep):
  """Draws the same classes every time."""

  ids: tuple
  mask: tuple
  per_example: bool

  def init(self, counts, w_VD, m):
    return Size(m)

  def sample(self, stats, w_VD, key, h_ND, y):
    shape = (len(h_ND), 3) if self.per_example else (3,)
    spread = lambda x: jnp.broadcast_to(jnp.asarray(x), shape)
    return Draw(spread(self.ids), jnp.zeros(shape), spread(self.mask))

  def log_expected(self, stats, w_VD, h_ND, y, ids_NA):
    return jnp.zeros(ids_NA.shape)
