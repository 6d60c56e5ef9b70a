"""Tests what sampled heads report about their estimates."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from largevocab.heads import Full, Sampled, Spherical, diagnostics
from largevocab.labels import single_targets
from largevocab.losses import NCE, SampledSoftmax
from largevocab.samplers import PPS, SCE, Bernoulli, Softmax, Uniform, Unigram
from tests.heads.compiled import monitor
from tests.long import others_long

N, V, D, M = 40, 50, 6, 20
COUNTS = np.arange(V, 0, -1)
KEYS = 20


def problem(head):
  rng = np.random.default_rng(0)
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  y = single_targets(rng.integers(0, V, N))
  state = head.init(jax.random.key(0), COUNTS, D)
  w_VD = jnp.asarray(rng.standard_normal(state.table.w_VD.shape) * 0.6, jnp.float32)
  state = state._replace(table=state.table._replace(w_VD=w_VD))
  return state, h_ND, y


def monitored(head, problem):
  """Means of the monitor over several draws."""
  keys = jax.random.split(jax.random.key(3), KEYS)
  seen = jax.jit(jax.vmap(lambda key: head.monitor(*problem, key)))(keys)
  return {key: float(value.mean()) for key, value in seen.items()}


def exact(head, problem, q_V, exact_ids=()):
  """relvar and chi2 by their formulas for independent draws, in float64."""
  state, h_ND, y = problem
  at_N = np.linspace(0, N - 1, 32).astype(int)
  o_NV = np.asarray(head.features(h_ND) @ state.table.w_VD.T, np.float64)[at_N]
  p_NV = np.exp(o_NV) / np.exp(o_NV).sum(1, keepdims=True)
  rest_NV = p_NV.copy()
  rest_NV[np.arange(len(at_N)), np.asarray(y.ids_NP)[at_N, 0]] = 0
  rest_NV[:, list(exact_ids)] = 0
  relvar_N = ((rest_NV**2 / q_V).sum(1) - rest_NV.sum(1) ** 2) / M
  if head.sampler.independent:
    relvar_N = conditional_relvar(p_NV, rest_NV, q_V)
  return relvar_N.mean(), ((p_NV - q_V) ** 2 / q_V).sum(1).mean()


def conditional_relvar(p_NV, rest_NV, q_V):
  """Of (1 - f) E / a + f (E + R), see `complement_weights`, with k of M draws outside
  the exact set, a binomial number."""
  share_N = np.where(rest_NV == 0, q_V, 0).sum(1)
  exact_N, rest_N = 1 - rest_NV.sum(1), rest_NV.sum(1)
  f_N, k_K = 1 / (1 - share_N**M), np.arange(1, M + 1)
  chance_NK = scipy.stats.binom.pmf(k_K, M, 1 - share_N[:, None])
  one_draw_N = (1 - share_N) * (rest_NV**2 / q_V).sum(1) - rest_N**2
  within_N = f_N**2 * (chance_NK / k_K).sum(1) * one_draw_N
  between_N = (f_N - 1) * (rest_N - exact_N * (1 - share_N) / share_N) ** 2
  return within_N + between_N


@pytest.mark.parametrize(
  ("frequent", "per_example"),
  others_long(itertools.product([0, 10], [False, True]), [(0, True), (10, False)]),
)
def test_monitor_measures_the_variance_of_the_theory(per_example, frequent):
  sampler = Unigram(per_example=per_example)
  head = Sampled(sampler=sampler, num_samples=M, exact_frequent=frequent)
  case = problem(head)
  got = monitored(head, case)
  q_V = (COUNTS + 1) / (COUNTS + 1).sum()
  relvar, chi2 = exact(head, case, q_V, range(frequent))
  assert got["relvar"] == pytest.approx(relvar, rel=0.1)
  assert got["chi2"] == pytest.approx(chi2, rel=1e-4)
  # E log(1 + e) = -relvar / 2 to first order.
  assert -0.75 * relvar < got["log_z_bias"] < -0.3 * relvar


def test_chi2_counts_each_class_once_in_chunks(monkeypatch):
  """The last chunk of 50 classes repeats some of the one before."""
  monkeypatch.setattr(diagnostics, "_CLASSES", 16)
  head = Sampled(sampler=Unigram(), num_samples=M)
  case = problem(head)
  _, chi2 = exact(head, case, (COUNTS + 1) / (COUNTS + 1).sum())
  got = jax.jit(head.monitor)(*case, jax.random.key(3))["chi2"]
  assert float(got) == pytest.approx(chi2, rel=1e-4)


def test_no_bias_is_reported_for_losses_with_another_bias():
  for loss in (SampledSoftmax(correct_positive=True), NCE()):
    head = Sampled(loss=loss, num_samples=M)
    assert "log_z_bias" not in monitored(head, problem(head))


def test_empty_sets_and_confident_models_stay_finite():
  """Without draws Z~ may be 0; a logit of 1e4 leaves e^-1e4 of Z to the others."""
  head = Sampled(sampler=Bernoulli(), num_samples=2)
  state, h_ND, y = problem(head)
  y = y._replace(w_NP=y.w_NP.at[::2].set(0), ids_NP=y.ids_NP.at[::2].set(V))
  for scale in (1.0, 2e4):
    w_VD = scale * state.table.w_VD
    case = state._replace(table=state.table._replace(w_VD=w_VD)), h_ND, y
    got = monitored(head, case)
    assert np.isfinite(got["log_z_bias"])
    assert np.isfinite(got["relvar"])


def test_other_heads_report_the_variance_of_a_sampled_softmax():
  """The noise of `nce` may contain the label; the monitor's estimate leaves it out."""
  sampler = Uniform(per_example=True)
  for head in (
    Sampled(sampler=sampler, num_samples=M),
    Sampled(loss=NCE(), sampler=sampler, num_samples=M),
  ):
    case = problem(head)
    relvar, _ = exact(head, case, np.full(V, 1 / V))
    assert monitored(head, case)["relvar"] == pytest.approx(relvar, rel=0.1)


def test_exact_sums_have_no_variance():
  head = Sampled(sampler=PPS(), num_samples=V)
  got = monitored(head, problem(head))
  assert got["relvar"] == pytest.approx(0, abs=1e-9)
  assert got["log_z_bias"] == pytest.approx(0, abs=1e-5)
  head = Sampled(sampler=Softmax(), num_samples=M)
  assert monitored(head, problem(head))["chi2"] == pytest.approx(0, abs=1e-4)


def test_exact_set_of_the_batch_contains_all_its_labels():
  """The labels of 40 examples leave only ten of 50 classes to be drawn."""
  head = Sampled(sampler=Uniform(), num_samples=M, exact_batch=True)
  state, h_ND, _ = problem(head)
  y = single_targets(np.arange(N) % V)
  got = monitored(head, (state, h_ND, y))
  relvar, _ = exact(head, (state, h_ND, y), np.full(V, 1 / V), range(N))
  assert got["relvar"] == pytest.approx(relvar, rel=0.15)


def test_heads_without_estimates_report_nothing():
  head = Full()
  assert head.monitor(*problem(head), jax.random.key(0)) == {}


def test_examples_count_by_the_absolute_value_of_their_weight():
  head = Sampled(num_samples=M)
  state, h_ND, y = problem(head)
  sign_N1 = jnp.where(jnp.arange(N) % 3, 1.0, -2.0)[:, None]
  signed, plain = (
    monitor(head, state, h_ND, y._replace(w_NP=w_NP), jax.random.key(0))
    for w_NP in (sign_N1, jnp.abs(sign_N1))
  )
  for key, value in plain.items():
    np.testing.assert_allclose(signed[key], value, rtol=1e-5)


def test_batch_without_weight_has_no_measurement():
  head = Sampled(num_samples=M)
  state, h_ND, y = problem(head)
  y = y._replace(w_NP=jnp.zeros_like(y.w_NP))
  got = monitor(head, state, h_ND, y, jax.random.key(0))
  assert got
  assert all(np.isnan(value) for value in got.values())


@pytest.mark.parametrize("head", [Sampled(sampler=SCE()), Sampled(), Spherical()])
def test_examples_without_weight_are_not_monitored(head):
  """Their activations may be NaN, and those that have a weight may be few."""
  head = dataclasses.replace(head, init_scale=1.0)
  state = head.init(jax.random.key(0), COUNTS, D)
  h_ND = jax.random.normal(jax.random.key(1), (100, D))
  w_NP = jnp.zeros((100, 1)).at[1:3].set(1.0)
  y = single_targets(np.arange(100) % V)._replace(w_NP=w_NP)
  seen = [
    monitor(head, state, jnp.where(w_NP > 0, h_ND, ignored), y, jax.random.key(0))
    for ignored in (0.0, 1.0, jnp.nan)
  ]
  assert not any(np.isnan(value) for value in seen[0].values())
  assert seen[0].get("chi2", 1.0) > 0
  assert seen[0] == seen[1] == seen[2]
