"""Compares the exact softmax loss with that of optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab.losses import absolute_logit, softmax_cross_entropy

N, D, V = 6, 5, 40
RNG = np.random.default_rng(0)
H_ND = jnp.asarray(RNG.normal(size=(N, D)), jnp.float32)
W_VD = jnp.asarray(RNG.normal(size=(V, D)), jnp.float32)
IDS_N = jnp.asarray(RNG.integers(0, V, N), jnp.int32)


def naive(h_ND, w_VD):
  return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(h_ND @ w_VD.T, IDS_N))


@pytest.mark.parametrize("budget_mib", [0.001, 64])
def test_loss_equals_the_cross_entropy_of_optax(budget_mib):
  def mean(h_ND, w_VD):
    w_NP = jnp.full((N, 1), 1 / N)
    return softmax_cross_entropy(
      h_ND, w_VD, IDS_N[:, None], w_NP, budget_mib=budget_mib
    )

  got, want = (jax.value_and_grad(f, (0, 1))(H_ND, W_VD) for f in (mean, naive))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), got, want)


def test_padding_does_not_count():
  w_NP = jnp.full((N, 1), 1 / N)
  plain = softmax_cross_entropy(H_ND, W_VD, IDS_N[:, None], w_NP)
  for padding in (-1, V, V + 9):
    ids_NP = jnp.stack([IDS_N, jnp.full(N, padding)], axis=1)
    padded_NP = jnp.pad(w_NP, ((0, 0), (0, 1)))
    padded = softmax_cross_entropy(H_ND, W_VD, ids_NP, padded_NP)
    np.testing.assert_allclose(padded, plain, rtol=1e-6)


def test_shapes_must_agree():
  with pytest.raises(ValueError, match=r"w_VD has shape \(40, 4\), but D = 5 in h_ND"):
    softmax_cross_entropy(H_ND, W_VD[:, 1:], IDS_N[:, None], jnp.ones((N, 1)))


@pytest.mark.parametrize("budget_mib", [0.001, 64])
def test_absolute_logits_are_exponentiated(budget_mib):
  def of_absolute(h_ND, w_VD):
    ids_NP, w_NP = IDS_N[:, None], jnp.full((N, 1), 1 / N)
    how = {"budget_mib": budget_mib, "score": absolute_logit}
    return softmax_cross_entropy(h_ND, w_VD, ids_NP, w_NP, **how)

  def of_optax(h_ND, w_VD):
    o_NV = jnp.abs(h_ND @ w_VD.T)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(o_NV, IDS_N))

  pair = (jax.value_and_grad(f, (0, 1))(H_ND, W_VD) for f in (of_absolute, of_optax))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *pair)


def test_operands_of_products_have_the_given_dtype():
  w_NP = jnp.full((N, 1), 1 / N)
  got = softmax_cross_entropy(H_ND, W_VD, IDS_N[:, None], w_NP, dtype="bfloat16")
  rounded = (x.astype("bfloat16").astype("float32") for x in (H_ND, W_VD))
  np.testing.assert_allclose(got, naive(*rounded), rtol=1e-5)
  assert abs(got - naive(H_ND, W_VD)) > 1e-4


def test_bfloat16_copies_are_within_the_budget():
  h_ND, w_VD = jnp.zeros((1024, 512)), jnp.zeros((2000, 512))
  ids_NP, w_NP = jnp.zeros((1024, 1), int), jnp.full((1024, 1), 1 / 1024)
  how = {"budget_mib": 8, "dtype": "bfloat16"}
  loss = lambda h, w: softmax_cross_entropy(h, w, ids_NP, w_NP, **how)
  program = jax.jit(jax.value_and_grad(loss, (0, 1))).lower(h_ND, w_VD).compile()
  assert program.memory_analysis().temp_size_in_bytes <= 8 * 2**20


@pytest.mark.parametrize("label", [-1, -100, V])
def test_invalid_label_with_weight_makes_the_loss_nan(label):
  ids_NP, w_NP = IDS_N[:, None].at[2].set(label), jnp.full((N, 1), 1 / N)
  assert jnp.isnan(softmax_cross_entropy(H_ND, W_VD, ids_NP, w_NP))
  w_NP = w_NP.at[2].set(0)
  assert jnp.isfinite(softmax_cross_entropy(H_ND, W_VD, ids_NP, w_NP))


def test_no_examples_have_no_loss():
  no_ids, no_weights = jnp.zeros((0, 1), int), jnp.zeros((0, 1))
  loss = lambda w_VD: softmax_cross_entropy(jnp.zeros((0, 3)), w_VD, no_ids, no_weights)
  value, g_VD = jax.value_and_grad(loss)(jnp.ones((5, 3)))
  assert value == 0
  assert not g_VD.any()
