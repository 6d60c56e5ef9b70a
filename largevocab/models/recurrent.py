"""Base of recurrent networks: stacked layers, each scanned over time."""

import abc
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from largevocab.fields import Dropout, Dtype, InputScale, Layers, Width
from largevocab.models.base import product, uniform
from largevocab.models.missing import given, starts

State = tuple[jax.Array, ...]


class Recurrent(nn.Module):
  """Stacked recurrent layers over rows of an input table: rows, carry -> h, carry.

  The products x_t W of all time steps are computed as one product before the scan.
  Dropout acts between layers, on the input and on the output, but never on the
  recurrent connections. A missing input leaves the state as it is, and the next input
  that is present starts from a state of zeros. Neither padding nor sequences that share
  a row therefore change the result.

  Attributes:
    gates: number of gates of a cell, with D columns each in W, U and b.
    embed: E, width of the input rows.
    hidden: D, units per layer.
    layers: number of layers.
    dropout: probability of dropping a unit.
    init_scale: weights are initialised uniformly in [-init_scale, init_scale], biases
      to 0.
    dtype: type of the operands of matrix products; the state stays float32.
  """

  history = 1  # minimum number of input rows of an example; any number is accepted
  gates: ClassVar[int]
  arrays: ClassVar[int] = 1  # number of arrays in a layer's state, of which h is last

  embed: Width = 200
  hidden: Width = 200
  layers: Layers = 2
  dropout: Dropout = 0.0
  init_scale: InputScale = 0.1
  dtype: Dtype = "float32"

  @abc.abstractmethod
  def cell(self, state: State, x_BG: jax.Array, h_BG: jax.Array) -> State:
    """The next state of a layer, from x_t W + b and h_{t-1} U."""

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.hidden

  def initial_carry(self, batch_size: int):
    """Zero state of each layer."""
    zeros = lambda: jnp.zeros((batch_size, self.hidden), jnp.float32)
    of_layer = lambda: tuple(zeros() for _ in range(self.arrays))
    return tuple(of_layer() for _ in range(self.layers))

  @nn.compact
  def __call__(self, x_BTE, carry, train: bool = False):
    drop = nn.Dropout(self.dropout, deterministic=not train)
    given_BT = given(x_BTE)
    by_time = lambda x_BT: jnp.swapaxes(x_BT, 0, 1)[:, :, None]
    given_TB1, starts_TB1 = by_time(given_BT), by_time(starts(given_BT))
    x_TBE = drop(jnp.swapaxes(x_BTE, 0, 1))
    finals = []
    for layer, state in enumerate(carry):
      x_TBE, state = self._layer(f"layer_{layer}", x_TBE, given_TB1, starts_TB1, state)
      x_TBE = drop(x_TBE)
      finals.append(state)
    return jnp.swapaxes(x_TBE, 0, 1), tuple(finals)

  def _layer(self, name, x_TBE, given_TB1, starts_TB1, state):
    shape = lambda rows: (rows, self.gates * self.hidden)
    init = uniform(self.init_scale)
    w = self.param(f"{name}_w", init, shape(x_TBE.shape[-1]))
    u = self.param(f"{name}_u", init, shape(self.hidden))
    b = self.param(f"{name}_b", nn.initializers.zeros, (self.gates * self.hidden,))
    x_TBG = product(x_TBE, w, self.dtype) + b[None, None, :]

    def step(old, now):
      x_BG, given_B1, starts_B1 = now
      old = tuple(jnp.where(starts_B1, 0, part) for part in old)
      new = self.cell(old, x_BG, product(old[-1], u, self.dtype))
      new = tuple(jnp.where(given_B1, *pair) for pair in zip(new, old, strict=True))
      return new, new[-1]

    state, h_TBD = jax.lax.scan(step, state, (x_TBG, given_TB1, starts_TB1))
    return h_TBD, state
