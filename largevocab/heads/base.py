"""The interface of heads: all that lies between the last hidden activation and loss."""

from typing import Any, NamedTuple, Protocol

import jax
from jax.typing import ArrayLike

from largevocab.labels import Counts, Targets, known_targets
from largevocab.ops.softmax.chunks import sum_dtype

PyTree = Any


class HeadStep(NamedTuple):
  """What a head returns for one batch.

  Attributes:
    loss: f32[], sum(w * loss) / sum(w) over the examples, nats.
    dh_ND: [N, D], d loss / d h, of the type of h: all that the rest of the network
      needs, as the function of `jax.vjp` takes it.
    grads: the head's own form of its gradient; only `Head.update` opens it.
    sq_norm: f32[], |d loss / d head parameters|^2, for clipping jointly with the
      network.
  """

  loss: jax.Array
  dh_ND: jax.Array
  grads: PyTree
  sq_norm: jax.Array


class Head(Protocol):
  """An output layer. Implemented by frozen dataclasses: fields are hyper-parameters,
  methods are pure functions, all state is one pytree of distinct arrays.

  h may be float32, bfloat16, float16 or, with `jax_enable_x64`, float64. `dh_ND` has
  its type; losses, metrics, scores, sums and the squared norm are float32 (float64 of
  float64).

  Class ids outside 0 ... V - 1 are padding if they have no weight. If one has, the loss
  is NaN, and so is what `evaluate` says of that example.
  """

  def refreshes(self, step: int) -> bool:
    """Whether `refresh` is due after so many steps."""
    ...

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> PyTree:
    """State for classes with these counts and activations of width dim."""
    ...

  def backward(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    """Loss and gradients of one batch."""
    ...

  def update(
    self, state: PyTree, grads: PyTree, lr: ArrayLike, scale: ArrayLike
  ) -> PyTree:
    """Applies scale * grads at rate lr and brings every statistic up to date."""
    ...

  def refresh(self, state: PyTree, key: jax.Array) -> PyTree:
    """The rare and dear work: rebuilds statistics."""
    ...

  def evaluate(
    self, state: PyTree, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """Exact metrics f32[N] per example; 'nll' (nats) only if normalised over V."""
    ...

  def monitor(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    """Scalars that tell, by all logits of a few examples of a batch, how good the
    head's sample is, or how true its statistics; {} where there are none."""
    ...

  def top_k(
    self, state: PyTree, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """Ids i32[N, k] and scores f32[N, k] (log-probabilities where the head is
    normalised) of the best classes, best first; never holds [N, V].

    Ids are below V whatever h is; where h has a NaN, the example's scores are NaN.

    Raises:
      ValueError: k is not in 1 ... V.
    """
    ...

  def class_rows(self, state: PyTree, ids_R: jax.Array) -> jax.Array:
    """Output embeddings of classes i32[R], f32[R, E] with E >= D: their first D columns
    are what multiplies h; those after them, if any, what multiplies constants."""
    ...


def read_batch(
  h_ND: jax.Array, y: Targets, num_classes: int
) -> tuple[jax.Array, Targets]:
  """A batch as heads compute with it: h in at least float32, whatever is no class as
  padding (`known_targets`). What a head makes of it is to be cast back to h's type."""
  return h_ND.astype(sum_dtype(h_ND.dtype)), known_targets(y, num_classes)


def is_refresh(step: int, every: int, growth: float = 1.0) -> bool:
  """Whether to refresh after this many steps.

  After `every`, and then after gaps that grow: gap k is every * growth^k steps long.
  Before the first of them also at powers of two, since a model changes fastest at the
  beginning. With `every` = 0 never.

  >>> [step for step in range(1, 35) if is_refresh(step, 10)]
  [1, 2, 4, 8, 10, 20, 30]
  >>> [step for step in range(1, 100) if is_refresh(step, 10, growth=2.0)]
  [1, 2, 4, 8, 10, 30, 70]

  Source: Daghaghi et al. 2021, section 3.3 (an update period that grows exponentially).
  """
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
