import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.models import MLP

B, K, E, D = 4, 3, 5, 6


def rows(key=1):
  return jax.random.normal(jax.random.key(key), (B, K, E))


def start(model):
  variables = model.init(jax.random.key(0), rows(), ())
  noise = lambda v: v + 0.1 * jax.random.normal(jax.random.key(2), v.shape)
  return jax.tree.map(noise, variables)  # biases that matter


@pytest.mark.parametrize("layers", [1, 2])
def test_mlp_equals_the_formula(layers):
  model = MLP(history=K, embed=E, hidden=D, layers=layers)
  variables = start(model)
  h_BTD, carry = model.apply(variables, rows(), model.initial_carry(B))
  params = {k: np.asarray(v, np.float64) for k, v in variables["params"].items()}
  h_BD = np.asarray(rows(), np.float64).reshape(B, K * E)
  for layer in range(layers):
    h_BD = h_BD @ params[f"layer_{layer}_w"] + params[f"layer_{layer}_b"][None]
    h_BD = np.maximum(h_BD, 0)
  np.testing.assert_allclose(h_BTD[:, 0], h_BD, rtol=1e-5, atol=1e-6)
  assert h_BTD.shape == (B, 1, model.width)
  assert carry == ()
  assert 0.1 < np.mean(h_BD > 0) < 0.9


def test_dropout_is_applied_in_training_only():
  model = MLP(history=K, embed=E, hidden=D, dropout=0.5)
  variables = start(model)
  run = lambda key, train: model.apply(
    variables, rows(), (), train=train, rngs={"dropout": jax.random.key(key)}
  )[0]
  assert not np.allclose(run(1, True), run(2, True))
  np.testing.assert_array_equal(run(1, False), run(2, False))


def test_bfloat16_operands_stay_near_float32():
  exact = MLP(history=K, embed=E, hidden=D)
  rounded = MLP(history=K, embed=E, hidden=D, dtype="bfloat16")
  variables = start(exact)
  a, b = exact.apply(variables, rows(), ())[0], rounded.apply(variables, rows(), ())[0]
  assert b.dtype == jnp.float32
  assert 0 < float(jnp.max(jnp.abs(a - b))) < 0.1


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"history": 0}, "^MLP.history is 0"),
    ({"layers": 0}, "^MLP.layers is 0"),
    ({"dropout": 1.0}, "^MLP.dropout is 1.0"),
    ({"dtype": "int8"}, "^MLP.dtype is 'int8'"),
  ],
)
def test_bad_setting_is_named(settings, message):
  with pytest.raises(UserError, match=message):
    MLP(**settings)


def test_wrong_number_of_items_is_named():
  with pytest.raises(
    UserError, match=r"has 3 items .*model.history is 4: set data.*, such as text"
  ):
    MLP(history=4, embed=E).init(jax.random.key(0), rows(), ())
