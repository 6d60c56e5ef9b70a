"""A small decoder-only transformer, for text and for sequences of items."""

from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import (
  Between,
  Dropout,
  Dtype,
  InputScale,
  Layers,
  OneOf,
  Unroll,
  Width,
  settings,
)
from largevocab.models.base import Stateless, uniform
from largevocab.models.missing import given, starts


@settings
class Transformer(Stateless):
  """Blocks of causal self-attention over the inputs of a window: rows -> h.

    u_t = x_t + p_t;  u = u + attention(norm(u));  u = u + W_2 act(W_1 norm(u) + b_1) +
    b_2 in each block;  h = norm(u),

  where norm is layer normalisation. h_t depends on x_1 ... x_t only. Dropout acts on
  x_t + p_t, on the attention weights, and on what a block adds.

  There is no recurrent state. On text, the context of an input is the earlier part of
  its window of T = `train.unroll` or `eval.unroll` inputs, so that the first inputs of
  a window have little or no context. Perplexities at another T are those of another
  model.

  Missing inputs, whose rows are zeros, may stand before or after the other inputs, and
  between sequences that share a row. Sequences that they separate do not attend to each
  other. A missing input is attended to only by itself, and positions count only the
  other inputs of a sequence. Neither padding nor packing therefore changes the result.

  Attributes:
    embed: E = D, width of the input rows and of h.
    hidden: width of the layer between W_1 and W_2.
    layers: number of blocks.
    heads: number of attention heads; a divisor of `embed`.
    max_length: maximum number of inputs in a window. Each position has a learned vector
      p_t. Vectors beyond the training windows are never trained, so set this to
      `train.unroll`, or to the length of the item sequences.
    activation: 'gelu' (GPT-2) or 'relu' (SASRec).
    dropout: probability of dropping a unit.
    init_scale: rows and positions are initialised uniformly in [-init_scale,
      init_scale]; weights as in Glorot and Bengio 2010 (uniform), biases to 0.
    dtype: type of matrix products and their results; sums over blocks, normalisation
      and softmax stay float32.

  Source: Vaswani et al. 2017, section 3, without the encoder. Normalisation comes
    before each part of a block and once at the end, as in Radford et al. 2019, section
    2.3 (GPT-2), and before each part as in Kang and McAuley 2018, section III (SASRec).
    Both papers use the input rows as class rows, too; here `train.tied` does this.
    GPT-2 has normal initial weights, which are smaller in deeper networks. SASRec pads
    in front, and counts positions from the first place of a window, even if that is
    padding.
  Cost: O(B T (T E + E^2 + E hidden)) per layer; B heads T^2 attention weights are held
    in memory.
  """

  history = 1  # minimum number of input rows of an example; `max_length` is the maximum

  embed: Width = 128
  hidden: Width = 512
  layers: Layers = 2
  heads: Annotated[int, Between(1, 1024)] = 2
  max_length: Unroll = 256
  activation: Annotated[str, OneOf("gelu", "relu")] = "gelu"
  dropout: Dropout = 0.0
  init_scale: InputScale = 0.1
  dtype: Dtype = "float32"

  def __post_init__(self):
    if self.embed % self.heads:
      raise UserError(
        f"model.heads is {self.heads}, which does not divide model.embed, "
        f"{self.embed}: set model.heads to a divisor of model.embed"
      )
    super().__post_init__()

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.embed

  @nn.compact
  def __call__(self, x_BTE, carry, train: bool = False):
    length = x_BTE.shape[1]
    if length > self.max_length:
      raise UserError(
        f"the data has {length} inputs at a time, but model.max_length is "
        f"{self.max_length}: raise it, or lower train.unroll and eval.unroll, or the "
        "length of the histories"
      )
    drop = nn.Dropout(self.dropout, deterministic=not train)
    given_BT = given(x_BTE)
    number_BT, starts_BT = jnp.cumsum(given_BT, axis=1) - 1, starts(given_BT)
    first_BT = jax.lax.cummax(jnp.where(starts_BT, number_BT, 0), axis=1)
    sequence_BT = jnp.cumsum(starts_BT, axis=1)
    place_BT = jnp.maximum(number_BT - first_BT, 0)
    init = uniform(self.init_scale)
    positions = nn.Embed(
      self.max_length, self.embed, embedding_init=init, name="positions"
    )
    u_BTE = drop(x_BTE + positions(place_BT))
    before_TT = jnp.tril(jnp.ones((length, length), bool))[None]
    itself_TT = jnp.eye(length, dtype=bool)[None]
    same_BTT = sequence_BT[:, :, None] == sequence_BT[:, None, :]
    mask_BTT = before_TT & given_BT[:, None, :] & same_BTT | itself_TT
    for layer in range(self.layers):
      name = f"layer_{layer}"
      u_BTE += drop(self._attention(name, u_BTE, mask_BTT, train))
      u_BTE += drop(self._hidden_layer(name, u_BTE))
    return nn.LayerNorm(name="norm")(u_BTE), carry

  def _attention(self, name, u_BTE, mask_BTT, train):
    normed_BTE = nn.LayerNorm(name=f"{name}_attention_norm")(u_BTE)
    attention = nn.MultiHeadDotProductAttention(
      self.heads,
      dtype=self.dtype,
      kernel_init=nn.initializers.glorot_uniform(),
      dropout_rate=self.dropout,
      broadcast_dropout=False,
      force_fp32_for_softmax=True,
      deterministic=not train,
      name=f"{name}_attention",
    )
    return attention(normed_BTE, mask=mask_BTT[:, None])

  def _hidden_layer(self, name, u_BTE):
    dense = lambda width, part: nn.Dense(
      width,
      dtype=self.dtype,
      kernel_init=nn.initializers.glorot_uniform(),
      name=f"{name}_{part}",
    )
    normed_BTE = nn.LayerNorm(name=f"{name}_hidden_norm")(u_BTE)
    act = {"gelu": nn.gelu, "relu": nn.relu}[self.activation]
    return dense(self.embed, "out")(act(dense(self.hidden, "hidden")(normed_BTE)))
