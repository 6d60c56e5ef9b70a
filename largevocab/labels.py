"""Inputs of heads: the `Targets` of a batch and the `Counts` of the classes."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.fields import Count, CountOrNone, declared_as, settings
from largevocab.ops.shapes import check_shapes

_MOST_COUNTED = 2**53  # beyond, float64 does not know all whole numbers


class Targets(NamedTuple):
  """The true classes of N examples.

  Attributes:
    ids_NP: i32[N, P], the true classes. Padding is any id outside 0 ... V - 1 with
      weight 0; data sets pad with V, the number of classes.
    w_NP: f32[N, P], their weights, 0 on padding. A row sums to the example's weight:
      1/P each for P equally true classes, all 0 for an example to ignore. An id
      outside 0 ... V - 1 is padding if its weight is 0. Otherwise the loss is NaN;
      `check_targets` reports such ids.
    context_N: i32[N], context ids for heads with state per context: for a language
      model the current input token, for item histories the last item, for examples with
      features the number of the example; -1 if there is no context.
  """

  ids_NP: jax.Array
  w_NP: jax.Array
  context_N: jax.Array


def is_class(ids: Any, num_classes: int) -> Any:
  """Whether ids are in 0 ... V - 1, elementwise; for NumPy and JAX arrays.

  >>> is_class(np.array([-1, 0, 3]), 3).tolist()
  [False, True, False]
  """
  return (ids >= 0) & (ids < num_classes)


def single_targets(
  ids_N: ArrayLike,
  weight_N: ArrayLike | None = None,
  num_classes: int | None = None,
  context_N: ArrayLike | None = None,
) -> Targets:
  """Targets with one true class per example, by default of weight 1.

  Args:
    ids_N: int[N], the labels. Flatten the labels of a sequence in the same way as its
      activations.
    weight_N: f32[N]. To ignore labels, such as -100, give them weight 0:
      `weight_N=ids_N >= 0`.
    num_classes: V, to check the ids against; not under `jax.jit`.
    context_N: int[N], the `context_N` of `Targets`, which the sampler `Bigram` and
      `NCE(normalizer="context")` read. None: every example gets -1; `Bigram` then draws
      by counts alone, and `NCE` learns one log-partition function for all contexts.

  Raises:
    UserError: an id is not a 32-bit integer, or a weight is not finite (values
      are known for NumPy arrays and lists only); or see `check_targets`.
    ValueError: shapes do not agree.

  >>> y = single_targets(np.array([3, -100]), weight_N=[1, 0])
  >>> y.ids_NP.tolist(), y.w_NP.tolist()
  ([[3], [-100]], [[1.0], [0.0]])
  """
  ids_N = _as_int32(_integers("labels", ids_N))
  weight_N = jnp.ones(ids_N.shape) if weight_N is None else _finite(weight_N)
  check_shapes(ids_N=ids_N, weight_N=weight_N)
  return _targets(ids_N[:, None], weight_N[:, None], num_classes, context_N)


def multi_targets(
  ids_NP: ArrayLike,
  weight_NP: ArrayLike | None = None,
  num_classes: int | None = None,
  context_N: ArrayLike | None = None,
) -> Targets:
  """Targets with several true classes per example.

  Args:
    ids_NP: int[N, P], padded with -1, or with V if `num_classes` is given. Each class
      may occur only once in a row, unless weights are given.
    weight_NP: f32[N, P], 0 on padding. None: equal weights for the classes of an
      example, with sum 1.
    num_classes: V, to check the ids against; not under `jax.jit`.
    context_N: as in `single_targets`.

  Raises:
    UserError, ValueError: as for `single_targets`; or a class occurs twice in a row of
      a NumPy array or a list, without weights.

  >>> multi_targets([[3, 1], [2, -1]]).w_NP.tolist()
  [[0.5, 0.5], [1.0, 0.0]]
  """
  given_NP = _integers("labels", ids_NP)
  check_shapes(ids_NP=given_NP)
  ids_NP = _as_int32(given_NP)
  if weight_NP is None:
    is_class_NP = (given_NP != -1) & (given_NP != num_classes)
    if isinstance(given_NP, np.ndarray):
      _check_distinct(np.where(is_class_NP, given_NP, -1))
    is_class_NP = jnp.asarray(is_class_NP)
    num_N1 = jnp.sum(is_class_NP, axis=-1, keepdims=True)
    weight_NP = is_class_NP / jnp.maximum(num_N1, 1)
  weight_NP = _finite(weight_NP)
  check_shapes(ids_NP=ids_NP, weight_NP=weight_NP)
  return _targets(ids_NP, weight_NP, num_classes, context_N)


def _targets(
  ids_NP: jax.Array,
  w_NP: jax.Array,
  num_classes: int | None,
  context_N: ArrayLike | None,
) -> Targets:
  if context_N is None:
    context_N = jnp.full(len(ids_NP), -1, jnp.int32)
  else:
    context_N = _as_int32(_integers("contexts", context_N))
  y = Targets(ids_NP, w_NP.astype(jnp.float32), context_N)
  check_shapes(**y._asdict())
  if num_classes is not None:
    check_targets(y, num_classes)
  return y


def _integers(what: str, ids: ArrayLike) -> jax.Array | np.ndarray:
  """Ids as integers: JAX arrays as they are, anything else as i32."""
  if not isinstance(ids, jax.Array):
    return _whole_numbers(what, _numbers(what, ids))
  if not jnp.issubdtype(ids.dtype, jnp.integer):
    raise UserError(f"{what} are {ids.dtype}: pass class ids as integers")
  return ids


def _as_int32(ids: jax.Array | np.ndarray) -> jax.Array:
  if isinstance(ids, np.ndarray):
    return jnp.asarray(ids)
  # Ids that need more than 32 bits must not become other classes.
  return jnp.where(ids == ids.astype(jnp.int32), ids, -1).astype(jnp.int32)


def _whole_numbers(what: str, given: np.ndarray) -> np.ndarray:
  with np.errstate(invalid="ignore"):
    whole = given.astype(np.int32)
  wrong = np.argwhere(whole != given)
  if len(wrong):
    raise UserError(
      f"{what[:-1]} {given[tuple(wrong[0])]} at {wrong[0].tolist()} is not a class id: "
      "pass whole numbers from 0 to V - 1"
    )
  return whole


def _check_distinct(ids_NP: np.ndarray) -> None:
  sorted_NP = np.sort(ids_NP, axis=1)
  is_again = (sorted_NP[:, 1:] == sorted_NP[:, :-1]) & (sorted_NP[:, 1:] != -1)
  for n, p in np.argwhere(is_again)[:1].tolist():
    raise UserError(
      f"label {sorted_NP[n, p]} occurs twice in ids_NP[{n}], and would count twice: "
      "pass each class of an example once, or pass weight_NP"
    )


def _finite(weights: ArrayLike) -> jax.Array:
  if not isinstance(weights, jax.Array):
    _check_finite(_numbers("weights", weights, "iufb"))
  return jnp.asarray(weights)


def _check_finite(weights: np.ndarray) -> None:
  for at in np.argwhere(~np.isfinite(weights))[:1]:
    raise UserError(
      f"weight {weights[tuple(at)]} at {at.tolist()} is not finite: use 0 for labels "
      "that do not count"
    )


def check_targets(y: Targets, num_classes: int) -> None:
  """Checks on the host that ids with nonzero weight are valid classes.

  Under `jax.jit`, where values are unknown, heads make the loss NaN instead
  (`known_targets`).

  Args:
    y: targets with concrete arrays, of NumPy or JAX.
    num_classes: V.

  Raises:
    UserError: an id outside 0 ... V - 1 has nonzero weight, or a weight is not finite
      (the message names the first one); or V is below 1.

  Cost: O(N P), and a copy to the host.

  >>> check_targets(single_targets([3, 5], [1.0, 0.0]), num_classes=5)
  >>> check_targets(single_targets([3, 5]), num_classes=5)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: label 5 at ids_NP[1, 0] has a weight, but there are 5 \
classes: pass ids from 0 to 4, and padding with weight 0
  """
  ids_NP, w_NP = np.asarray(y.ids_NP), np.asarray(y.w_NP)
  check_shapes(ids_NP=ids_NP, w_NP=w_NP)
  num_classes = declared_as(Count).read("num_classes", num_classes)
  _check_finite(w_NP)
  wrong = np.argwhere(~is_class(ids_NP, num_classes) & (w_NP != 0))
  if len(wrong):
    n, p = wrong[0].tolist()
    raise UserError(
      f"label {ids_NP[n, p]} at ids_NP[{n}, {p}] has a weight, but there are "
      f"{num_classes} classes: pass ids from 0 to {num_classes - 1}, and padding with "
      "weight 0"
    )


def known_targets(y: Targets, num_classes: int) -> Targets:
  """Targets normalised for heads: all padding is V, invalid ids have weight NaN.

  An id outside 0 ... V - 1 becomes V. If its weight is not 0, the weight becomes NaN,
  and so does the loss: a loss with an invalid label must not look valid.

  >>> ids_NP, w_NP = jnp.array([[-1, 2], [1, 9]]), jnp.array([[0.0, 1.0], [0.5, 0.5]])
  >>> y = known_targets(Targets(ids_NP, w_NP, jnp.zeros(2, int)), num_classes=5)
  >>> y.ids_NP.tolist(), y.w_NP.tolist()
  ([[5, 2], [1, 5]], [[0.0, 1.0], [0.5, nan]])
  """
  check_shapes(ids_NP=y.ids_NP, w_NP=y.w_NP)
  is_class_NP = is_class(y.ids_NP, num_classes)
  return y._replace(
    ids_NP=jnp.where(is_class_NP, y.ids_NP, num_classes),
    # A constant on padding: the loss does not depend on it.
    w_NP=jnp.where(is_class_NP, y.w_NP, jnp.where(y.w_NP == 0, 0.0, jnp.nan)),
  )


def have_weight(y: Targets) -> jax.Array:
  """Whether each example has a nonzero weight, bool[N].

  The weight of an invalid label, NaN, does not count.

  >>> have_weight(single_targets([3, 1], [1.0, 0.0])).tolist()
  [True, False]
  """
  return jnp.any(jnp.abs(y.w_NP) > 0, axis=1)


def batch_classes(y: Targets, num_classes: int) -> jax.Array:
  """The distinct true classes of examples with weight, padded with V: i32[N * P].

  An entry of weight 0 counts if its id is a class and its example has weight.

  >>> ids_NP, w_NP = jnp.array([[2], [0], [2], [1]]), jnp.array([[1.0], [1], [1], [0]])
  >>> batch_classes(Targets(ids_NP, w_NP, jnp.zeros(4)), 3)
  Array([0, 2, 3, 3], dtype=int32)
  """
  counts_NP = have_weight(y)[:, None] & is_class(y.ids_NP, num_classes)
  ids_T = jnp.sort(jnp.where(counts_NP, y.ids_NP, num_classes).ravel())
  again_T = jnp.concatenate([jnp.zeros(1, bool), ids_T[1:] == ids_T[:-1]])
  return jnp.sort(jnp.where(again_T, num_classes, ids_T))


@settings
class Counts:
  """Class counts of the training data.

  Attributes:
    unigram_V: i64[V], occurrences of each class.
    tokens: the training stream as class ids (may be memory-mapped), or None. Used for
      statistics beyond unigram counts (bigrams, clusters).
    examples: number of training examples, if an example may have several classes or
      none; 0: every occurrence is one example.

  Raises:
    UserError: counts are not a non-empty vector of whole, non-negative numbers whose
      sum is below 2^53; or tokens are not a vector of integers.
  """

  unigram_V: np.ndarray
  tokens: np.ndarray | None = None
  examples: CountOrNone = 0

  def __post_init__(self):
    object.__setattr__(self, "unigram_V", _as_counts(self.unigram_V))
    tokens = self.tokens
    if isinstance(tokens, list | tuple):
      object.__setattr__(self, "tokens", tokens := np.asarray(tokens))
    if tokens is not None and (tokens.ndim != 1 or tokens.dtype.kind not in "iu"):
      raise UserError(
        f"tokens are {tokens.dtype}{list(tokens.shape)}: pass a vector of class ids as "
        "integers"
      )

  @property
  def num_classes(self) -> int:
    return len(self.unigram_V)

  @property
  def classes_per_example(self) -> float:
    """Mean number of classes per example.

    >>> Counts(np.array([4, 2]), examples=2).classes_per_example
    3.0
    """
    return float(self.unigram_V.sum() / self.examples) if self.examples else 1.0


def as_counts(counts: "Counts | ArrayLike") -> Counts:
  """`Counts` from a plain array of unigram counts.

  >>> as_counts([5, 3, 1]).num_classes
  3

  Raises:
    UserError: see `Counts`.
  """
  return counts if isinstance(counts, Counts) else Counts(counts)  # pyrefly: ignore


def _as_counts(counts: ArrayLike) -> np.ndarray:
  count_V = _numbers("counts", counts)
  if count_V.ndim != 1 or not len(count_V):
    raise UserError(
      f"counts have shape {count_V.shape}: pass a vector with one number per class"
    )
  # A sum, unlike a comparison, allocates no temporary array.
  with np.errstate(invalid="ignore", over="ignore"):
    total = float(count_V.sum(dtype=np.float64))
  if not math.isfinite(total) or count_V.min() < 0:
    raise UserError(
      "counts must be finite numbers of at least 0: use 0 for a class that does not "
      "occur"
    )
  if total >= _MOST_COUNTED:
    raise UserError(
      f"counts add up to {total:.3g}, but their sum must be less than 2^53: divide all "
      "of them by the same number, and round them"
    )
  whole_V = count_V.astype(np.int64, copy=False)
  if whole_V is not count_V and (whole_V != count_V).any():
    raise UserError(
      "counts must be whole numbers: multiply frequencies by the number of labels, and "
      "round them"
    )
  return whole_V


def _numbers(what: str, given: ArrayLike, kinds: str = "iuf") -> np.ndarray:
  """An array of real numbers on the host."""
  try:
    array = np.asarray(given)
  except (ValueError, OverflowError):
    raise UserError(
      f"{what} have rows of different lengths: pass an array of numbers, with -1 as "
      "padding of ids"
    ) from None
  if array.dtype.kind not in kinds:
    raise UserError(f"{what} are of type {array.dtype}: pass an array of numbers")
  return array
