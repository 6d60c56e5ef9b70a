"""Examples of weight 0, and batches without a label, whatever else they hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import multi_targets, single_targets
from largevocab.heads import (
  Adaptive,
  DSoftmax,
  Full,
  Hierarchical,
  Huffman,
  Sampled,
  Spherical,
)
from largevocab.samplers import IVF, PPS, SCE, Quadratic, Unigram

COUNTS, D = np.arange(40, 0, -1), 8
HEADS = {
  "full": Full(),
  "adaptive": Adaptive(),
  "d_softmax": DSoftmax(),
  "hierarchical": Hierarchical(),
  "huffman": Huffman(),
  "spherical": Spherical(),
  "pps": Sampled(sampler=PPS(), num_samples=8),
  "unigram, own": Sampled(sampler=Unigram(per_example=True), num_samples=8),
  "quadratic": Sampled(sampler=Quadratic(), num_samples=8, absolute=True),
  "ivf": Sampled(sampler=IVF(), num_samples=8),
  "sce": Sampled(sampler=SCE(), num_samples=8),
}


def stepper(head):
  """From a batch to its loss, the gradient of h and the next state."""
  state = head.init(jax.random.key(0), COUNTS, D)

  @jax.jit
  def step(h_ND, y):
    out = head.backward(state, h_ND, y, jax.random.key(2))
    return out.loss, out.dh_ND, head.update(state, out.grads, lr=0.1)

  return step


@pytest.mark.parametrize("name", HEADS)
def test_activations_of_an_ignored_example_may_be_anything(name):
  step = stepper(HEADS[name])
  h_ND = jax.random.normal(jax.random.key(1), (4, D))
  y = single_targets(np.arange(4), [1.0, 0.5, 1.0, 0.0])
  want = step(h_ND, y)
  for value in (np.nan, np.inf):
    got = step(h_ND.at[3].set(value), y)
    jax.tree.map(np.testing.assert_array_equal, got, want)
  counted = y._replace(w_NP=jnp.ones((4, 1)))
  assert not np.isfinite(step(h_ND.at[3].set(np.nan), counted)[0])


@pytest.mark.parametrize("name", HEADS)
def test_batch_without_labels_has_no_loss(name):
  h_ND = jax.random.normal(jax.random.key(1), (4, D))
  y = multi_targets(np.zeros((4, 0), int))
  loss, dh_ND, _ = stepper(HEADS[name])(h_ND, y)
  assert loss == 0
  np.testing.assert_array_equal(dh_ND, np.zeros((4, D)))
