"""What all losses over true and drawn classes have in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.losses import nce_loss, negative_sampling_loss
from largevocab.losses.blackout import blackout_loss
from largevocab.losses.ranking import ranking_loss


def without_laws(loss):
  return lambda o_NP, w_NP, _, o_NM, __, mask_NM: loss(o_NP, w_NP, o_NM, mask_NM)


LOSSES = {
  "nce": nce_loss,
  "negative_sampling": without_laws(negative_sampling_loss),
  "blackout": blackout_loss,
  "ranking": without_laws(functools.partial(ranking_loss, alpha=1.0)),
  "hinge": without_laws(functools.partial(ranking_loss, alpha=1.0, penalty="hinge")),
}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_what_has_no_weight_or_is_masked_may_be_anything(loss, bad):
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
