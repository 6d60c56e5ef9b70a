"""The LSTM of all language-model experiments."""

from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp

from largevocab.fields import (
  Between,
  Dropout,
  Dtype,
  InitScale,
  Layers,
  Width,
  settings,
)


def _uniform(scale: float):
  def init(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -scale, scale)

  return init


@settings
class LSTM(nn.Module):
  """Stacked LSTM over rows of an input table: rows, carry -> h, carry.

  i, f, g, o = split(x_t W + h_{t-1} U + b);  c_t = s(f + forget_bias) c_{t-1} + s(i)
  tanh(g);  h_t = s(o) tanh(c_t). The products x_t W of all time steps are one product
  before the scan. Dropout acts between layers, on the input and on the output, never on
  the recurrent connections.

  Attributes:
    embed: E, width of the input rows.
    hidden: D, units per layer.
    layers: number of layers.
    dropout: probability of dropping a unit.
    forget_bias: added to the forget gate.
    init_scale: weights are initialised uniformly in [-init_scale, init_scale], biases
      to 0.
    dtype: of the operands of matrix products; the state stays float32.

  Source: Zaremba et al. 2014 (dropout, initialisation).
  """

  embed: Width = 200
  hidden: Width = 200
  layers: Layers = 2
  dropout: Dropout = 0.0
  forget_bias: Annotated[float, Between(-1000, 1000)] = 0.0
  init_scale: InitScale = 0.1
  dtype: Dtype = "float32"

  @property
  def history(self) -> int:
    """Least number of input rows of an example; any number is accepted."""
    return 1

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.hidden

  def initial_carry(self, batch_size: int):
    """Zero state, (c, h) of each layer."""
    zeros = lambda: jnp.zeros((batch_size, self.hidden), jnp.float32)
    return tuple((zeros(), zeros()) for _ in range(self.layers))

  @nn.compact
  def __call__(self, x_BTE, carry, train: bool = False):
    drop = nn.Dropout(self.dropout, deterministic=not train)
    x_TBE = drop(jnp.swapaxes(x_BTE, 0, 1))
    finals = []
    for layer, state in enumerate(carry):
      x_TBE, state = self._layer(f"layer_{layer}", x_TBE, state)
      x_TBE = drop(x_TBE)
      finals.append(state)
    return jnp.swapaxes(x_TBE, 0, 1), tuple(finals)

  def _layer(self, name, x_TBE, state):
    shape = lambda rows: (rows, 4 * self.hidden)
    init = _uniform(self.init_scale)
    w = self.param(f"{name}_w", init, shape(x_TBE.shape[-1]))
    u = self.param(f"{name}_u", init, shape(self.hidden))
    b = self.param(f"{name}_b", nn.initializers.zeros, (4 * self.hidden,))
    dot = lambda a, m: jnp.matmul(
      a.astype(self.dtype), m.astype(self.dtype), preferred_element_type=jnp.float32
    )
    gates_TBG = dot(x_TBE, w) + b[None, None, :]

    def step(state, gates_BG):
      c_BD, h_BD = state
      i, f, g, o = jnp.split(gates_BG + dot(h_BD, u), 4, axis=-1)
      c_BD = nn.sigmoid(f + self.forget_bias) * c_BD + nn.sigmoid(i) * jnp.tanh(g)
      h_BD = nn.sigmoid(o) * jnp.tanh(c_BD)
      return (c_BD, h_BD), h_BD

    state, h_TBD = jax.lax.scan(step, state, gates_TBG)
    return h_TBD, state
