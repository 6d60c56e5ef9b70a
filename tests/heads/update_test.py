"""`update` takes gradients of its own head only."""

import jax
import numpy as np
import pytest

from largevocab import single_targets
from largevocab.errors import UserError
from largevocab.heads import (
  Adaptive,
  DSoftmax,
  Full,
  Hierarchical,
  Huffman,
  Sampled,
  ShardedHead,
  Spherical,
  class_mesh,
)

COUNTS = np.arange(40, 0, -1)
HEADS = (Full, Adaptive, DSoftmax, Hierarchical, Huffman, Sampled, Spherical)


def sharded_full():
  return ShardedHead(Full(), class_mesh(jax.devices()[:1]), num_blocks=2)


@pytest.mark.parametrize("make", [*HEADS, sharded_full])
def test_arguments_that_are_not_gradients_are_refused(make):
  head = make()
  state = head.init(jax.random.key(0), COUNTS, dim=8)
  h_ND = jax.random.normal(jax.random.key(1), (4, 8))
  step = head.backward(state, h_ND, single_targets(np.arange(4)), jax.random.key(2))
  head.update(state, step.grads, lr=0.1)
  for wrong in (step, state, None):
    with pytest.raises(UserError, match=r"grads is of type .*pass the `grads`"):
      head.update(state, wrong, lr=0.1)


@pytest.mark.parametrize("shape", [(), (8,), (40, 1), (4, 8)])
def test_gradients_of_the_full_softmax_need_the_shape_of_the_table(shape):
  head = Full(bias=False)
  state = head.init(jax.random.key(0), COUNTS, dim=8)
  head.update(state, np.zeros((40, 8), np.float32), lr=0.1)
  with pytest.raises(ValueError, match="g_VD has shape"):
    head.update(state, np.zeros(shape, np.float32), lr=0.1)
