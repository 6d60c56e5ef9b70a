import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.models import LSTM
from tests.long import others_long

B, T, E, D = 3, 5, 4, 6


def _flax_params(params, layer):
  """Our stacked matrices as those of flax's cell, gate by gate."""
  split = lambda name: np.split(params[f"layer_{layer}_{name}"], 4, axis=-1)
  gates = zip("ifgo", split("w"), split("u"), split("b"), strict=True)
  cell = {}
  for gate, w, u, b in gates:
    cell[f"i{gate}"] = {"kernel": w}
    cell[f"h{gate}"] = {"kernel": u, "bias": b}
  return cell


@pytest.mark.parametrize("layers", others_long([1, 2], [2]))
def test_lstm_equals_flax_cells_over_carried_segments(layers):
  model = LSTM(embed=E, hidden=D, layers=layers, init_scale=0.5)
  x_BTE = jax.random.normal(jax.random.key(1), (B, 2 * T, E))
  carry = model.initial_carry(B)
  params = model.init(jax.random.key(0), x_BTE, carry)["params"]
  noise = lambda v: 0.1 * jax.random.normal(jax.random.key(2), v.shape)
  params = {k: v + noise(v) for k, v in params.items()}  # biases that matter
  first_BTD, carry = model.apply({"params": params}, x_BTE[:, :T], carry)
  second_BTD, carry = model.apply({"params": params}, x_BTE[:, T:], carry)

  y_BTD = x_BTE
  for layer in range(layers):
    cell = nn.OptimizedLSTMCell(D)
    state = (jnp.zeros((B, D)), jnp.zeros((B, D)))
    outputs = []
    for t in range(2 * T):
      weights = {"params": _flax_params(params, layer)}
      state, out_BD = cell.apply(weights, state, y_BTD[:, t])
      outputs.append(out_BD)
    y_BTD = jnp.stack(outputs, axis=1)
    np.testing.assert_allclose(carry[layer][0], state[0], rtol=1e-5, atol=1e-6)
  got_BTD = jnp.concatenate([first_BTD, second_BTD], axis=1)
  np.testing.assert_allclose(got_BTD, y_BTD, rtol=1e-5, atol=1e-6)


def test_dropout_spares_the_recurrence():
  """Inputs and outputs are dropped; what is carried on is as without dropout where
  inputs do not count."""
  model = LSTM(embed=E, hidden=D, layers=1, dropout=0.5)
  x_BTE = jnp.ones((B, T, E))
  carry = model.initial_carry(B)
  variables = model.init(jax.random.key(0), x_BTE, carry)
  run = lambda key, train: model.apply(
    variables, x_BTE, carry, train=train, rngs={"dropout": key}
  )[0]
  a, b = run(jax.random.key(1), True), run(jax.random.key(2), True)
  assert not np.allclose(a, b)
  assert 0.2 < float(jnp.mean(a == 0)) < 0.8
  noise = lambda v: 0.5 * jax.random.normal(jax.random.key(3), v.shape)
  weights = {k: v + noise(v) for k, v in variables["params"].items()}  # with biases
  weights = {"params": weights | {"layer_0_w": 0 * weights["layer_0_w"]}}
  carried = lambda train: model.apply(
    weights, x_BTE, carry, train=train, rngs={"dropout": jax.random.key(1)}
  )[1]
  for kept, plain in zip(
    *map(jax.tree.leaves, (carried(True), carried(False))), strict=True
  ):
    np.testing.assert_array_equal(kept, plain)
    assert (plain != 0).all()
  plain = run(jax.random.key(1), False)
  np.testing.assert_array_equal(plain, run(jax.random.key(2), False))
  assert float(jnp.mean(plain == 0)) == 0


def test_bfloat16_operands_stay_near_float32():
  x_BTE = jax.random.normal(jax.random.key(1), (B, T, E))
  exact, rounded = LSTM(embed=E, hidden=D), LSTM(embed=E, hidden=D, dtype="bfloat16")
  carry = exact.initial_carry(B)
  variables = exact.init(jax.random.key(0), x_BTE, carry)
  a, _ = exact.apply(variables, x_BTE, carry)
  b, _ = rounded.apply(variables, x_BTE, carry)
  assert b.dtype == jnp.float32
  assert 0 < float(jnp.max(jnp.abs(a - b))) < 1e-2
