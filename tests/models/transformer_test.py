"""The transformer against a loop over positions in float64, and its padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.models import Transformer

B, T, E, F, HEADS = 2, 5, 6, 7, 2


def rows(seed=1):
  return jax.random.normal(jax.random.key(seed), (B, T, E))


def network(**fields):
  sizes = {"embed": E, "hidden": F, "heads": HEADS, "layers": 2, "max_length": T + 3}
  return Transformer(**sizes | fields)


@pytest.fixture(scope="module")
def variables():
  """Parameters whose biases, scales and positions are not trivial."""
  start = jax.jit(network().init)(jax.random.key(0), rows(), ())
  noise = lambda v: v + 0.2 * jax.random.normal(jax.random.key(2), v.shape)
  return jax.tree.map(noise, start)


@pytest.fixture(scope="module")
def apply():
  return jax.jit(lambda variables, x_BTE: network().apply(variables, x_BTE, ())[0])


def normed(x, weights):
  x = (x - x.mean()) / np.sqrt(x.var() + 1e-6)
  return x * weights["scale"] + weights["bias"]


def gelu(x):
  return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def naive(variables, x_TE, act=gelu):
  """h of a sequence, position by position."""
  params = jax.tree.map(lambda v: np.asarray(v, np.float64), variables["params"])
  at_TE = params["positions"]["embedding"]
  u = [np.float64(x) + at_TE[t] for t, x in enumerate(x_TE)]
  for layer in range(2):
    part = lambda name: params[f"layer_{layer}_{name}"]  # noqa: B023
    weights, norm = part("attention"), part("attention_norm")
    project = lambda x, name: (
      np.einsum("e,ehk->hk", x, weights[name]["kernel"]) + weights[name]["bias"]  # noqa: B023
    )
    inner = [normed(x, norm) for x in u]
    query, key, value = (
      [project(x, n) for x in inner] for n in ("query", "key", "value")
    )
    added = []
    for t in range(len(u)):
      heads = []
      for head in range(HEADS):
        scores = np.array([query[t][head] @ key[s][head] for s in range(t + 1)])
        weight = np.exp(scores / np.sqrt(E // HEADS))
        weight /= weight.sum()
        heads.append(sum(w * value[s][head] for s, w in enumerate(weight)))
      out = np.einsum("hk,hke->e", np.stack(heads), weights["out"]["kernel"])
      added.append(out + weights["out"]["bias"])
    u = [x + a for x, a in zip(u, added, strict=True)]
    inner = np.stack([normed(x, part("hidden_norm")) for x in u])
    for name, function in (("hidden", act), ("out", lambda x: x)):
      inner = function(inner @ part(name)["kernel"] + part(name)["bias"])
    u = [x + a for x, a in zip(u, inner, strict=True)]
  return np.stack([normed(x, params["norm"]) for x in u])


def test_transformer_equals_a_loop_over_positions(variables, apply):
  h_BTD = apply(variables, rows())
  for x_TE, h_TD in zip(rows(), h_BTD, strict=True):
    np.testing.assert_allclose(h_TD, naive(variables, x_TE), rtol=1e-4, atol=1e-5)
  model = network(activation="relu")
  h_BTD, carry = jax.jit(model.apply)(variables, rows(), model.initial_carry(B))
  relu = lambda x: np.maximum(x, 0)
  want_TD = naive(variables, rows()[0], relu)
  np.testing.assert_allclose(h_BTD[0], want_TD, rtol=1e-4, atol=1e-5)
  assert carry == ()
  assert h_BTD.shape[-1] == model.width


def test_outputs_depend_on_earlier_but_not_on_later_inputs(variables, apply):
  h_BTD = apply(variables, rows())
  other_BTD = apply(variables, rows().at[:, 3].set(rows(seed=4)[:, 3]))
  differs_T = np.abs(h_BTD - other_BTD).max(axis=(0, 2)) > 1e-3
  assert differs_T.tolist() == [False, False, False, True, True]
  np.testing.assert_array_equal(h_BTD[:, :3], other_BTD[:, :3])


def test_order_matters(variables, apply):
  swapped_BTE = rows()[:, jnp.array([1, 0, 2, 3, 4])]
  difference = apply(variables, rows()) - apply(variables, swapped_BTE)
  assert np.abs(difference[:, -1]).max() > 1e-3


def test_padding_in_front_or_behind_changes_nothing(variables, apply):
  want_TD = naive(variables, rows()[0, :3])
  for before in (0, 1, 2):
    padded_BTE = jnp.zeros((B, T, E)).at[:, before : before + 3].set(rows()[:, :3])
    h_BTD = apply(variables, padded_BTE)
    assert np.isfinite(h_BTD).all()
    here_TD = h_BTD[0, before : before + 3]
    np.testing.assert_allclose(here_TD, want_TD, rtol=1e-4, atol=1e-5)


def test_sequences_that_share_a_row_do_not_see_each_other(variables):
  apart = rows()[:, :3]
  packed_BTE = jnp.concatenate([apart[0], jnp.zeros((1, E)), apart[1, :2]])[None]
  h_TD = jax.jit(network().apply)(variables, packed_BTE, ())[0][0]
  for at, x_TE in ((0, apart[0]), (4, apart[1, :2])):
    want_TD = naive(variables, x_TE)
    np.testing.assert_allclose(h_TD[at:][: len(x_TE)], want_TD, rtol=1e-4, atol=1e-5)


def test_dropout_is_applied_in_training_only(variables):
  model = network(dropout=0.5)
  run = jax.jit(
    lambda key, train: model.apply(
      variables, rows(), (), train=train, rngs={"dropout": key}
    )[0],
    static_argnums=1,
  )
  one, two = jax.random.split(jax.random.key(3))
  assert not np.allclose(run(one, True), run(two, True))
  np.testing.assert_array_equal(run(one, False), run(two, False))


def test_bfloat16_operands_stay_near_float32(variables, apply):
  h_BTD, _ = jax.jit(network(dtype="bfloat16").apply)(variables, rows(), ())
  assert h_BTD.dtype == jnp.float32
  assert 0 < np.abs(h_BTD - apply(variables, rows())).max() < 0.2


def test_initial_positions_are_within_the_scale():
  start = jax.jit(network(init_scale=0.5).init)(jax.random.key(0), rows(), ())
  place = np.abs(start["params"]["positions"]["embedding"])
  assert 0.4 < place.max() <= 0.5


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"heads": 4}, r"model\.heads is 4, .* model\.embed, 6: set .* to a divisor"),
    ({"heads": 0}, r"^Transformer\.heads is 0"),
    ({"max_length": 0}, r"^Transformer\.max_length is 0"),
    ({"activation": "tanh"}, r"^Transformer\.activation is 'tanh'; it must be one of"),
  ],
)
def test_bad_setting_is_named(settings, message):
  with pytest.raises(UserError, match=message):
    network(**settings)


def test_window_that_is_too_long_is_named():
  message = r"has 5 inputs at a time, .*model.max_length is 4: raise it, or lower train"
  with pytest.raises(UserError, match=message):
    network(max_length=4).init(jax.random.key(0), rows(), ())
