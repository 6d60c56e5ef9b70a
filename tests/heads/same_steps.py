"""Steps of a head in several blocks, compared with those of the head without blocks."""

import jax
import numpy as np

from tests.heads.on_devices import stepper


def assert_same_steps(over, state, head, one, batch, num, *, rtol=1e-4, refresh=False):
  """Loss and gradients are the same in each of `num` steps on one batch, from states
  that have the same rows. A refresh follows each step if asked for.

  Returns the states after the steps.
  """
  on_blocks, on_one = stepper(over), stepper(head)
  refresh_blocks, refresh_one = jax.jit(over.refresh), jax.jit(head.refresh)
  for key in map(jax.random.key, range(num)):
    state, got = on_blocks(state, *batch, key)
    one, want = on_one(one, *batch, key)
    np.testing.assert_allclose(got.loss, want.loss, rtol=rtol / 10)
    np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=rtol, atol=rtol / 100)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=rtol)
    if refresh:
      state, one = refresh_blocks(state, key), refresh_one(one, key)
  return state, one
