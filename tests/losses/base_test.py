"""Losses as settings of a head: each is the formula of its own test, at the scores, the
weights and the numbers of a batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.heads import Sampled
from largevocab.labels import Counts, Targets
from largevocab.losses import (
  NCE,
  SAMPLED_LOSSES,
  BlackOut,
  Importance,
  NegativeSampling,
  Ranking,
  SampledSoftmax,
  UpperBound,
)
from largevocab.samplers import Bernoulli, Unigram
from tests.long import others_long
from tests.losses import (
  blackout_test,
  importance_test,
  nce_test,
  negative_sampling_test,
  ranking_test,
  sampled_softmax_test,
  upper_bound_test,
)

N, V, D, M = 5, 23, 4, 7
KEY = jax.random.key(3)


class Batch:
  """What losses read of a batch, from the definition: float64, outside any head.

  Attributes:
    hits_NM: which drawn classes are true ones; mask_NM: which count besides those.
    context_N: of `Targets`.
    others as of `Scores`.
  """

  def __init__(self, sampler):
    rng = np.random.default_rng(0)
    counts = Counts(rng.integers(1, 50, V))
    h_ND, w_VD = rng.standard_normal((N, D)), rng.standard_normal((V, D))
    self.ids_NP = np.array([[4, 2], [7, V], [V, 0], [22, 9], [2, 4]], np.int32)
    w_NP = np.where(self.ids_NP < V, rng.uniform(0.2, 1, (N, 2)), 0)
    self.context_N = np.array([0, 3, 1, 2, 22])
    self.h_ND, self.w_VD, self.counts = np.float32(h_ND), np.float32(w_VD), counts
    self.y = Targets(
      jnp.asarray(self.ids_NP),
      jnp.asarray(w_NP, jnp.float32),
      jnp.asarray(self.context_N, jnp.int32),
    )
    self.w_NP = w_NP / w_NP.sum()
    stats = sampler.init(counts, self.w_VD, M)
    args = stats, jnp.asarray(self.w_VD)
    draw = sampler.sample(*args, KEY, jnp.asarray(self.h_ND), self.y)
    assert draw.exact_ids is None
    width = draw.ids.shape[-1]
    each = lambda x: np.broadcast_to(x, (N, width))
    self.ids_NM, self.mask_NM = each(draw.ids), each(draw.mask)
    self.log_expected_NM = each(draw.log_expected).astype(float)
    log_expected_NP = sampler.log_expected(
      *args, jnp.asarray(self.h_ND), self.y, self.y.ids_NP
    )
    self.true_NP = self.ids_NP < V
    self.log_expected_NP = np.where(self.true_NP, log_expected_NP, 0).astype(float)
    o_NV = self.h_ND.astype(float) @ self.w_VD.T.astype(float)
    at = lambda ids: np.take_along_axis(o_NV, np.minimum(ids, V - 1), axis=1)
    self.o_NP, self.o_NM = at(self.ids_NP), at(self.ids_NM)
    self.hits_NM = np.array(
      [np.isin(*row) for row in zip(self.ids_NM, self.ids_NP, strict=True)]
    )


def softmax_inputs(b):
  return b.o_NP, b.w_NP, b.true_NP, b.o_NM, b.log_expected_NM, b.mask_NM & ~b.hits_NM


def nce(b, z_N):
  of_noise = b.log_expected_NM, b.mask_NM
  return nce_test.naive_nce(
    b.o_NP - z_N[:, None], b.w_NP, b.log_expected_NP, b.o_NM - z_N[:, None], *of_noise
  )


def corrected_positive(b):
  o_NP, *others = softmax_inputs(b)
  return sampled_softmax_test._naive(o_NP - b.log_expected_NP, *others)


def active_set(b):
  """Each class once."""
  first_NM = np.array(
    [[x not in r[:i] for i, x in enumerate(r)] for r in b.ids_NM.tolist()]
  )
  *others, mask_NM = softmax_inputs(b)
  others[-1] = np.zeros(first_NM.shape)
  return sampled_softmax_test._naive(*others, mask_NM & first_NM)


def ranking(b, alpha, penalty):
  return ranking_test.naive(
    b.o_NP, b.w_NP, b.o_NM, b.mask_NM & ~b.hits_NM, alpha, penalty
  )


def negative_sampling(b, share=1.0):
  rate, t = M / (V - 1), 0.6
  weight = rate * (t * (1 - 1 / rate) + 1 / rate)
  return negative_sampling_test.naive(
    b.o_NP, b.w_NP, b.o_NM, b.mask_NM & ~b.hits_NM, weight, share
  )


def blackout(b):
  return blackout_test.naive(
    *(b.o_NP, b.w_NP, b.log_expected_NP),
    *(b.o_NM, b.log_expected_NM, b.mask_NM & ~b.hits_NM),
  )


def importance(b):
  return importance_test.naive(b.o_NP, b.w_NP, b.o_NM, b.log_expected_NM, b.mask_NM)


LOG_Z = np.array([0.5, -1.0, 2.0, 0.3])  # learned, of contexts 0, 1, 2 and all others
# Draws of the batch, with repetitions; those of UpperBound are a set.
NOISE = Unigram(power=0.6)
SOFTMAX = lambda b: sampled_softmax_test._naive(*softmax_inputs(b))
CASES = {
  "softmax": (SampledSoftmax(), NOISE, SOFTMAX),
  "positive corrected": (
    SampledSoftmax(correct_positive=True),
    NOISE,
    corrected_positive,
  ),
  "active set": (SampledSoftmax(corrected=False), NOISE, active_set),
  "nce": (NCE(), NOISE, lambda b: nce(b, np.zeros(N))),
  "nce, z of contexts": (
    NCE(normalizer="context", num_contexts=4),
    NOISE,
    lambda b: nce(b, LOG_Z[np.minimum(b.context_N, 3)]),
  ),
  "negative_sampling": (NegativeSampling(calibration=0.6), NOISE, negative_sampling),
  "negative_sampling, mean": (
    NegativeSampling(calibration=0.6, mean=True),
    NOISE,
    lambda b: negative_sampling(b, 1 / M),
  ),
  "ranking": (Ranking("hinge", 2.5), NOISE, lambda b: ranking(b, 2.5, "hinge")),
  "ranking, log(V-1)": (
    Ranking(),
    NOISE,
    lambda b: ranking(b, np.log(V - 1), "log"),
  ),
  "blackout": (BlackOut(), NOISE, blackout),
  "upper_bound": (
    UpperBound(),
    Bernoulli(),
    lambda b: upper_bound_test.naive(*softmax_inputs(b), V),
  ),
  "importance": (Importance(), NOISE, importance),
}


def test_every_loss_has_a_case():
  assert {type(loss) for loss, _, _ in CASES.values()} == set(SAMPLED_LOSSES.values())


@functools.cache
def batch(sampler):
  return Batch(sampler)


FIRST = ("positive corrected", "nce, z of contexts", "ranking", "importance")


@pytest.mark.parametrize("name", others_long(CASES, FIRST))
def test_head_uses_the_formula_of_its_loss(name):
  loss, sampler, naive = CASES[name]
  b = batch(sampler)
  assert (b.hits_NM & b.mask_NM).any()
  head = Sampled(loss=loss, sampler=sampler, num_samples=M, bias=False)
  state = head.init_state(head.optimizer.init(jnp.asarray(b.w_VD)), b.counts)
  if state.log_z is not None:
    log_z = state.log_z._replace(w_VD=jnp.asarray(LOG_Z[:, None], jnp.float32))
    state = state._replace(log_z=log_z)
  got = jax.jit(head.backward)(state, jnp.asarray(b.h_ND), b.y, KEY).loss
  with jax.enable_x64(True):
    want = naive(b)
  np.testing.assert_allclose(got, want, rtol=1e-5)
