"""`update` takes gradients of its own head only."""

import jax
import jax.numpy as jnp
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
from tests.heads.compiled import backward, update

COUNTS, KEY = np.arange(40, 0, -1), jax.random.key(0)
BATCH = jnp.ones((4, 8)), single_targets(np.arange(4))
HEADS = (Full, Adaptive, DSoftmax, Hierarchical, Huffman, Sampled, Spherical)


def sharded_full():
  return ShardedHead(Full(), class_mesh(jax.devices()[:1]), num_blocks=2)


@pytest.mark.parametrize("make", [*HEADS, sharded_full])
def test_arguments_that_are_not_gradients_are_refused(make):
  head = make()
  state = head.init(KEY, COUNTS, dim=8)

  def first_step(state):
    step = head.backward(state, *BATCH, KEY)
    head.update(state, step.grads, lr=0.1)
    return step

  for wrong in (jax.eval_shape(first_step, state), state, None):
    with pytest.raises(UserError, match=r"grads is of type .*pass the `grads`"):
      head.update(state, wrong, lr=0.1)


def test_head_over_devices_is_updated_without_jit():
  """`contract_test.py` updates the other heads so."""
  head = sharded_full()
  state = head.init(KEY, COUNTS, dim=8)
  grads = backward(head, state, *BATCH, KEY).grads
  got, want = head.update(state, grads, 0.1, 1.0), update(head, state, grads, 0.1, 1.0)
  got_VD, want_VD = (after.parts.table.w_VD for after in (got, want))
  np.testing.assert_allclose(got_VD, want_VD, rtol=1e-6)
  assert not np.array_equal(got_VD, state.parts.table.w_VD)


@pytest.mark.parametrize("shape", [(), (8,), (40, 1), (4, 8)])
def test_gradients_of_the_full_softmax_need_the_shape_of_the_table(shape):
  head = Full(bias=False)
  state = head.init(jax.random.key(0), COUNTS, dim=8)
  head.update(state, np.zeros((40, 8), np.float32), lr=0.1)
  with pytest.raises(ValueError, match="g_VD has shape"):
    head.update(state, np.zeros(shape, np.float32), lr=0.1)
