import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.labels import Counts, single_targets
from largevocab.samplers import Softmax
from largevocab.samplers.base import Size

COUNTS, Y = Counts(np.ones(4, np.int64)), single_targets(np.array([0]))
W_VD = jnp.array([[1e4], [-1e4], [0.0], [1e4]])


@pytest.mark.parametrize(("absolute", "likely"), [(False, [0, 3]), (True, [0, 1, 3])])
def test_large_logits_give_the_likeliest_classes(absolute, likely):
  sampler = Softmax(absolute)
  draw = sampler.sample(Size(200), W_VD, jax.random.key(0), jnp.ones((1, 1)), Y)
  assert set(np.asarray(draw.ids).ravel().tolist()) == set(likely)
  np.testing.assert_allclose(draw.log_expected, np.log(200 / len(likely)), rtol=1e-5)


def test_zero_activation_gives_a_uniform_law():
  ids_V = jnp.arange(4)
  log_expected = Softmax().log_expected(Size(8), W_VD, jnp.zeros((1, 1)), Y, ids_V)
  np.testing.assert_allclose(log_expected, np.full((1, 4), np.log(2)), atol=1e-6)
