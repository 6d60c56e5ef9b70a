"""State and gradients of the head `Sampled`."""

from typing import Any, NamedTuple

import jax

from largevocab.ops.activations import Activations, knows_activations
from largevocab.rows import RowGrads, Table, added

PyTree = Any


@knows_activations
class SampledState(NamedTuple):
  """State of `Sampled`.

  Attributes:
    table: the class rows.
    stats: statistics of the sampler.
    exact_T: i32[T], the classes that are always candidates; None: none. With several
      blocks, each block has the same number, padded with V.
    log_z: learned log-partition functions, as rows of width 1; None: none.
    activations: the activations that the state is for; None: not known. Static.
  """

  table: Table
  stats: PyTree
  exact_T: jax.Array | None
  log_z: Table | None
  activations: Activations | None = None


class SampledGrads(NamedTuple):
  """Gradients of the class rows and of the learned log-partition functions.

  Attributes:
    rows: gradient of the class rows.
    log_z: gradient of the learned log-partition functions, if there are any.
    drawn: ids of the rows that the loss read, without their gradients. Set if other
      rows are given a gradient too, and the sampler counts the classes drawn.
  """

  rows: RowGrads
  log_z: RowGrads | None
  drawn: RowGrads | None = None

  __add__ = added  # pyrefly: ignore
