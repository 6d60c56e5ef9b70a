"""The LSTM of all language-model experiments."""

from typing import Annotated

import flax.linen as nn
import jax.numpy as jnp

from largevocab.fields import Between, settings
from largevocab.models.recurrent import Recurrent


@settings
class LSTM(Recurrent):
  """Stacked LSTM: rows, carry -> h, carry; see `Recurrent` for the other fields.

  i, f, g, o = split(x_t W + h_{t-1} U + b);  c_t = s(f + forget_bias) c_{t-1} + s(i)
  tanh(g);  h_t = s(o) tanh(c_t). The state of a layer is (c, h).

  Attributes:
    forget_bias: added to the forget gate.

  Source: Zaremba et al. 2014 (dropout, initialisation).
  """

  gates = 4
  arrays = 2

  forget_bias: Annotated[float, Between(-1000, 1000)] = 0.0

  def cell(self, state, x_BG, h_BG):
    c_BD, _ = state
    i, f, g, o = jnp.split(x_BG + h_BG, 4, axis=-1)
    c_BD = nn.sigmoid(f + self.forget_bias) * c_BD + nn.sigmoid(i) * jnp.tanh(g)
    return c_BD, nn.sigmoid(o) * jnp.tanh(c_BD)
