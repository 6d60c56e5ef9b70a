"""The exact log-partition function of a softmax, in chunks: for evaluation."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax

from largevocab.ops import shards
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import (
  compute_dtype,
  ids_in_chunk,
  logits,
  scan_classes,
  sum_dtype,
  wide,
)
from largevocab.ops.softmax.plan import MAX_STEPS, plan

_BUDGET = 256 * 2**20
_LOGIT_BYTES = 8  # of a logit and its exponential


@runtime_checkable
class RowScore(Protocol):
  """A score that also depends on the rows and on which classes are true; hashable."""

  def of_rows(self, o_NV: jax.Array, w_VD: jax.Array, at_NP: jax.Array) -> jax.Array:
    """Scores [N, V], differentiable in the logits o = h W^T and the rows.

    Args:
      o_NV: f32[N, V], logits of some classes.
      w_VD: f32[V, D], their rows.
      at_NP: i32[N, P], the true classes among them; V for others.
    """
    ...


# Elementwise function of the logits that is exponentiated.
Score = Callable[[jax.Array], jax.Array]
ChunkScore = Score | RowScore
# Transformation of scores [N, V] of classes i32[V] before they are exponentiated.
Change = Callable[[jax.Array, jax.Array], jax.Array]


class Normalized(NamedTuple):
  """Summary of an example's logits that determines its loss.

  The maximum is kept separately: in log_z = max + log(sum) the sum would be lost to
  rounding for large logits.

  Attributes:
    max_N: the largest score.
    sum_N: sum over all classes of exp(score - max).
    s_NP: scores of the given classes, 0 on padding.
  """

  max_N: jax.Array
  sum_N: jax.Array
  s_NP: jax.Array


def logit(o: jax.Array) -> jax.Array:
  """The score of a softmax: the logits as they are."""
  return o


def absolute_logit(o: jax.Array) -> jax.Array:
  """The score of an absolute softmax, |o|.

  Its gradient at 0 is 1, so that training can move away from 0.
  """
  return jnp.where(o >= 0, o, -o)


def score_of(absolute: bool) -> Score:
  """`absolute_logit` or `logit`."""
  return absolute_logit if absolute else logit


def scores_of(
  score: ChunkScore, o_NV: jax.Array, w_VD: jax.Array, at_NP: jax.Array
) -> jax.Array:
  """Scores of classes with these logits and rows. For at_NP, see `RowScore`."""
  if isinstance(score, RowScore):
    return score.of_rows(o_NV, wide(w_VD), at_NP)
  return score(o_NV)


def at_ids(s_NV: jax.Array, ids_NP: jax.Array) -> jax.Array:
  """Scores of the ids, 0 for ids >= V."""
  return jnp.take_along_axis(s_NV, ids_NP, axis=1, mode="fill", fill_value=0)


def nll_of(normalized: Normalized) -> jax.Array:
  """-log p of the given classes: f32[N, P], nats."""
  max_N, sum_N, s_NP = normalized
  return jnp.log(sum_N)[:, None] + (max_N[:, None] - s_NP)


def mean_nll(normalized: Normalized, w_NP: jax.Array) -> jax.Array:
  """f32[N], nats: the weighted mean over an example's classes, 0 without weight."""
  return weighted_mean(nll_of(normalized), w_NP)


def weighted_mean(x_NP: jax.Array, w_NP: jax.Array) -> jax.Array:
  """f32[N], the mean over an example's classes, 0 without weight.

  >>> weighted_mean(jnp.array([[1.0, 3.0]]), jnp.array([[3.0, 1.0]])).tolist()
  [1.5]
  """
  weight_N, sum_N = w_NP.sum(axis=1), (w_NP * x_NP).sum(axis=1)
  none_N = weight_N == 0  # False for NaN, so that the mean is NaN
  return jnp.where(none_N, 0, sum_N / jnp.where(none_N, 1, weight_N))


def joined(each: Sequence[Normalized]) -> Normalized:
  """Merges several tables of classes; each given class is in one of them.

  >>> half = Normalized(jnp.ones(1), jnp.array([2.0]), jnp.zeros((1, 0)))
  >>> joined([half, half]).sum_N.tolist()
  [4.0]
  """

  def join(a, b):
    max_N = jnp.maximum(a.max_N, b.max_N)
    part_N, other_N = (x.sum_N * jnp.exp(x.max_N - max_N) for x in (a, b))
    return Normalized(max_N, part_N + other_N, a.s_NP + b.s_NP)

  return functools.reduce(join, each)


def of_all_devices(normalized: Normalized) -> Normalized:
  """Merges the classes of several devices; each given class is on one of them."""
  if not shards.is_sharded():
    return normalized
  max_N, sum_N, s_NP = normalized
  top_N = shards.pmax(max_N)
  sum_N = shards.psum(sum_N * jnp.exp(max_N - top_N))
  return Normalized(top_N, sum_N, shards.psum(s_NP))


def _add_scores(max_N, sum_N, s_NV):
  """The maximum and the sum of exp(score - maximum), updated with more scores."""
  new_max_N = jnp.maximum(max_N, s_NV.max(axis=1))
  sum_N = sum_N * jnp.exp(max_N - new_max_N)
  return new_max_N, sum_N + jnp.exp(s_NV - new_max_N[:, None]).sum(axis=1)


def normalize_by_classes(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  classes: int,
  score: ChunkScore,
  dtype,
  *,
  change: Change | None = None,
  keep: bool = False,
) -> tuple[Normalized, jax.Array | None]:
  """Summary of the logits in chunks of `classes`, with a running maximum.

  With `keep`, also returns the logits of all chunks, stacked.
  """

  def add_chunk(so_far, chunk, _):
    max_N, sum_N, s_NP = so_far
    o_NV = logits(h_ND, chunk.w_VD, dtype)
    at_NP = ids_in_chunk(ids_NP, chunk.start, chunk.is_new_V)
    s_NV = scores_of(score, o_NV, chunk.w_VD, at_NP)
    if change is not None:
      s_NV = change(s_NV, chunk.start + jnp.arange(len(chunk.w_VD)))
    s_NP += at_ids(s_NV, at_NP)
    s_NV = jnp.where(chunk.is_class_V[None], s_NV, -jnp.inf)
    max_N, sum_N = _add_scores(max_N, sum_N, s_NV)
    return Normalized(max_N, sum_N, s_NP), o_NV if keep else None

  N, summed = h_ND.shape[0], sum_dtype(dtype)
  init = Normalized(
    jnp.full(N, -jnp.inf, summed),
    jnp.zeros(N, summed),
    jnp.zeros(ids_NP.shape, summed),
  )
  return scan_classes(add_chunk, init, w_VD, classes)


def example_chunks(size: int, *arrays_and_fills) -> list[jax.Array]:
  """Cuts (array, fill) pairs along their first axis into chunks, the last one padded.

  >>> example_chunks(2, (jnp.arange(3), -1))
  [Array([[ 0,  1],
         [ 2, -1]], dtype=int32)]
  """
  cut = []
  for array, fill in arrays_and_fills:
    num = -(-array.shape[0] // size)
    missing = [(0, num * size - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    full = jnp.pad(array, missing, constant_values=fill)
    cut.append(full.reshape(num, size, *array.shape[1:]))
  return cut


def unchunked(chunks, num: int):
  """The inverse of `example_chunks`, on every leaf."""
  join = lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[:num]
  return jax.tree.map(join, chunks)


def normalize(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  examples: int,
  classes: int,
  score: ChunkScore,
  dtype,
  change: Change | None = None,
) -> Normalized:
  """Summary of the logits in chunks of `examples`, each in chunks of `classes`."""
  N, V = h_ND.shape[0], w_VD.shape[0]

  def one_chunk(chunk):
    h_ND, ids_NP = chunk
    return normalize_by_classes(
      h_ND, w_VD, ids_NP, classes, score, dtype, change=change
    )[0]

  if examples >= N:
    return one_chunk((h_ND, ids_NP))
  chunks = example_chunks(examples, (h_ND, 0), (ids_NP, V))
  return unchunked(lax.map(one_chunk, chunks), N)


def log_normalizer(
  h_ND: jax.Array,
  w_VD: jax.Array,
  *,
  score: ChunkScore = logit,
  dtype=None,
  change: Change | None = None,
) -> jax.Array:
  """log_z_N = logsumexp(h_ND @ w_VD.T, axis=1), exact, without holding [N, V].

  Args:
    h_ND: float[N, D], activations.
    w_VD: float[V, D], class table.
    score: function of the logits that is exponentiated.
    dtype: type of the operands of the products; sums are at least float32.
    change: transformation of the scores before they are summed.

  Returns:
    f32[N], nats.

  Cost: one matrix product; memory of one chunk of logits. The result is differentiable,
  but JAX then keeps the logits: for training use `largevocab.ops.softmax.full`.

  >>> h_ND, w_VD = jnp.zeros((3, 2)), jnp.zeros((5, 2))
  >>> [f"{x:.3f}" for x in jnp.exp(log_normalizer(h_ND, w_VD))]
  ['5.000', '5.000', '5.000']
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD)
  ids_NP = jnp.zeros((h_ND.shape[0], 0), jnp.int32)
  normalized = normalize_for_reading(h_ND, w_VD, ids_NP, score, dtype, change)
  max_N, sum_N, _ = of_all_devices(normalized)
  return max_N + jnp.log(sum_N)


def softmax_nll(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  score: ChunkScore = logit,
  dtype=None,
  change: Change | None = None,
) -> jax.Array:
  """nll_N = sum_p w_NP (log_z_N - o[ids_NP]) / sum_p w_NP, exact; 0 where all w are 0.

  The result is the mean over an example's true classes: multiply it by the weight
  `w_NP.sum(1)` to sum over examples.

  Args:
    h_ND: float[N, D], activations.
    w_VD: float[V, D], class table.
    ids_NP: i32[N, P], true classes, padded with V.
    w_NP: f32[N, P], their weights, 0 on padding.
    score: function of the logits that is exponentiated.
    dtype: type of the operands of the products; sums are at least float32.
    change: transformation of the scores before they are normalised.

  Returns:
    f32[N], nats.

  Cost: one matrix product; memory of one chunk of logits.

  >>> nll_N = softmax_nll(jnp.zeros((1, 2)), jnp.zeros((5, 2)), jnp.array([[3]]),
  ...                     jnp.ones((1, 1)))
  >>> f"{nll_N[0]:.4f}"  # log 5
  '1.6094'
  """
  return softmax_nll_and_log_z(
    h_ND, w_VD, ids_NP, w_NP, score=score, dtype=dtype, change=change
  )[0]


def softmax_nll_and_log_z(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  w_NP: jax.Array,
  *,
  score: ChunkScore = logit,
  dtype=None,
  change: Change | None = None,
) -> tuple[jax.Array, jax.Array]:
  """`softmax_nll` and `log_normalizer`, both f32[N], from one pass.

  >>> both = softmax_nll_and_log_z(jnp.zeros((1, 2)), jnp.zeros((5, 2)),
  ...                              jnp.array([[3]]), jnp.ones((1, 1)))
  >>> [f"{x[0]:.4f}" for x in both]
  ['1.6094', '1.6094']
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, ids_NP=ids_NP, w_NP=w_NP)
  normalized = normalize_for_reading(h_ND, w_VD, ids_NP, score, dtype, change)
  normalized = of_all_devices(normalized)
  log_z_N = normalized.max_N + jnp.log(normalized.sum_N)
  return mean_nll(normalized, w_NP), log_z_N


def normalize_for_reading(
  h_ND: jax.Array,
  w_VD: jax.Array,
  ids_NP: jax.Array,
  score: ChunkScore,
  dtype,
  change: Change | None = None,
) -> Normalized:
  """Summary of the logits in chunks of a few classes.

  If even then the logits of all examples exceed the budget, also in chunks of examples.
  """
  dtype = compute_dtype(h_ND, w_VD, dtype)
  N, (V, D) = h_ND.shape[0], w_VD.shape
  most = _BUDGET // (_LOGIT_BYTES * -(-V // MAX_STEPS))
  examples = min(N, max(most, 1))
  classes = plan(examples, V, D, _BUDGET, method="classes").classes
  return normalize(h_ND, w_VD, ids_NP, examples, classes, score, dtype, change)
