"""The sampler interface: draws of negatives and their log expected counts."""

from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import Count, settings
from largevocab.labels import Counts, Targets, is_class
from largevocab.ops.accidental_hits import is_member

PyTree = Any


@jax.tree_util.register_static
@settings
class Size:
  """The number of draws that statistics are for: static, part of their structure.

  Attributes:
    m: number of draws of each example, or of the batch.
  """

  m: Count


def check_size(stats: PyTree, m: int) -> None:
  """Checks that statistics are for draws of size m.

  Raises:
    UserError: they were made for another number of draws.

  >>> check_size((jnp.zeros(2), Size(3)), 4)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: the sampler's statistics were made for 3 draws, but \
head.num_samples is 4: call init again, or set head.num_samples back
  """
  is_size = lambda x: isinstance(x, Size)
  sizes = [x.m for x in jax.tree.leaves(stats, is_leaf=is_size) if is_size(x)]
  if sizes and sizes[0] != m:  # any others are those of parts
    raise UserError(
      f"the sampler's statistics were made for {sizes[0]} draws, but head.num_samples "
      f"is {m}: call init again, or set head.num_samples back"
    )


class Draw(NamedTuple):
  """Drawn negative classes, with the log of the expected count of each.

  A draw is a constant: no gradient flows through it.

  Attributes:
    ids: i32[M] shared by the batch, or i32[N, M] per example. Where the mask is True,
      they are in 0 ... V - 1; otherwise the loss of a head on one device is NaN. M is
      the m that was asked for, or, for a draw of random size, a capacity that may be
      larger.
    log_expected: f32, same shape: log of the expected number of times that this class
      occurs in the draw (for the logQ correction). It describes the draw as made, even
      with stale statistics. The importance weight is exp(-log_expected).
    mask: bool, same shape: False on unused capacity.
    exact_ids: i32[S] or i32[N, S], classes to be summed exactly besides the true ones,
      each at most once per example, padded with V; or None. `log_expected` refers to
      `ids` only and does not apply to them.
    constant: bool, same shape as `ids`: True for classes whose rows the loss treats as
      constants, so that a step does not change them; or None.
  """

  ids: jax.Array
  log_expected: jax.Array
  mask: jax.Array
  exact_ids: jax.Array | None = None
  constant: jax.Array | None = None


@runtime_checkable
class Sampler(Protocol):
  """A proposal distribution over classes, as a frozen dataclass of hyper-parameters.

  A sampler keeps statistics only. The class table is passed in, since a second
  reference to it would prevent in-place updates.

  Arguments of its methods, besides those that each method explains:
    stats: what `init` returned, or `update` or `refresh` after it.
    w_VD: float32 or bfloat16, the class table as the head holds it. If there are
      biases, it has their column, and zeros up to a multiple of 8.
    h_ND: f32, the activations as the head multiplies them with rows. If there are
      biases, they have a 1 in the column of the biases
      (`largevocab/ops/softmax/bias.py`); for cosine logits, both are scaled.
    y: the true classes; ids outside 0 ... V - 1 are padding.

  Optional attributes:
    independent: True if each example has its own m independent draws with replacement
      from one distribution q: expected count = m q. The sampled softmax then uses the
      weights of `losses.complement_weights`, conditional on the draws that missed the
      exact set. With blocks of classes this holds in each block.
    distinct: True if draws are without replacement. The expected count is then the
      inclusion probability.
    queries: a method of w_VD, h_ND and y, for samplers that look up an example by rows
      of the table. With blocks of classes, these rows may be in another block: the
      method is then called before the blocks draw, and `sample` and `log_expected` get
      its result as h_ND.
    weighable: False if the expected counts of the draws are unknown, and the classes
      cannot be summed with weight 1 either, as the best classes can. Heads that use
      importance weights refuse such a sampler.
    keeps_up: False if statistics do not depend on the table, and neither `update` nor
      `refresh` changes them.
    rebuilds: False if `refresh` changes nothing; by default, the value of `keeps_up`.
    counts_rows: True if `update` takes the changed rows to be the classes drawn, so
      that no other sampler may draw with it.
    is_choice: True if nothing is left to chance: a class that is not chosen has the
      expected count 0, and losses that need noise refuse the sampler.
    of_batches: True if the draws of an example depend on the other examples of its
      batch, or on earlier batches, so that a single example has no distribution of its
      own.
    is_fixed: False if a sampler with the methods of a `FixedLaw` is not one with the
      current settings.
    draws_for: a method from the number of labels of a batch to the number of draws, if
      the first determines the second.
    log_expected_in_range: a method that gives `log_expected` of consecutive classes,
      if these cost less than the same number of arbitrary classes (`TwoStage`).
    follows_products: whether the sampler follows products of class rows and activations
      of any length, not directions. By default, True for samplers that have `absolute`.
  """

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> PyTree:
    """Statistics for draws of size m: a pytree of distinct arrays.

    It also holds m, as a `Size`, before the sizes of any parts of the draw.
    """
    ...

  def sample(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
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
  ) -> jax.Array:
    """Log expected number of times each of `ids` occurs in a draw of size m.

    `ids` is i32[M] or i32[N, M]; the result has the shape of `Draw.log_expected` of
    this sampler's draws. With ids = all classes it gives the whole distribution: the
    exponentials then sum to the expected size of the draw.

    Ids outside 0 ... V - 1 (padding) are never drawn: their entries are -inf, as are
    those of classes that cannot be drawn. Nothing else is infinite or NaN. No entry
    depends on the other entries, or on those of other examples.
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
    """Statistics after the distinct rows `ids_R` changed from old_RD to new_RD.

    `w_VD` is the table after the change; ids >= V are padding.
    """
    ...

  def refresh(self, stats: PyTree, w_VD: jax.Array, key: jax.Array) -> PyTree:
    """Statistics rebuilt from the whole table."""
    ...


@runtime_checkable
class FixedLaw(Sampler, Protocol):
  """A sampler with one distribution for all examples, independent of the class rows."""

  def log_expected_of_all(self, stats: PyTree) -> jax.Array:
    """`log_expected` of every class, f32[V]."""
    ...


def follows_logits(sampler: Sampler) -> bool:
  """Whether the distribution follows the model's logits, o or |o| (`absolute`)."""
  return any(hasattr(s, "absolute") and not has_fixed_law(s) for s in parts_of(sampler))


def follows_products(sampler: Sampler) -> bool:
  """Whether it follows products of class rows and activations of any length."""
  follows = lambda s: getattr(s, "follows_products", follows_logits(s))
  return any(map(follows, parts_of(sampler)))


def parts_of(sampler: Any) -> tuple[Sampler, ...]:
  """The samplers that a mixture draws with; for any other sampler, itself."""
  return getattr(sampler, "parts", (sampler,))


def has_fixed_law(sampler: Sampler) -> TypeGuard[FixedLaw]:
  """Whether one proposal distribution holds for all examples and tables."""
  return isinstance(sampler, FixedLaw) and getattr(sampler, "is_fixed", True)


def counts_rows(sampler: Any) -> bool:
  """Whether `update` takes the changed rows to be the classes drawn."""
  return getattr(sampler, "counts_rows", False)


def follows_labels(sampler: Any) -> bool:
  """Whether a draw depends on the true classes of the batch."""
  return counts_rows(sampler) or hasattr(sampler, "queries")


def is_choice(sampler: Any) -> bool:
  """Whether classes are chosen deterministically, not drawn."""
  return getattr(sampler, "is_choice", False)


def keeps_up(sampler: Sampler) -> bool:
  """Whether statistics follow the table."""
  return getattr(sampler, "keeps_up", True)


def rebuilds(sampler: Sampler) -> bool:
  """Whether `refresh` changes the statistics."""
  return getattr(sampler, "rebuilds", keeps_up(sampler))


def log_expected_in_range(
  sampler: Sampler,
  stats: PyTree,
  w_VD: jax.Array,
  h_ND: jax.Array,
  y: Targets,
  first: jax.Array,
  num: int,
) -> jax.Array:
  """`log_expected` of the classes from `first` to `first + num - 1`.

  Uses the sampler's method of this name if it has one.

  >>> from largevocab.samplers import Uniform
  >>> w_VD, sampler = jnp.zeros((4, 1)), Uniform()
  >>> stats = sampler.init(Counts([1] * 4), w_VD, 8)
  >>> log_expected_in_range(sampler, stats, w_VD, jnp.ones((1, 1)), None, 2, 2).tolist()
  [0.6931471824645996, 0.6931471824645996]
  """
  of_range = getattr(sampler, "log_expected_in_range", None)
  if of_range is not None:
    return of_range(stats, w_VD, h_ND, y, first, num)
  ids_M = first + jnp.arange(num, dtype=jnp.int32)
  return sampler.log_expected(stats, w_VD, h_ND, y, ids_M)


def own_ids(ids: jax.Array, num: int) -> jax.Array:
  """The ids of `Sampler.log_expected` for each of `num` examples, i32[N, M].

  >>> own_ids(jnp.array([4, 2]), 2).tolist(), own_ids(jnp.array([[4], [2]]), 2).tolist()
  ([[4, 2], [4, 2]], [[4], [2]])
  """
  return jnp.broadcast_to(ids, (num, ids.shape[-1]))


def log_expected_at(log_expected_V: jax.Array, ids: jax.Array) -> jax.Array:
  """Looks up ids in a table log_expected_V; -inf for ids outside 0 ... V - 1.

  >>> log_expected_at(jnp.array([0.0, -1.0]), jnp.array([1, 2, -1])).tolist()
  [-1.0, -inf, -inf]
  """
  at_ids = log_expected_V.at[ids].get(mode="clip")
  return jnp.where(is_class(ids, len(log_expected_V)), at_ids, -jnp.inf)


def log_certain_at(
  certain_NS: jax.Array, ids_NM: jax.Array, num_classes: int
) -> jax.Array:
  """`Sampler.log_expected` of a deterministic choice, f32[N, M].

  It is 0 for the chosen classes of each example, and -inf for all others.

  Args:
    certain_NS: i32, the chosen classes; ids >= num_classes are padding.
    ids_NM: i32, classes to look up.
    num_classes: V.

  Cost: that of `is_member`.

  >>> log_certain_at(jnp.array([[3, 1, 4]]), jnp.array([[1, 2, 3, 4]]), 4).tolist()
  [[0.0, -inf, 0.0, -inf]]
  """
  is_certain_NM = is_member(ids_NM, certain_NS) & is_class(ids_NM, num_classes)
  return jnp.where(is_certain_NM, 0.0, -jnp.inf)


class NoUpkeep:
  """Base of samplers whose statistics do not depend on the table."""

  keeps_up: ClassVar[bool] = False

  def update(self, stats, w_VD, ids_R, old_RD, new_RD):
    return stats

  def refresh(self, stats, w_VD, key):
    return stats
