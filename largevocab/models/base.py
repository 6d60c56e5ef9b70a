"""Shared parts of networks: the base of networks without a state, and layer parts."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp


class Stateless(nn.Module):
  """Base of networks without a recurrent state."""

  def initial_carry(self, batch_size: int):
    """The recurrent state, which is empty."""
    return ()


def affine(
  network: nn.Module,
  name: str,
  h: jax.Array,
  width: int,
  init: Callable,
  dtype: str,
) -> jax.Array:
  """h W + b, with parameters `{name}_w` and `{name}_b`; the latter starts at 0."""
  w = network.param(f"{name}_w", init, (h.shape[-1], width))
  b = network.param(f"{name}_b", nn.initializers.zeros, (width,))
  o = product(h, w, dtype)
  return o + jnp.broadcast_to(b, o.shape)


def product(h: jax.Array, w: jax.Array, dtype: str) -> jax.Array:
  """h W, with operands of type `dtype`; sums stay float32."""
  h, w = h.astype(dtype), w.astype(dtype)
  return jnp.matmul(h, w, preferred_element_type=jnp.float32)


def uniform(scale: float) -> Callable:
  """Initialiser: uniform in [-scale, scale]."""

  def init(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -scale, scale)

  return init
