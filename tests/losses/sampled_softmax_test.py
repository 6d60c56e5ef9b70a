import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.losses import complement_weights, sampled_softmax_loss
from largevocab.losses.importance_weights import log_normalizer_ratio
from largevocab.ops.accidental_hits import is_first
from tests.long import others_long

pytestmark = pytest.mark.usefixtures("x64")


def _case(seed=0, num=4, labels=3, samples=6):
  rng = np.random.default_rng(seed)
  o_NP = jnp.asarray(rng.standard_normal((num, labels)))
  w_NP = jnp.asarray(rng.uniform(0, 1, (num, labels)))
  true_NP = jnp.asarray(rng.random((num, labels)) < 0.7).at[:, 0].set(True)
  o_NM = jnp.asarray(rng.standard_normal((num, samples)))
  log_expected_NM = jnp.asarray(rng.standard_normal((num, samples)))
  mask_NM = jnp.asarray(rng.random((num, samples)) < 0.7)
  return o_NP, jnp.where(true_NP, w_NP, 0), true_NP, o_NM, log_expected_NM, mask_NM


def _naive(o_NP, w_NP, true_NP, o_NM, log_expected_NM, mask_NM):
  loss = 0.0
  for n in range(len(o_NP)):
    z = sum(np.exp(o_NP[n, p]) for p in range(o_NP.shape[1]) if true_NP[n, p])
    for m in range(o_NM.shape[1]):
      if mask_NM[n, m]:
        z += np.exp(o_NM[n, m]) / np.exp(log_expected_NM[n, m])
    loss += sum(w * (np.log(z) - o) for w, o in zip(w_NP[n], o_NP[n], strict=True))
  return loss


@pytest.mark.parametrize("seed", range(3))
def test_loss_equals_the_sum_written_out(seed):
  case = _case(seed)
  want = _naive(*map(np.asarray, case))
  np.testing.assert_allclose(sampled_softmax_loss(*case), want, rtol=1e-12)


def test_gradient_equals_the_weighted_softmax():
  o_NP, w_NP, true_NP, o_NM, log_expected_NM, mask_NM = _case()
  loss = lambda o_NP, o_NM: sampled_softmax_loss(
    o_NP, w_NP, true_NP, o_NM, log_expected_NM, mask_NM
  )
  do_NP, do_NM = jax.grad(loss, (0, 1))(o_NP, o_NM)
  share_NP = jnp.where(true_NP, jnp.exp(o_NP), 0)
  share_NM = jnp.where(mask_NM, jnp.exp(o_NM - log_expected_NM), 0)
  z_N = share_NP.sum(1) + share_NM.sum(1)
  scale_N1 = (w_NP.sum(1) / z_N)[:, None]
  np.testing.assert_allclose(do_NP, scale_N1 * share_NP - w_NP, rtol=1e-12)
  np.testing.assert_allclose(do_NM, scale_N1 * share_NM, rtol=1e-12)


def test_loss_of_one_true_class_without_draws_is_zero():
  o = jnp.full((1, 1), 5.0)
  yes, no = jnp.ones((1, 1), bool), jnp.zeros((1, 4), bool)
  loss = lambda o: sampled_softmax_loss(
    o, jnp.ones((1, 1)), yes, jnp.zeros((1, 4)), jnp.zeros((1, 4)), no
  )
  value, grad = jax.value_and_grad(loss)(o)
  assert value == 0
  assert grad[0, 0] == 0


logits = st.lists(st.floats(-30, 30), min_size=6, max_size=6)


@jax.jit
def _gradients(o_NP, o_NM, log_e_NM):
  """Compiled once: of one label and some candidates."""
  one, yes = jnp.ones((1, 1)), jnp.ones((1, 1), bool)

  def loss(o_NP, o_NM):
    mask_NM = jnp.ones(o_NM.shape, bool)
    return sampled_softmax_loss(o_NP, one, yes, o_NM, log_e_NM, mask_NM)

  return jax.grad(loss, (0, 1))(o_NP, o_NM)


@settings(max_examples=100, deadline=None)
@given(logits, st.integers(0, 6), st.lists(st.floats(-12, 0), min_size=8, max_size=8))
def test_coefficients_are_bounded_and_have_the_right_sign(o, num_exact, log_expected):
  """gamma = -d loss / d o is in [-1, 1], sums to 0, and has the sign of the exact one:
  Barber & Botev 2016, equations 26 and 28. Some classes are exact, others drawn,
  maybe twice."""
  others = np.array(o[1:] + o[-1:])  # the last class is drawn twice
  log_e = np.array([*log_expected, 0.0])[: len(others)]
  log_e[:num_exact] = 0
  d_NP, d_NM = _gradients(jnp.array([[o[0]]]), others[None], log_e[None])
  of_class = np.append(d_NM[0, :-2], d_NM[0, -2:].sum())
  true, gamma = -float(d_NP[0, 0]), -of_class
  exact = np.exp(np.array(o) - max(o))
  exact = np.eye(len(o))[0] - exact / exact.sum()
  assert 0 <= true <= 1 + 1e-12
  assert (np.abs(gamma) <= 1 + 1e-12).all()
  np.testing.assert_allclose(true + gamma.sum(), 0, atol=1e-12)
  assert (np.sign(gamma) * np.sign(exact[1:]) >= 0).all()
  assert np.sign(true) * np.sign(exact[0]) >= 0


def test_ratio_equals_that_of_the_normalisers_in_the_loss():
  rng = np.random.default_rng(0)
  o_NV = jnp.asarray(rng.standard_normal((5, 20)))
  ids_NP = jnp.asarray(rng.integers(0, 20, (5, 2)))
  true_NP = is_first(ids_NP)
  ids_NM = jnp.asarray(rng.integers(0, 20, (5, 7)))
  log_e_NM = jnp.asarray(rng.standard_normal((5, 7)))
  mask_NM = jnp.asarray(rng.random((5, 7)) < 0.7)
  log_ratio_N = log_normalizer_ratio(
    jax.nn.log_softmax(o_NV), ids_NP, true_NP, ids_NM, log_e_NM, mask_NM
  )
  ratio_N = jnp.exp(log_ratio_N)
  at = lambda ids: jnp.take_along_axis(o_NV, ids, axis=1)
  for n in range(5):
    w_NP = jnp.zeros((5, 2)).at[n, 0].set(1.0)
    loss = sampled_softmax_loss(
      at(ids_NP), w_NP, true_NP, at(ids_NM), log_e_NM, mask_NM
    )
    z = jnp.exp(loss + at(ids_NP)[n, 0])
    np.testing.assert_allclose(ratio_N[n], z / jnp.exp(o_NV[n]).sum(), rtol=1e-12)


def _every_draw(q_V, exact, m, conditional):
  """All V^m draws: probability of each, and logits' weights in Z~, f64[draws, V]."""
  ids_SM = np.array(list(itertools.product(range(len(q_V)), repeat=m)))
  is_exact_V = np.isin(np.arange(len(q_V)), exact)
  drawn_SV = (
    (ids_SM[:, :, None] == np.arange(len(q_V))).sum(1) * ~is_exact_V / (m * q_V)
  )
  if not conditional:
    return q_V[ids_SM].prod(1), drawn_SV + is_exact_V
  kept_S = jnp.asarray((~is_exact_V[ids_SM]).sum(1))
  share_S = jnp.full(len(ids_SM), q_V[is_exact_V].sum())
  log_exact_S, log_drawn_S = complement_weights(share_S, kept_S, m)
  exact_S1, drawn_S1 = (np.exp(x)[:, None] for x in (log_exact_S, log_drawn_S))
  return q_V[ids_SM].prod(1), exact_S1 * is_exact_V + drawn_S1 * drawn_SV


LAWS = {
  "softmax": lambda o: np.exp(o),
  "quadratic": lambda o: 0.5 * o**2 + 1,
  "unigram": lambda o: 1 / np.arange(1.0, len(o) + 1),
  "uniform": lambda o: np.ones(len(o)),
}


@pytest.mark.parametrize(
  ("law", "exact", "m"),
  others_long(
    itertools.product(LAWS, [[0], [1, 3]], [1, 2, 5]),
    [*((law, [1, 3], 2) for law in LAWS), ("softmax", [0], 1), ("unigram", [0], 5)],
  ),
)
def test_draws_weighted_by_misses_of_the_exact_set_are_unbiased(law, exact, m):
  """By enumeration: E Z~ and E dZ~/do are Z and exp(o) for any law; where the law is
  the softmax, Z~ is Z in each draw. A hit of every draw included."""
  o_V = np.random.default_rng(m).standard_normal(5)
  q_V = LAWS[law](o_V)
  q_V /= q_V.sum()
  p_S, weight_SV = _every_draw(q_V, exact, m, conditional=True)
  np.testing.assert_allclose(p_S @ weight_SV, 1, rtol=1e-9)
  z_S = weight_SV @ np.exp(o_V)
  if law == "softmax":
    np.testing.assert_allclose(z_S, np.exp(o_V).sum(), rtol=1e-9)
    gradient_SV = weight_SV * np.exp(o_V) / z_S[:, None]
    np.testing.assert_allclose(p_S @ gradient_SV, q_V, rtol=1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_variance_is_smaller_than_with_weights_of_the_plain_law(law):
  """By enumeration, for the same draws; with the law of the softmax it is 0, where the
  plain weights have p_y (1 - p_y) / m."""
  m, o_V = 6, 0.8 * np.random.default_rng(0).standard_normal(5)
  q_V = LAWS[law](o_V)
  q_V /= q_V.sum()
  p_V = np.exp(o_V) / np.exp(o_V).sum()
  variances = []
  for conditional in (True, False):
    p_S, weight_SV = _every_draw(q_V, [0], m, conditional)
    variances.append(p_S @ (weight_SV @ p_V - 1) ** 2)
  assert variances[0] < variances[1]
  if law == "softmax":
    assert variances[0] < 1e-15
    assert variances[1] == pytest.approx(p_V[0] * (1 - p_V[0]) / m)


@pytest.mark.parametrize("share", [0.0, 1e-12, 0.5, 1 - 1e-9, 1.0])
def test_weights_are_finite_for_any_share_of_the_exact_set(share):
  for dtype, m in itertools.product((jnp.float32, jnp.float64), (1, 3, 1000)):
    share_N, kept_N = jnp.full(3, share, dtype), jnp.array([0, 1, m])
    log_exact_N, log_drawn_N = complement_weights(share_N, kept_N, m)
    assert np.isfinite(log_exact_N).all()
    assert np.isfinite(log_drawn_N).all()
    # f (1 - a) m / k lies between 1 / k, where a is 1, and m / k, where it is 0.
    drawn_N = np.exp(log_drawn_N[1:]) * np.maximum(kept_N[1:], 1)
    assert (drawn_N > 0.999).all()
    assert (drawn_N < 1.001 * m).all()


def probability(o_true, o_M, kappa):
  """p~ of the true class, from the gradient; all others have weights kappa."""
  one, yes = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
  loss = lambda o_NP: sampled_softmax_loss(
    o_NP,
    one,
    yes,
    o_M[None],
    jnp.full((1, 1), -jnp.log(kappa)),
    yes.repeat(len(o_M), 1),
  )
  return 1 + float(jax.grad(loss)(jnp.full((1, 1), o_true))[0, 0])


@pytest.mark.parametrize("o_true", [-1.0, 3.0, 9.0])
def test_bias_of_probabilities_equals_equation_27(o_true):
  """To first order in 1 - kappa it is p times the mass of the others: little, where the
  model is sure of the label."""
  o_M = jnp.array([0.3, -0.5, 1.0])
  p = float(jax.nn.softmax(jnp.append(o_M, o_true))[-1])
  small = 1e-4
  bias = probability(o_true, o_M, 1 - small) - p
  np.testing.assert_allclose(bias / small, p * (1 - p), rtol=1e-3)
  np.testing.assert_allclose(probability(o_true, o_M, 1.0), p, rtol=1e-12)
  rest = np.exp(o_M - o_true).sum()  # equation 28: the sign is right with any weights
  for kappa in (1e-3, 0.5, 1e3):
    found = probability(o_true, o_M, kappa)
    np.testing.assert_allclose(found, 1 / (1 + kappa * rest), rtol=1e-10)
    assert 0 < found < 1
