"""The n-gram network: the next word from the rows of the last few words."""

from typing import Annotated

import flax.linen as nn
import jax.numpy as jnp

from largevocab.fields import (
  Dropout,
  Dtype,
  History,
  InputScale,
  Layers,
  OneOf,
  Width,
  settings,
)
from largevocab.models.base import affine
from largevocab.models.missing import given, starts


@settings
class NGram(nn.Module):
  """Computes h_t from the rows of the last K inputs, through tanh layers.

  h_0 = (x_{t-K+1}, ..., x_t) or their mean;  h_l = tanh(h_{l-1} W_l + b_l). Dropout
  acts on h_0 and on every h_l.

  The carry holds the last K - 1 rows of each stream, so that windows cross the edges of
  unrolled batches and h does not depend on where a text is cut. As in truncated
  back-propagation, the rows in the carry get no gradient and are not updated after they
  were read. Rows before the start of a stream are zeros, which count in a mean. Rows of
  another sequence, before a missing input, are zeros, too. A missing input is one whose
  row is zeros.

  Attributes:
    context: K, number of inputs; on text, this is an n-gram model with n = K + 1.
    combine: 'concatenate' the rows of the inputs, or 'average' them.
    embed: E, width of the input rows.
    hidden: D, units per layer.
    layers: number of layers.
    dropout: probability of dropping a unit.
    init_scale: input rows are initialised uniformly in [-init_scale, init_scale];
      weights as in Glorot and Bengio 2010 (uniform), biases to 0.
    dtype: type of the operands of matrix products; sums stay float32.

  Source: Bengio et al. 2003 section 2, without direct connections from rows to output;
    Vincent et al. 2015 train models of this kind in section 6.
  """

  history = 1  # minimum number of input rows of an example; any number is accepted

  context: History = 4
  combine: Annotated[str, OneOf("concatenate", "average")] = "concatenate"
  embed: Width = 300
  hidden: Width = 300
  layers: Layers = 1
  dropout: Dropout = 0.0
  init_scale: InputScale = 0.1
  dtype: Dtype = "float32"

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.hidden

  def initial_carry(self, batch_size: int):
    """Zero rows, the oldest first."""
    shape = (batch_size, self.embed)
    return tuple(jnp.zeros(shape, jnp.float32) for _ in range(self.context - 1))

  @nn.compact
  def __call__(self, x_BTE, carry, train: bool = False):
    drop = nn.Dropout(self.dropout, deterministic=not train)
    length = x_BTE.shape[1]
    before = [row_BE[:, None] for row_BE in carry]
    rows_BTE = jnp.concatenate([*before, x_BTE], axis=1)
    sequence_BT1 = jnp.cumsum(starts(given(rows_BTE)), axis=1)[:, :, None]
    at = lambda x_BT, k: x_BT[:, k : k + length]
    is_own = lambda k: at(sequence_BT1, k) == at(sequence_BT1, self.context - 1)
    seen = [jnp.where(is_own(k), at(rows_BTE, k), 0) for k in range(self.context)]
    if self.combine == "average":
      h_BTD = sum(seen) / self.context
    else:
      h_BTD = jnp.concatenate(seen, axis=2)
    h_BTD = drop(h_BTD)
    init = nn.initializers.glorot_uniform()
    for layer in range(self.layers):
      o_BTD = affine(self, f"layer_{layer}", h_BTD, self.hidden, init, self.dtype)
      h_BTD = drop(jnp.tanh(o_BTD))
    return h_BTD, tuple(rows_BTE[:, length + k] for k in range(self.context - 1))
