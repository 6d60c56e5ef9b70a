import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.ops.softmax.top_k import top_k
from tests.long import others_long


def top_k_naive(h_ND, w_VD, k, score=jnp.positive):
  """Computes all logits at once."""
  best_NK, ids_NK = jax.lax.top_k(score(h_ND @ w_VD.T), k)
  return ids_NK, best_NK


SIZES = [
  (3, 11, 1, 4),
  (3, 11, 5, 4),
  (3, 11, 11, 4),
  (1, 11, 3, 1),
  (2, 1, 1, 8),
  (3, 48, 7, 20),
  (3, 999, 2, 300),
  (2, 4096, 3, 1024),
  (2, 2176, 1, 4096),
]
SCORES = jnp.positive, jnp.abs


@pytest.mark.parametrize(
  ("N", "V", "k", "size", "score"),
  others_long(
    [(*of, score) for of in SIZES for score in SCORES],
    [(*of, SCORES[i % 2]) for i, of in enumerate(SIZES)],
  ),
)
def test_streamed_equals_naive(N, V, k, size, score):
  rng = np.random.default_rng(0)
  # Few distinct logits, so that there are ties.
  h_ND = rng.integers(-1, 2, (N, 2)).astype(np.float32)
  w_VD = rng.integers(-2, 3, (V, 2)).astype(np.float32)
  ids_NK, o_NK = top_k(h_ND, w_VD, k, size=size, score=score)
  want_ids_NK, want_o_NK = top_k_naive(h_ND, w_VD, k, score=score)
  assert ids_NK.dtype == jnp.int32
  np.testing.assert_array_equal(ids_NK, want_ids_NK)
  np.testing.assert_array_equal(o_NK, want_o_NK)


@pytest.mark.parametrize("size", [4, None])
def test_change_receives_the_classes_of_its_scores(size):
  rng = np.random.default_rng(2)
  h_ND, w_VD = (rng.standard_normal((n, 3)).astype(np.float32) for n in (4, 11))
  b_V = 3 * rng.standard_normal(11).astype(np.float32)
  change = lambda s_NC, ids_C: s_NC + jnp.asarray(b_V)[ids_C][None]
  ids_NK, s_NK = top_k(h_ND, w_VD, 3, size=size, change=change)
  s_NV = h_ND @ w_VD.T + b_V
  want_NK = np.argsort(-s_NV, axis=1)[:, :3]
  np.testing.assert_array_equal(ids_NK, want_NK)
  np.testing.assert_allclose(s_NK, np.take_along_axis(s_NV, want_NK, 1), rtol=1e-5)


def test_naive_top_k_equals_stable_sorting():
  rng = np.random.default_rng(1)
  h_ND = rng.integers(-1, 2, (4, 3)).astype(np.float32)
  w_VD = rng.integers(-2, 3, (30, 3)).astype(np.float32)
  o_NV = h_ND @ w_VD.T
  ids_NV = np.argsort(-o_NV, axis=1, kind="stable")
  np.testing.assert_array_equal(top_k_naive(h_ND, w_VD, 7)[0], ids_NV[:, :7])


def test_large_and_equal_logits_are_sorted():
  h_ND, w_VD = np.full((2, 1), 100.0, np.float32), np.full((9, 1), -100, np.float32)
  ids_NK, o_NK = top_k(h_ND, w_VD, 4, size=4)
  assert ids_NK.tolist() == [[0, 1, 2, 3]] * 2
  np.testing.assert_array_equal(o_NK, -1e4)


def test_nan_of_either_sign_comes_first():
  w_V = np.array([1, -np.nan, 2, np.nan, -1], np.float32)
  ids_NK, o_NK = top_k(np.ones((1, 1), np.float32), w_V[:, None], 2)
  assert ids_NK.tolist() == [[1, 3]]
  assert np.isnan(o_NK).all()


def test_nan_comes_first_in_blocks_of_classes_too():
  w_V = np.zeros(1024, np.float32)
  w_V[[700, 900]] = -np.nan, np.nan
  ids_NK, _ = top_k(np.ones((1, 1), np.float32), w_V[:, None], 3)
  assert ids_NK.tolist() == [[700, 900, 0]]


def test_bfloat16_logits_are_summed_in_float32():
  rng = np.random.default_rng(0)
  h_ND, w_VD = rng.standard_normal((3, 16)), rng.standard_normal((50, 16))
  h_ND, w_VD = (np.asarray(jnp.bfloat16(x), np.float32) for x in (h_ND, w_VD))
  ids_NK, o_NK = top_k(h_ND, w_VD, 5, size=16, dtype="bfloat16")
  want_ids_NK, want_o_NK = top_k_naive(h_ND, w_VD, 5)
  np.testing.assert_array_equal(ids_NK, want_ids_NK)
  np.testing.assert_allclose(o_NK, want_o_NK, rtol=1e-6, atol=1e-6)


def test_never_holds_all_logits():
  N, V = 256, 50_000
  f = jax.jit(lambda h_ND, w_VD: top_k(h_ND, w_VD, 5))
  compiled = f.lower(jnp.zeros((N, 4)), jnp.zeros((V, 4))).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < 4 * N * V / 2


@pytest.mark.parametrize("k", [0, 12])
def test_k_outside_the_classes_is_refused(k):
  with pytest.raises(ValueError, match="k must be in 1"):
    top_k(jnp.zeros((2, 3)), jnp.zeros((11, 3)), k)


@pytest.mark.parametrize("k", [3.0, "3", None])
def test_k_that_is_not_a_number_is_refused(k):
  with pytest.raises(UserError, match=r"k is of type .*pass a whole number"):
    top_k(jnp.zeros((2, 3)), jnp.zeros((11, 3)), k)
