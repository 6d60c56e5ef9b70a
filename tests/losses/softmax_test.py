"""The public losses: against optax, and differentiable as they are."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab import losses
from largevocab.losses import softmax_cross_entropy

N, D, V, M = 6, 5, 40, 7
RNG = np.random.default_rng(0)
H_ND = jnp.asarray(RNG.normal(size=(N, D)), jnp.float32)
W_VD = jnp.asarray(RNG.normal(size=(V, D)), jnp.float32)
IDS_N = jnp.asarray(RNG.integers(0, V, N), jnp.int32)


def naive(h_ND, w_VD):
  return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(h_ND @ w_VD.T, IDS_N))


@pytest.mark.parametrize("budget_mib", [0.001, 64])
def test_it_is_the_cross_entropy_of_optax(budget_mib):
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
  with pytest.raises(ValueError, match="D"):
    softmax_cross_entropy(H_ND, W_VD[:, 1:], IDS_N[:, None], jnp.ones((N, 1)))


O_NP, O_NM = H_ND[:, :1], jnp.asarray(RNG.normal(size=(N, M)), jnp.float32)
ONES_NP, YES_NP = jnp.ones((N, 1)), jnp.ones((N, 1), bool)
LOG_NP, LOG_NM = jnp.full((N, 1), -1.0), jnp.full((N, M), -2.0)
YES_NM = jnp.ones((N, M), bool)
SAMPLED = {
  "sampled_softmax_loss": lambda p, m: losses.sampled_softmax_loss(
    p, ONES_NP, YES_NP, m, LOG_NM, YES_NM
  ),
  "nce_loss": lambda p, m: losses.nce_loss(p, ONES_NP, LOG_NP, m, LOG_NM, YES_NM),
  "negative_sampling_loss": lambda p, m: losses.negative_sampling_loss(
    p, ONES_NP, m, YES_NM, 1.0
  ),
  "ranking_loss": lambda p, m: losses.ranking_loss(p, ONES_NP, m, YES_NM, 1.0),
  "blackout_loss": lambda p, m: losses.blackout_loss(
    p, ONES_NP, LOG_NP, m, LOG_NM, YES_NM
  ),
  "upper_bound_loss": lambda p, m: losses.upper_bound_loss(
    p, ONES_NP, YES_NP, m, LOG_NM, YES_NM, V
  ),
  "importance_loss": lambda p, m: losses.importance_loss(p, ONES_NP, m, LOG_NM, YES_NM),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_losses_pull_true_logits_up_and_drawn_ones_down(name):
  assert name in losses.__all__
  dp_NP, dm_NM = jax.grad(SAMPLED[name], (0, 1))(O_NP, O_NM)
  assert (dp_NP < 0).all()
  assert (dm_NM.sum(axis=1) > 0).all()
