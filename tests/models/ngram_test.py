"""The n-gram network against a loop over windows, across batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.models import NGram
from tests.long import others_long

B, T, E, D = 3, 4, 5, 6


def rows():
  return jax.random.normal(jax.random.key(1), (B, 2 * T, E))


def start(model):
  variables = model.init(jax.random.key(0), rows(), model.initial_carry(B))
  noise = lambda v: v + 0.1 * jax.random.normal(jax.random.key(2), v.shape)
  return jax.tree.map(noise, variables)  # biases that matter


def read(model, variables, x_BTE, cuts):
  """h of a whole text that is read in pieces, and the final carry."""
  carry, found = model.initial_carry(B), []
  for piece in jnp.split(x_BTE, cuts, axis=1):
    h_BTD, carry = model.apply(variables, piece, carry)
    found.append(h_BTD)
  return jnp.concatenate(found, axis=1), carry


@pytest.mark.parametrize(
  ("combine", "context", "layers"),
  others_long(
    [(how, *of) for how in ("concatenate", "average") for of in ((3, 2), (1, 1))],
    [("concatenate", 3, 2), ("average", 1, 1)],
  ),
)
def test_ngram_equals_a_loop_over_windows_of_two_batches(combine, context, layers):
  model = NGram(context=context, combine=combine, embed=E, hidden=D, layers=layers)
  variables = start(model)
  got_BTD, carry = read(model, variables, rows(), [T])
  params = {k: np.asarray(v, np.float64) for k, v in variables["params"].items()}
  x_BTE = np.asarray(rows(), np.float64)
  for b in range(B):
    for t in range(2 * T):
      places = range(t - context + 1, t + 1)
      window = [x_BTE[b, s] if s >= 0 else np.zeros(E) for s in places]
      h = np.concatenate(window) if combine == "concatenate" else np.mean(window, 0)
      for layer in range(layers):
        h = np.tanh(h @ params[f"layer_{layer}_w"] + params[f"layer_{layer}_b"])
      np.testing.assert_allclose(got_BTD[b, t], h, rtol=1e-5, atol=1e-6)
  assert got_BTD.shape[-1] == model.width
  assert len(carry) == context - 1
  for row_BE, place in zip(carry, range(1 - context, 0), strict=True):
    np.testing.assert_array_equal(row_BE, rows()[:, place])


@pytest.mark.parametrize(
  "combine", others_long(["concatenate", "average"], ["concatenate"])
)
def test_sequences_of_one_row_do_not_see_each_other(combine):
  """Includes a cut right after the missing input."""
  model = NGram(context=4, combine=combine, embed=E, hidden=D)
  variables = start(model)
  packed_BTE = rows()[:, : 2 * T - 1].at[:, T - 1].set(0)
  first, second = packed_BTE[:, : T - 1], packed_BTE[:, T:]
  for cuts in ([], [T], [T - 1], [T + 1]):
    packed_BTD, _ = read(model, variables, packed_BTE, cuts)
    for got_BTD, alone_BTE in (
      (packed_BTD[:, : T - 1], first),
      (packed_BTD[:, T:], second),
    ):
      want_BTD, _ = read(model, variables, alone_BTE, [])
      np.testing.assert_allclose(got_BTD, want_BTD, rtol=1e-5, atol=1e-6)


def test_cuts_in_a_text_change_nothing_unless_the_carry_is_lost():
  """Includes pieces that are shorter than the window."""
  model = NGram(context=4, embed=E, hidden=D)
  variables = start(model)
  whole_BTD, _ = read(model, variables, rows(), [])
  for cuts in ([T], [1, 2, 4]):
    pieces_BTD, _ = read(model, variables, rows(), cuts)
    np.testing.assert_allclose(pieces_BTD, whole_BTD, rtol=1e-5, atol=1e-6)
  anew_BTD, _ = model.apply(variables, rows()[:, T:], model.initial_carry(B))
  differs_T = np.abs(anew_BTD - whole_BTD[:, T:]).max(axis=(0, 2)) > 1e-2
  assert differs_T.tolist() == [True, True, True, False]


def test_dropout_is_applied_in_training_only_and_never_to_the_carry():
  model = NGram(context=3, embed=E, hidden=D, dropout=0.5)
  variables = start(model)

  @jax.jit
  def trained(key):
    rngs = {"dropout": jax.random.key(key)}
    carry = model.initial_carry(B)
    return model.apply(variables, rows(), carry, train=True, rngs=rngs)

  (one_BTD, carry), (two_BTD, _) = trained(1), trained(2)
  plain_BTD, _ = read(model, variables, rows(), [])
  assert 0.3 < np.mean(one_BTD == 0) < 0.7
  assert np.any(one_BTD != two_BTD)
  assert np.all(plain_BTD != 0)
  np.testing.assert_array_equal(carry[-1], rows()[:, -1])


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"context": 0}, r"^NGram\.context is 0"),
    ({"layers": 0}, r"^NGram\.layers is 0"),
    (
      {"combine": "sum"},
      r"^NGram\.combine is 'sum'; it must be one of concatenate, av",
    ),
    ({"dropout": 1.0}, r"^NGram\.dropout is 1\.0"),
  ],
)
def test_bad_setting_is_named(settings, message):
  with pytest.raises(UserError, match=message):
    NGram(**settings)
