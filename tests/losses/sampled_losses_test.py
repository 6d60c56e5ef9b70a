"""Tests of all losses over true and drawn classes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.losses import (
  SAMPLED_LOSSES,
  blackout_loss,
  importance_loss,
  nce_loss,
  negative_sampling_loss,
  ranking_loss,
  sampled_softmax_loss,
  upper_bound_loss,
)

# Functions of o_NP, w_NP, log_expected_NP, o_NM, log_expected_NM, mask_NM.
OF_TRUE_LAWS = {"nce": nce_loss, "blackout": blackout_loss}
OF_DRAWN_LAWS = {
  "softmax": lambda o, w, _, *drawn: sampled_softmax_loss(o, w, w != 0, *drawn),
  "upper_bound": lambda o, w, _, *drawn: upper_bound_loss(o, w, w != 0, *drawn, 99),
  "importance": lambda o, w, _, *drawn: importance_loss(o, w, *drawn),
}


def without_laws(loss):
  return lambda o_NP, w_NP, _, o_NM, __, mask_NM: loss(o_NP, w_NP, o_NM, mask_NM)


WITH_LAWS = {**OF_TRUE_LAWS, **OF_DRAWN_LAWS}
LOSSES = {
  **WITH_LAWS,
  "negative_sampling": without_laws(negative_sampling_loss),
  "ranking": without_laws(functools.partial(ranking_loss, alpha=1.0)),
  "hinge": without_laws(functools.partial(ranking_loss, alpha=1.0, penalty="hinge")),
}


def test_every_sampled_loss_has_a_case():
  assert {name for name in LOSSES if name != "hinge"} == set(SAMPLED_LOSSES)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_masked_or_weightless_entries_may_be_anything(loss, bad):
  rng = np.random.default_rng(0)
  o_NP, e_NP = jnp.asarray(rng.normal(size=(2, 4, 3)), "f")
  o_NM, e_NM = jnp.asarray(rng.normal(size=(2, 4, 5)), "f")
  w_NP = jnp.asarray(rng.uniform(size=(4, 3)), "f").at[1:, 1].set(0)
  mask_NM = jnp.asarray(rng.random((4, 5)) < 0.6)
  spoil_NP = lambda x: jnp.where(w_NP == 0, bad, x)
  spoil_NM = lambda x: jnp.where(mask_NM, x, bad)

  def value_and_grads(o_NP, e_NP, o_NM, e_NM):
    of_scores = lambda o_NP, o_NM: loss(o_NP, w_NP, e_NP, o_NM, e_NM, mask_NM)
    return jax.value_and_grad(of_scores, (0, 1))(o_NP, o_NM)

  want = value_and_grads(o_NP, e_NP, o_NM, e_NM)
  got = value_and_grads(spoil_NP(o_NP), spoil_NP(e_NP), spoil_NM(o_NM), spoil_NM(e_NM))
  for x, z in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(x, z, rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_sums_over_bfloat16_scores_are_in_float32(loss):
  rng = np.random.default_rng(1)
  o_NP, o_NM = (jnp.asarray(rng.normal(size=(2, n)), "bfloat16") for n in (1, 3000))
  w_NP, e_NP, e_1M = jnp.ones((2, 1)), jnp.zeros((2, 1)), jnp.zeros((1, 3000))
  of = lambda o_NP, o_NM: loss(o_NP, w_NP, e_NP, o_NM, e_1M, jnp.ones((2, 3000), bool))
  got, want = of(o_NP, o_NM), of(o_NP.astype("float32"), o_NM.astype("float32"))
  assert got.dtype == jnp.float32
  np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("loss", WITH_LAWS.values(), ids=WITH_LAWS)
def test_sums_over_bfloat16_scores_and_counts_are_in_float32(loss):
  rng = np.random.default_rng(1)
  sizes = (1, 1, 3000, 3000)
  args = [jnp.asarray(rng.normal(size=(2, n)), "bfloat16") for n in sizes]
  w_NP, mask_NM = jnp.ones((2, 1)), jnp.ones((2, 3000), bool)
  of = lambda o_NP, e_NP, o_NM, e_NM: loss(o_NP, w_NP, e_NP, o_NM, e_NM, mask_NM)
  got, want = of(*args), of(*(x.astype("float32") for x in args))
  assert got.dtype == jnp.float32
  np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("loss", WITH_LAWS.values(), ids=WITH_LAWS)
def test_log_expected_counts_of_examples_are_not_mistaken_for_those_of_classes(loss):
  num = 4  # examples, and drawn classes
  o_NP, o_NM, w_NP = jnp.zeros((num, 1)), jnp.zeros((num, num)), jnp.ones((num, 1))
  with pytest.raises(ValueError, match=r"log_expected_NM has shape \(4,\)"):
    loss(o_NP, w_NP, o_NP, o_NM, jnp.zeros(num), jnp.ones((num, num), bool))


def test_unknown_penalty_is_named():
  o_NP, yes = jnp.zeros((1, 1)), jnp.ones((1, 1), bool)
  with pytest.raises(UserError, match="penalty is 'square'; it must be one of hinge, "):
    ranking_loss(o_NP, jnp.ones((1, 1)), o_NP, yes, alpha=1.0, penalty="square")
