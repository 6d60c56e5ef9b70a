"""The network for next-item recommendation."""

import flax.linen as nn
import jax

from largevocab.errors import UserError
from largevocab.fields import (
  Dropout,
  Dtype,
  History,
  InputScale,
  Layers,
  Width,
  settings,
)
from largevocab.models.base import Stateless, affine


@settings
class MLP(Stateless):
  """ReLU layers over the concatenated rows of the last K items: one h per example.

  h_0 = (x_1, ..., x_K);  h_l = max(0, h_{l-1} W_l + b_l). Dropout acts on h_0 and on
  every h_l. A missing item has a row of zeros. There is no recurrent state.

  Attributes:
    history: K, the number of items of each example.
    embed: E, width of the input rows.
    hidden: D, units per layer.
    layers: number of layers.
    dropout: probability of dropping a unit.
    init_scale: input rows are initialised uniformly in [-init_scale, init_scale];
      weights as in He et al. 2015 (uniform), biases to 0.
    dtype: type of the operands of matrix products; sums stay float32.

  Source: Blanc & Rendle 2018, section 4.1, the network for YouTube.
  """

  history: History = 3
  embed: Width = 64
  hidden: Width = 64
  layers: Layers = 1
  dropout: Dropout = 0.0
  init_scale: InputScale = 0.1
  dtype: Dtype = "float32"

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.hidden

  @nn.compact
  def __call__(self, x_BKE, carry, train: bool = False):
    if x_BKE.shape[1] != self.history:
      raise UserError(
        f"the data has {x_BKE.shape[1]} items before the next, but model.history is "
        f"{self.history}: set data.history (for sequences train.unroll and "
        "eval.unroll) and model.history to the same number, or for data without "
        "histories, such as text, choose another model"
      )
    drop = nn.Dropout(self.dropout, deterministic=not train)
    h_BD = drop(x_BKE.reshape(x_BKE.shape[0], -1))
    init = nn.initializers.he_uniform()
    for layer in range(self.layers):
      o_BD = affine(self, f"layer_{layer}", h_BD, self.hidden, init, self.dtype)
      h_BD = drop(jax.nn.relu(o_BD))
    return h_BD[:, None, :], carry
