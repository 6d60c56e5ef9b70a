import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from largevocab.ops.softmax import log_partition
from largevocab.ops.softmax.log_partition import log_normalizer, score_of, softmax_nll
from tests.long import others_long


def problem(N=5, V=11, D=4, dtype=np.float32):
  rng = np.random.default_rng(0)
  h_ND, w_VD = rng.standard_normal((N, D)), rng.standard_normal((V, D))
  return h_ND.astype(dtype), w_VD.astype(dtype)


@pytest.fixture(params=[None, 1500, 1], ids="budget={}".format)
def _chunks(request, monkeypatch):
  """All at once, in chunks of few classes, and in chunks of few examples too."""
  if request.param:
    monkeypatch.setattr(log_partition, "_BUDGET", request.param)
    monkeypatch.setattr(log_partition, "MAX_STEPS", 4)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize(
  ("N", "V", "absolute"),
  others_long(
    [(N, V, a) for N, V in ((5, 11), (1, 11), (5, 1)) for a in (False, True)],
    [(5, 11, True), (1, 11, False), (5, 1, False)],
  ),
)
def test_chunks_give_logsumexp(N, V, absolute):
  h_ND, w_VD = problem(N, V)
  o_NV = h_ND.astype(np.float64) @ w_VD.T.astype(np.float64)
  want_N = scipy.special.logsumexp(np.abs(o_NV) if absolute else o_NV, axis=1)
  got_N = log_normalizer(h_ND, w_VD, score=score_of(absolute))
  np.testing.assert_allclose(got_N, want_N, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_chunks")
def test_large_logits_stay_finite():
  h_ND, w_VD = problem()
  o_NV = 1e4 * h_ND.astype(np.float64) @ w_VD.T.astype(np.float64)
  want_N = scipy.special.logsumexp(o_NV, axis=1)
  np.testing.assert_allclose(log_normalizer(1e4 * h_ND, w_VD), want_N, rtol=1e-5)


@pytest.mark.usefixtures("_chunks")
def test_probabilities_sum_to_1():
  h_ND, w_VD = problem()
  nll = [
    softmax_nll(h_ND, w_VD, np.full((5, 1), c), np.ones((5, 1))) for c in range(11)
  ]
  np.testing.assert_allclose(np.exp(-np.array(nll)).sum(axis=0), 1, rtol=1e-5)


@pytest.mark.usefixtures("_chunks")
def test_nll_is_the_mean_over_true_classes():
  h_ND, w_VD = problem()
  ids_NP = np.array([[1, 2], [3, 11], [4, 4], [11, 11], [0, 10]], np.int32)
  w_NP = np.array([[0.5, 0.5], [2, 0], [1, 3], [0, 0], [0, 0]], np.float32)
  log_p_NV = scipy.special.log_softmax(h_ND @ w_VD.T, axis=1)
  want_N = [
    -(log_p_NV[0, 1] + log_p_NV[0, 2]) / 2,
    -log_p_NV[1, 3],
    -log_p_NV[2, 4],
    0,
    0,
  ]
  nll_N = softmax_nll(h_ND, w_VD, ids_NP, w_NP)
  np.testing.assert_allclose(nll_N, want_N, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_chunks")
def test_change_receives_the_classes_of_its_scores():
  h_ND, w_VD = problem()
  b_V = 3 * np.random.default_rng(1).standard_normal(11).astype(np.float32)
  change = lambda s_NC, ids_C: s_NC + jnp.asarray(b_V)[ids_C][None]
  log_p_NV = scipy.special.log_softmax(h_ND @ w_VD.T + b_V, axis=1)
  want_N = scipy.special.logsumexp(h_ND @ w_VD.T + b_V, axis=1)
  got_N = log_normalizer(h_ND, w_VD, change=change)
  np.testing.assert_allclose(got_N, want_N, rtol=1e-5)
  ids_N1 = np.array([[0], [3], [5], [9], [10]])
  nll_N = softmax_nll(h_ND, w_VD, ids_N1, np.ones((5, 1)), change=change)
  want_N = -np.take_along_axis(log_p_NV, ids_N1, axis=1)[:, 0]
  np.testing.assert_allclose(nll_N, want_N, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_chunks")
def test_bfloat16_operands_are_summed_in_float32():
  h_ND, w_VD = (np.asarray(jnp.bfloat16(x), np.float32) for x in problem(V=3000))
  want_N = scipy.special.logsumexp(h_ND.astype(float) @ w_VD.T.astype(float), axis=1)
  got_N = log_normalizer(h_ND, w_VD, dtype="bfloat16")
  np.testing.assert_allclose(got_N, want_N, rtol=1e-6)


@pytest.mark.parametrize("V", others_long([3000, 4096, 4097, 4104], [4096, 4104]))
def test_default_chunks_hold_each_class_once(V, monkeypatch):
  monkeypatch.setattr("largevocab.ops.softmax.plan._CACHE_BYTES", 4096)
  h_ND, w_VD = problem(V=V)
  log_p_NV = scipy.special.log_softmax(h_ND @ w_VD.T, axis=1)
  ids_NP = np.random.default_rng(1).integers(0, V, (5, 300))
  ids_NP[:, 0], ids_NP[:, 1] = 0, V - 1
  for p in range(0, 300, 30):
    nll_N = softmax_nll(h_ND, w_VD, ids_NP[:, p : p + 2], np.full((5, 2), 0.5))
    want_N = -np.take_along_axis(log_p_NV, ids_NP[:, p : p + 2], axis=1).mean(axis=1)
    np.testing.assert_allclose(nll_N, want_N, rtol=1e-5)


def test_never_holds_all_logits():
  N, V, D = 256, 50_000, 8
  h_ND, w_VD = jnp.zeros((N, D)), jnp.zeros((V, D))
  compiled = jax.jit(log_normalizer).lower(h_ND, w_VD).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < 4 * N * V / 2


def test_many_examples_and_many_classes_stay_within_the_budget():
  N, V, D = 65_536, 4_000_000, 8
  of = lambda *shape, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype)
  args = of(N, D), of(V, D), of(N, 1, dtype=jnp.int32), of(N, 1)
  memory = jax.jit(softmax_nll).lower(*args).compile().memory_analysis()
  assert 128 * 2**20 < memory.temp_size_in_bytes < 512 * 2**20
