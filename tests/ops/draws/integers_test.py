import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops.draws.integers import below

KEY = jax.random.key(0)


def test_integers_are_below_the_bound():
  bound = np.array([1, 2, 3, 2**16 - 1, 2**16 + 1, 3 * 2**29, 2**31 - 1])
  many = np.broadcast_to(bound[:, None], (len(bound), 20_000))
  got = np.asarray(below(KEY, jnp.asarray(many, jnp.int32)))
  words = np.asarray(jax.random.bits(KEY, (2, *many.shape), jnp.uint32)).astype(object)
  want = (words[0] * 2**32 + words[1]) * many.astype(object) >> 64
  np.testing.assert_array_equal(got, want.astype(int))
  np.testing.assert_allclose(got.mean(axis=1), (bound - 1) / 2, rtol=0.02)
