"""The GRU against flax's cell, and the padding of recurrent networks."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.models import GRU, LSTM

B, T, E, D = 3, 4, 5, 6


def rows():
  return jax.random.normal(jax.random.key(1), (B, 2 * T, E))


def start(model):
  variables = jax.jit(model.init)(jax.random.key(0), rows(), model.initial_carry(B))
  noise = lambda v: v + 0.1 * jax.random.normal(jax.random.key(2), v.shape)
  return jax.tree.map(noise, variables)  # biases that matter


def flax_params(params, layer):
  """Our stacked matrices as those of flax's cell, gate by gate."""
  split = lambda name: np.split(params[f"layer_{layer}_{name}"], 3, axis=-1)
  cell = {}
  for gate, w, u, b in zip("rzn", split("w"), split("u"), split("b"), strict=True):
    cell[f"i{gate}"] = {"kernel": w, "bias": b}
    cell[f"h{gate}"] = {"kernel": u}
  cell["hn"]["bias"] = np.zeros(D)
  return cell


def test_gru_equals_flax_cells_over_carried_segments():
  model = GRU(embed=E, hidden=D, layers=2, init_scale=0.5)
  variables = start(model)
  first_BTD, carry = model.apply(variables, rows()[:, :T], model.initial_carry(B))
  second_BTD, carry = model.apply(variables, rows()[:, T:], carry)
  y_BTD = rows()
  for layer in range(2):
    weights = {"params": flax_params(variables["params"], layer)}
    state_BD, outputs = jnp.zeros((B, D)), []
    for t in range(2 * T):
      state_BD, out_BD = nn.GRUCell(D).apply(weights, state_BD, y_BTD[:, t])
      outputs.append(out_BD)
    y_BTD = jnp.stack(outputs, axis=1)
    np.testing.assert_allclose(carry[layer][0], state_BD, rtol=1e-5, atol=1e-6)
  got_BTD = jnp.concatenate([first_BTD, second_BTD], axis=1)
  np.testing.assert_allclose(got_BTD, y_BTD, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_padding_in_front_or_behind_changes_nothing(kind):
  model = kind(embed=E, hidden=D)
  variables = start(model)
  run = jax.jit(lambda x_BTE: model.apply(variables, x_BTE, model.initial_carry(B)))
  h_BTD, carry = run(rows()[:, :3])
  for before in (0, 1, 2):
    padded_BTE = jnp.zeros((B, 5, E)).at[:, before : before + 3].set(rows()[:, :3])
    padded_BTD, padded_carry = run(padded_BTE)
    here_BTD = padded_BTD[:, before : before + 3]
    np.testing.assert_allclose(here_BTD, h_BTD, rtol=1e-5, atol=1e-6)
    for one, other in zip(
      jax.tree.leaves(carry), jax.tree.leaves(padded_carry), strict=True
    ):
      np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
  in_between_BTE = jnp.zeros((B, 5, E)).at[:, :3].set(rows()[:, :3]) + 1e-3
  assert np.abs(run(in_between_BTE)[0][:, -1] - h_BTD[:, -1]).max() > 1e-3  # no padding


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_sequences_that_share_a_row_do_not_see_each_other(kind):
  model = kind(embed=E, hidden=D)
  variables = start(model)
  run = jax.jit(lambda x_BTE: model.apply(variables, x_BTE, model.initial_carry(B)))
  packed_BTE = rows()[:, :7].at[:, 3].set(0)
  packed_BTD, carry = run(packed_BTE)
  first_BTD, _ = run(rows()[:, :3])
  second_BTD, second_carry = run(rows()[:, 4:7])
  near = {"rtol": 1e-5, "atol": 1e-6}
  np.testing.assert_allclose(packed_BTD[:, :3], first_BTD, **near)
  np.testing.assert_allclose(packed_BTD[:, 4:], second_BTD, **near)
  for pair in zip(jax.tree.leaves(carry), jax.tree.leaves(second_carry), strict=True):
    np.testing.assert_allclose(*pair, **near)
  whole_BTD, _ = run(rows()[:, :7])
  assert np.abs(whole_BTD[:, 4:] - second_BTD).max() > 1e-3  # nothing between them


def test_bfloat16_operands_stay_near_float32():
  exact, rounded = GRU(embed=E, hidden=D), GRU(embed=E, hidden=D, dtype="bfloat16")
  variables, carry = start(exact), exact.initial_carry(B)
  a, b = (model.apply(variables, rows(), carry)[0] for model in (exact, rounded))
  assert b.dtype == jnp.float32
  assert 0 < float(jnp.max(jnp.abs(a - b))) < 1e-2
