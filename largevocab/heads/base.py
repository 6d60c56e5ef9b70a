"""The head interface: output layers, from the last hidden activation to the loss."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, known_targets
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations, check_mesh
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide

PyTree = Any
# How the leaves of a state are sharded over devices: by the rows of a table, by one
# entry for each block of classes, or not at all. In the last case blocks make equal
# initial values (WHOLE), or terms whose sum is the initial value (SUM).
ROWS, BLOCKS, WHOLE, SUM = "rows", "blocks", "whole", "sum"


class HeadStep(NamedTuple):
  """Loss and gradients of a head for one batch.

  Attributes:
    loss: f32[], sum(w * loss) / sum(w) over the examples, in nats; undivided if the
      weights have no positive sum.
    dh_ND: [N, D], d loss / d h, of the type of h. Pass this cotangent to the function
      that `jax.vjp` of the network returns.
    grads: gradient in the head's own format, for `Head.update` only.
    sq_norm: f32[], |d loss / d head parameters|^2, for clipping by the global norm
      together with the network.
  """

  loss: jax.Array
  dh_ND: jax.Array
  grads: PyTree
  sq_norm: jax.Array


class Head(Protocol):
  """An output layer, as a frozen dataclass.

  Fields are hyper-parameters, methods are pure functions, and all state is one pytree
  of distinct arrays.

  h may be float32, bfloat16, float16 or, with `jax_enable_x64`, float64. It must not be
  on a mesh with Explicit axes. `dh_ND` has the type of h. Losses, metrics, scores, sums
  and the squared norm are computed in float32, also if h is float64: some of them are
  then float64 arrays of float32 precision.

  Optional attributes:
    row_sparse: True if a step reads and writes few rows of the tables. They should then
      be row-major (`largevocab.placement.row_major`); otherwise the compiler's layout
      is the best.
    counts_batches: True if `update` counts the classes of a batch, and so must not be
      given the gradient of several batches.

  Optional method, of heads that have one table with a row for each class:
    add_row_grads: from (state, grads, ids_R, g_RD) to (grads, sq_norm), those of
      `HeadStep` for a network that also reads rows of the table (tied embeddings).
      `grads` are the gradients of this loss so far, `ids_R` the classes i32[R] whose
      `class_rows` the network read, and g_RD f32[R, D] the gradient of their first D
      columns. Ids may repeat; ids >= V are padding.

  Class ids outside 0 ... V - 1 are padding if their weight is 0. Otherwise the loss is
  NaN, and so are the metrics of `evaluate` for that example.
  """

  def refreshes(self, step: int) -> bool:
    """Whether `refresh` is due after this many steps."""
    ...

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> PyTree:
    """Initial state for classes with these counts and activations of width dim."""
    ...

  def backward(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    """Loss and gradients of one batch.

    Heads that draw nothing do not use the key; None will do for them.
    """
    ...

  def update(
    self, state: PyTree, grads: PyTree, lr: ArrayLike, scale: ArrayLike = 1.0
  ) -> PyTree:
    """Applies scale * grads at learning rate lr and updates all statistics.

    Raises:
      UserError: grads are not the `grads` of a `HeadStep` of this head.
    """
    ...

  def sq_norm(self, state: PyTree, grads: PyTree) -> jax.Array:
    """f32[], |d loss / d head parameters|^2 of gradients at this state.

    As in `HeadStep.sq_norm`, but also for gradients that `accumulate` or
    `add_row_grads` made.
    """
    ...

  def refresh(self, state: PyTree, key: jax.Array) -> PyTree:
    """Rebuilds statistics. This is expensive, and done rarely."""
    ...

  def evaluate(
    self, state: PyTree, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """Exact metrics f32[N] per example; 'nll' (nats) only for normalised models."""
    ...

  def monitor(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    """Scalar diagnostics of the head's sample or statistics; {} if there are none.

    They are computed from all logits of a few examples of a batch.
    """
    ...

  def top_k(
    self, state: PyTree, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """Ids i32[N, k] and scores f32[N, k] of the k best classes, best first.

    Scores are log-probabilities if the head is normalised. No [N, V] array is held. Ids
    are below V for every h; if h has a NaN, the example's scores are NaN.

    Raises:
      ValueError: k is not in 1 ... V.
    """
    ...

  def sharding(self, state: PyTree) -> PyTree:
    """ROWS, BLOCKS, WHOLE or SUM in place of each leaf of a state."""
    ...

  def in_blocks(self) -> "Head":
    """The head as it computes on one of several devices.

    It computes with the blocks of classes that are there (`largevocab.heads.sharded`).
    """
    ...

  def init_blocks(
    self, key: jax.Array, counts: Counts, dim: int, blocks: Blocks
  ) -> Callable[[int], PyTree]:
    """A function from the number of a block to its initial state.

    Call it on the head that `in_blocks` returns, within `shards.over(blocks)`.
    """
    ...

  def class_rows(self, state: PyTree, ids_R: jax.Array) -> jax.Array:
    """Output embeddings of classes i32[R], f32[R, E] with E >= D.

    The first D columns multiply h; any others multiply the constant features.
    """
    ...


def read_batch(
  h_ND: jax.Array, y: Targets, num_rows: int, given: Activations | None
) -> tuple[jax.Array, Targets]:
  """A batch in the form that heads compute with.

  h is in at least float32, invalid ids are padding (`known_targets`), and each example
  has at least one label. `head_step` casts results back.

  On several devices, each device reads the whole batch. `num_rows` is the number of
  rows on this device; classes of other devices are padding that keeps its weight.

  Raises:
    ValueError: shapes do not agree, or see `activations`.
    UserError: y is not a `Targets`, or see `activations`.
  """
  h_ND = activations(h_ND, given)
  if not isinstance(y, Targets):
    raise UserError(
      f"y is of type {type(y).__name__}: pass Targets, such as single_targets(ids_N)"
    )
  check_shapes(h_ND=h_ND, **y._asdict())
  check_mesh(y.ids_NP)
  h_ND, y = shards.all_examples((h_ND, y))
  if not y.ids_NP.shape[1]:
    none_N1 = jnp.zeros((len(h_ND), 1), jnp.int32)
    y = y._replace(ids_NP=none_N1, w_NP=none_N1.astype(jnp.float32))
  y = known_targets(y, shards.num_classes(num_rows))
  y = y._replace(ids_NP=shards.own_rows(y.ids_NP, num_rows))
  return wide(h_ND), y


def read_training_batch(
  h_ND: jax.Array, y: Targets, num_rows: int, given: Activations | None
) -> tuple[jax.Array, Targets]:
  """`read_batch`, with non-finite activations set to 0 in examples without weight.

  In sums over the examples, 0 NaN would be NaN.
  """
  h_ND, y = read_batch(h_ND, y, num_rows, given)
  counts_N1 = jnp.any(y.w_NP != 0, axis=1, keepdims=True)
  return jnp.where(counts_N1 | jnp.isfinite(h_ND), h_ND, 0), y


def head_step(
  loss: jax.Array, dx_ND: jax.Array, like_ND: jax.Array, grads: PyTree, norm: jax.Array
) -> HeadStep:
  """The result of `Head.backward`.

  Args:
    loss: loss of the whole batch.
    dx_ND: gradient with respect to the features, from the rows of this device.
    like_ND: the activations, whose width and type `dh_ND` has.
    grads: gradients in the head's own format.
    norm: squared norm of the gradient of all rows.
  """
  dh_ND = shards.sum_for_own_examples(dx_ND[:, : like_ND.shape[1]])
  # NumPy's float64 becomes float32 without `jax_enable_x64`.
  dtype = jax.dtypes.canonicalize_dtype(like_ND.dtype)
  return HeadStep(loss, dh_ND.astype(dtype), grads, norm)


def check_grads(grads: PyTree, *kinds: type) -> None:
  """Checks that `Head.update` is given gradients of this head.

  Raises:
    UserError: the argument is anything else, such as the whole result of `backward`.
  """
  if not isinstance(grads, kinds):
    raise UserError(
      f"grads is of type {type(grads).__name__}: pass the `grads` of the result of "
      "this head's `backward`"
    )


def total_weight(y: Targets) -> jax.Array:
  """Sum of the examples' weights; 1 if the sum is not positive.

  The mean of a batch without weight is then 0, and a negative sum does not reverse the
  gradient. Weights of invalid labels, which are NaN, are left out: the gradients of the
  other examples stay a mean.
  """
  total = jnp.nansum(y.w_NP)
  return jnp.where(total > 0, total, 1)


def is_refresh(step: int, every: int, growth: float = 1.0) -> bool:
  """Whether statistics should be refreshed after this many steps.

  Gap k between refreshes is every * growth^k steps long. Before the first of these
  refreshes, there are others at powers of two, since a model changes fastest at the
  beginning. `every` = 0 disables all refreshes.

  Raises:
    UserError: `step` is not a concrete whole number on the host.

  >>> [step for step in range(1, 35) if is_refresh(step, 10)]
  [1, 2, 4, 8, 10, 20, 30]
  >>> [step for step in range(1, 100) if is_refresh(step, 10, growth=2.0)]
  [1, 2, 4, 8, 10, 30, 70]

  Source: Daghaghi et al. 2021, section 3.3 (an update period that grows exponentially).
  """
  try:
    step = operator.index(step)
  except TypeError:
    raise UserError(
      f"step is of type {type(step).__name__}: pass a whole number whose value is "
      "known on the host, and call `refreshes` outside jax.jit"
    ) from None
  if not every:
    return False
  if step < every:
    return step.bit_count() == 1
  if growth == 1:
    return step % every == 0
  at, gap = every, every * growth
  while at < step:
    at, gap = at + round(gap), gap * growth
  return at == step
