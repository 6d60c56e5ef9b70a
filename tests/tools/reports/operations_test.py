"""Operations of programs whose products are known."""

import jax
import jax.numpy as jnp
import pytest

from largevocab.tools.reports.operations import operations

X_NN = jnp.eye(4) / 2
ONE = 2 * 4 * 4 * 4.0


def looped(times, body=lambda x_NN: x_NN @ X_NN):
  return lambda x_NN: jax.lax.fori_loop(0, times, lambda _, x_NN: body(x_NN), x_NN)


@jax.custom_vjp
def halved(x_NN):
  return x_NN / 2


halved.defvjp(lambda x_NN: (x_NN / 2, None), lambda _, g_NN: (g_NN @ X_NN,))


def until_small(x_NN):
  return jax.lax.while_loop(
    lambda x_NN: jnp.sum(x_NN) > 0.1, lambda x_NN: x_NN @ X_NN, x_NN
  )


@pytest.mark.parametrize(
  ("function", "products"),
  [
    (lambda x_NN: x_NN + x_NN.T, 0),
    (lambda x_NN: x_NN @ x_NN, 1),
    (jax.jit(lambda x_NN: x_NN @ x_NN @ x_NN), 2),
    (jax.grad(lambda x_NN: jnp.sum((x_NN @ X_NN) ** 2)), 2),
    (jax.grad(lambda x_NN: jnp.sum(halved(x_NN))), 1),
    (looped(5), 5),
    (looped(3, looped(2)), 6),
    (lambda x_NN: looped(jnp.int32(5))(x_NN), 5),
    (until_small, 5),  # 2 / 2^n <= 0.1
    (lambda x_NN: jax.lax.cond(x_NN[0, 0] > 0, looped(2), looped(7), x_NN), 2),
    (lambda x_NN: jax.lax.cond(x_NN[0, 0] < 0, looped(2), looped(7), x_NN), 7),
    (lambda x_NN: jax.lax.map(lambda x_N: X_NN @ x_N, x_NN), 1),
    (lambda x_NN: jnp.einsum("ij,jk,kl->il", x_NN, x_NN, x_NN), 2),
  ],
)
def test_operations_of_known_products(function, products):
  assert operations(function, X_NN) == products * ONE


def test_operations_follow_from_the_shapes():
  product = lambda x_NK, w_KM: jnp.einsum("nk,km->nm", x_NK, w_KM)
  assert operations(product, jnp.ones((5, 3)), jnp.ones((3, 2))) == 2 * 5 * 3 * 2


def test_uncountable_loop_is_refused():
  with pytest.raises(ValueError, match="length depends on values"):
    operations(looped(3, until_small), X_NN)


def test_operations_that_need_no_values_are_not_evaluated():
  def fails(x_NN):
    raise RuntimeError("evaluated")

  def function(x_NN):
    shape = jax.ShapeDtypeStruct(x_NN.shape, x_NN.dtype)
    return jax.pure_callback(fails, shape, x_NN @ X_NN)

  assert operations(function, X_NN) == ONE
