"""Finds the classes that a head draws for given examples."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.heads.sampled import Sampled
from largevocab.labels import Targets


class Drawn(NamedTuple):
  """Classes in one draw for a batch, besides the true classes.

  Attributes:
    is_drawn_NV: bool[N, V], whether an example has a class in its draw.
    is_own: whether some classes are drawn per example.
  """

  is_drawn_NV: jax.Array
  is_own: bool


def drawn_classes(
  head: Sampled, state: Any, h_ND: jax.Array, y: Targets, key: jax.Array
) -> Drawn:
  """Makes one draw, with these examples as a batch."""
  w_VD = state.table.w_VD
  got = head.candidates(state, head.features(h_ND), y, key)
  ids = jnp.where(got.mask, got.ids, len(w_VD))
  is_drawn_NV = jnp.zeros((len(h_ND), len(w_VD)), bool)
  is_drawn_NV = is_drawn_NV.at[jnp.arange(len(h_ND))[:, None], ids].set(
    True, mode="drop"
  )
  return Drawn(is_drawn_NV, bool(got.own_NS.size))
