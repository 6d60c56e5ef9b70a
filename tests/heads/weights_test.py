"""Weights of examples, which may be negative, as those of a policy's gradient; and
ids of no class."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config, single_targets
from tests.heads.compiled import backward, class_rows, evaluate, init
from tests.long import others_long

V, D, N = 40, 8, 6
COUNTS = np.arange(2 * V, V, -1)
HEADS = ("full", "adaptive", "d_softmax", "hierarchical", "huffman")


FEW = {"cutoffs": (4,), "factor": 2, "align": 1}  # so that there is a tail


@pytest.mark.parametrize("name", others_long(HEADS, ["full", "adaptive", "huffman"]))
def test_ids_that_are_not_classes_have_no_row(name):
  head = config.head(name, **(FEW if name in ("adaptive", "d_softmax") else {}))
  state = init(head, jax.random.key(0), COUNTS, D)
  rows_RD = class_rows(head, state, jnp.array([0, V - 1, V, -1, V + 7]))
  assert np.any(rows_RD[:2], axis=1).all()
  assert not np.any(rows_RD[2:])


# And what divides them: a sum that is not positive does not.
WEIGHTS = {
  "positive sum": ([1.0, -0.5, 0.0, 2.0, -1.0, 0.25], 1.75),
  "negative sum": ([-1.0, -0.5, 0.0, 0.5, -1.0, 0.25], 1.0),
}


NAMES = (*HEADS, "spherical/taylor")


@pytest.mark.parametrize(
  ("name", "weights"),
  others_long(
    itertools.product(NAMES, WEIGHTS),
    [
      ("full", "positive sum"),
      *((name, "negative sum") for name in ("adaptive", "spherical/taylor")),
    ],
  ),
)
def test_negative_weight_counts_with_its_sign(name, weights):
  head = config.head(name, **(FEW if name in ("adaptive", "d_softmax") else {}))
  state = init(head, jax.random.key(0), COUNTS, D)
  h_ND = jax.random.normal(jax.random.key(1), (N, D))
  ids_N = np.arange(0, V, V // N)[:N]
  weight_N, total = WEIGHTS[weights]
  weight_N = jnp.array(weight_N)
  nll_N = evaluate(head, state, h_ND, single_targets(ids_N))["nll"]
  y = single_targets(ids_N, weight_N)
  step = backward(head, state, h_ND, y, jax.random.key(2))
  want = jnp.sum(weight_N * nll_N) / total
  np.testing.assert_allclose(step.loss, want, rtol=1e-4)

  def loss(h_ND):
    nll_N = head.evaluate(state, h_ND, single_targets(ids_N))["nll"]
    return jnp.sum(weight_N * nll_N) / total

  dh_ND = jax.jit(jax.jacfwd(loss))(h_ND)
  np.testing.assert_allclose(step.dh_ND, dh_ND, rtol=1e-4, atol=1e-6)
  alone = evaluate(head, state, h_ND, y)["nll"]
  np.testing.assert_allclose(alone, jnp.where(weight_N == 0, 0, nll_N), rtol=1e-4)
