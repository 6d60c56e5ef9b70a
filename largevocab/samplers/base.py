"""The interface of samplers: what a draw is, and the law that it reports."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from largevocab.labels import Counts, Targets, is_class

PyTree = Any


class Draw(NamedTuple):
  """Negative classes, and how often each was to be expected.

  A draw is a constant: no gradient flows through it.

  Attributes:
    ids: i32[M] shared by the batch, or i32[N, M] per example. M is the m that was asked
      for, or, of a draw whose size is random, a capacity that may be larger.
    log_expected: f32, same shape: log of the expected number of times that this class
      occurs in the draw, in nats. It is the law of the draw as made, also with stale
      statistics. An importance weight is exp(-log_expected).
    mask: bool, same shape: False on unused capacity.
    exact_ids: i32[S] or i32[N, S], classes to be summed exactly besides the true ones,
      each at most once per example, padded with V; or None. They are exact whatever
      `log_expected` says, which is the law of `ids`.
  """

  ids: jax.Array
  log_expected: jax.Array
  mask: jax.Array
  exact_ids: jax.Array | None = None


class Sampler(Protocol):
  """A law over classes. Implemented by frozen dataclasses of hyper-parameters.

  A sampler keeps statistics only; the class table is passed in, since a second
  reference to it would keep it from being updated in place.

  A sampler may have an attribute `independent`, True if each example has m draws of its
  own that are independent, with replacement, and all from one law: expected = m q. The
  sampled softmax then weighs them by that law given that they missed the exact set
  (`losses.complement_weights`).

  It may have an attribute `distinct`, True if no draw has a class twice: expected is
  then the probability that it has the class.

  It may have an attribute `weighable`, False if its draws are no sample that a law
  could weigh. Heads that weigh by the law refuse such a sampler.
  """

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> PyTree:
    """Statistics for draws of size m: a pytree of distinct arrays."""
    ...

  def sample(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    m: int,
  ) -> Draw:
    """Draws m classes (per example or for the batch)."""
    ...

  def log_expected(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
    m: int,
  ) -> jax.Array:
    """Log expected number of times each of `ids` occurs in a draw of size m.

    `ids` is i32[M] or i32[N, M]; the result has the shape of `Draw.log_expected`
    of this sampler's draws. With ids = all classes it enumerates the law: the
    exponentials then sum to the expected size of the draw.

    An id outside 0 ... V - 1, as padding is, is never drawn: its entry is -inf, like
    that of a class that the law leaves out. Nothing else is infinite or NaN, and no
    entry depends on the others or on those of other examples.
    """
    ...

  def update(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    ids_R: jax.Array,
    old_RD: jax.Array,
    new_RD: jax.Array,
  ) -> PyTree:
    """Statistics after rows `ids_R` of the table, distinct, changed from old to new.

    `w_VD` is the table after the change; ids >= V are padding.
    """
    ...

  def refresh(self, stats: PyTree, w_VD: jax.Array, key: jax.Array) -> PyTree:
    """Statistics rebuilt from the whole table."""
    ...


@runtime_checkable
class FixedLaw(Sampler, Protocol):
  """A sampler whose law is the same for every example, whatever the rows."""

  def log_expected_of_all(self, stats: PyTree, m: int) -> jax.Array:
    """`log_expected` of every class, f32[V]."""
    ...


def log_expected_at(log_expected_V: jax.Array, ids: jax.Array) -> jax.Array:
  """Entries of a law that is one table, as `Sampler.log_expected` has them.

  >>> log_expected_at(jnp.array([0.0, -1.0]), jnp.array([1, 2, -1])).tolist()
  [-1.0, -inf, -inf]
  """
  at_ids = log_expected_V.at[ids].get(mode="clip")
  return jnp.where(is_class(ids, len(log_expected_V)), at_ids, -jnp.inf)


def log_certain_at(
  certain_NS: jax.Array, ids_NM: jax.Array, num_classes: int
) -> jax.Array:
  """`Sampler.log_expected` of classes that each example has for certain, and no others:
  0 or -inf, f32[N, M].

  Args:
    certain_NS: i32, ids >= num_classes are padding.
    ids_NM: i32, classes to be told of.
    num_classes: V.

  Cost: O(N (S + M) log S).

  >>> log_certain_at(jnp.array([[3, 1, 4]]), jnp.array([[1, 2, 3, 4]]), 4).tolist()
  [[0.0, -inf, 0.0, -inf]]
  """
  sorted_NS = jnp.sort(certain_NS, axis=1)
  at_NM = jax.vmap(jnp.searchsorted)(sorted_NS, ids_NM)
  at_NM = jnp.minimum(at_NM, certain_NS.shape[1] - 1)
  is_there_NM = jnp.take_along_axis(sorted_NS, at_NM, axis=1) == ids_NM
  return jnp.where(is_there_NM & is_class(ids_NM, num_classes), 0.0, -jnp.inf)


class NoUpkeep:
  """Base of samplers whose statistics do not depend on the table."""

  def update(self, stats, w_VD, ids_R, old_RD, new_RD):
    return stats

  def refresh(self, stats, w_VD, key):
    return stats
