"""The adaptive softmax: frequent classes directly, rare ones through their cluster.

  p(c | h) = p(c | short-list and clusters, h)                   c on the short-list
  p(c | h) = p(cluster of c | ..., h) p(c | its cluster, h)      else

Both are softmaxes of linear logits. The first is over the rows of the short-list and
one row for each tail. The others are over the rows of a tail, which are narrower and
multiply a projection of h. A class is identified by its place: short-list first, then
tail by tail.

Here J is the number of clusters, including the short-list.
"""

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from largevocab.ops import shards
from largevocab.ops.softmax.bias import extend, extended_width
from largevocab.ops.softmax.chunks import compute_dtype, product, wide


class Tail(NamedTuple):
  """Parameters of the softmax over a tail.

  Attributes:
    down_ED: projection of the activations to the width of the tail.
    rows_VE: a row for each class of the tail: as wide as the projection or, with a
      bias, as returned by `largevocab.ops.softmax.bias.extend`.
  """

  down_ED: jax.Array
  rows_VE: jax.Array

  def features(self, h_ND: jax.Array, dtype=None) -> jax.Array:
    """Projection of h, with a constant feature if the rows have a bias.

    dtype: type of the operands of the projection.
    """
    dtype = compute_dtype(h_ND, self.down_ED, dtype)
    x_NE = product("nd,ed->ne", h_ND, self.down_ED, dtype)
    has_bias = self.rows_VE.shape[1] > self.down_ED.shape[0]
    return extend(x_NE) if has_bias else x_NE


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Model:
  """All parameters. On several devices, each device holds some rows of every table.

  Attributes:
    head_VD: a row for each class of the short-list, then one for each tail; as wide as
      h or, with a bias, as returned by `largevocab.ops.softmax.bias.extend`.
    tails: the tails, by decreasing frequency of their classes.
    given_sizes: number of classes of the short-list and of each tail; empty: those of
      the tables. Static.
  """

  head_VD: jax.Array
  tails: tuple[Tail, ...]
  given_sizes: tuple[int, ...] = field(default=(), metadata={"static": True})

  @property
  def sizes(self) -> tuple[int, ...]:
    """Number of classes of the short-list and of each tail."""
    of_tails = tuple(len(tail.rows_VE) for tail in self.tails)
    return self.given_sizes or (len(self.head_VD) - len(of_tails), *of_tails)

  @property
  def head_size(self) -> int:
    """Number of rows of the head."""
    return self.sizes[0] + len(self.tails)

  def features(self, h_ND: jax.Array) -> jax.Array:
    """h, with a constant feature if the short-list has a bias."""
    return extend(h_ND) if self.head_VD.shape[1] > h_ND.shape[1] else h_ND

  def head_rows(self, place_NP: jax.Array) -> jax.Array:
    """The row of the head for each place: that of the class, or that of its tail."""
    ends_J = jnp.cumsum(jnp.array(self.sizes, jnp.int32))
    tail_NP = jnp.searchsorted(ends_J, place_NP, side="right").astype(jnp.int32)
    # Places >= V come after the last tail, and so get rows after the last row.
    return jnp.where(tail_NP > 0, self.sizes[0] + tail_NP - 1, place_NP)


def class_rows(model: Model, place_R: jax.Array) -> jax.Array:
  """Rows such that <row, h> is log p(c | h) up to log-partition functions.

  For the short-list, it is the row of the class; for a tail, the row of the tail plus
  the projected row of the class.

  Args:
    model: all parameters.
    place_R: i32[R], places of classes.

  Returns:
    f32[R, D'], as wide as h or, if there is any bias, as returned by
    `largevocab.ops.softmax.bias.extend`.

  >>> tail = Tail(jnp.array([[2.0, 3.0]]), jnp.array([[1.0], [4.0]]))
  >>> model = Model(jnp.array([[5.0, 6.0], [0.5, 0.0]]), (tail,))
  >>> class_rows(model, jnp.array([0, 2])).tolist()
  [[5.0, 6.0], [8.5, 12.0]]
  """
  with shards.table(model.head_size):
    rows_RD = wide(shards.rows_of(model.head_VD, model.head_rows(place_R)))
  spans = itertools.pairwise(itertools.accumulate(model.sizes))
  for tail, (start, end) in zip(model.tails, spans, strict=True):
    width, dim = tail.down_ED.shape
    # Negative indices would count from the end.
    local_R = jnp.where(place_R < start, end, place_R) - start
    with shards.table(end - start):
      rows_RE = wide(shards.rows_of(tail.rows_VE, local_R))
    down_ED = wide(tail.down_ED)
    wide_RD = product("re,ed->rd", rows_RE[:, :width], down_ED, down_ED.dtype)
    if rows_RE.shape[1] > width:
      rest = extended_width(dim) - dim
      bias_R1 = rows_RE[:, width : width + 1]
      wide_RD = jnp.concatenate([wide_RD, jnp.pad(bias_R1, ((0, 0), (0, rest - 1)))], 1)
    more = wide_RD.shape[1] - rows_RD.shape[1]
    rows_RD = jnp.pad(rows_RD, ((0, 0), (0, max(more, 0))))
    rows_RD += jnp.pad(wide_RD, ((0, 0), (0, max(-more, 0))))
  return rows_RD
