"""Draws from fixed weights over any number of classes, with exact probabilities.

The classes are laid along [0, K), each over an interval as long as its expected count,
and the line is cut into K strata of length 1. All lengths are integers in units of
2^-32. Probabilities are therefore known exactly, and every class with a positive weight
can be drawn, even where a float32 cumulative distribution would lose most of them (two
thirds of a Zipf distribution over ten million classes). A position is a stratum and a
32-bit fraction of it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

UNIT = 1 << 32  # length of one stratum
MAX_STRATA = 1 << 20  # so that every length is exact in float64
IID_STRATA = 1 << 10  # power of two: the top bits of a random word choose a stratum


class Strata(NamedTuple):
  """V classes in K strata.

  Attributes:
    first_K: i32[K + 1], the first class that begins in stratum i or later.
    start_V: u32[V], start of each class within its stratum.
    log_expected_V: f32[V], log length of each class in strata: the log expected count
      of the class if one position is drawn in every stratum.
  """

  first_K: jax.Array
  start_V: jax.Array
  log_expected_V: jax.Array


def apportion(weight_V: np.ndarray, total: int) -> np.ndarray:
  """Integer lengths i64[V] proportional to weights that sum to exactly `total`.

  Every positive weight gets a length of at least 1. The rest is divided by rounding the
  cumulative weights, so no length is off by more than 2 units plus its share of these
  minimum lengths.

  Args:
    weight_V: f64[V], finite and non-negative (numpy, on the host).
    total: at most 2^53.

  Raises:
    ValueError: a weight is negative or not finite, or total is too small.

  Cost: O(V) time.

  >>> apportion(np.array([2.0, 0.0, 1.0]), 300).tolist()
  [200, 0, 100]
  >>> apportion(np.array([1.0, 1e-30]), 100).tolist()
  [99, 1]
  """
  weight_V = np.asarray(weight_V, np.float64)
  if not (np.isfinite(weight_V) & (weight_V >= 0)).all():
    raise ValueError("weights must be finite and non-negative")
  positive_V = weight_V > 0
  shared = total - int(positive_V.sum())
  if shared < 0 or (total > 0 and not positive_V.any()):
    raise ValueError(f"{positive_V.sum()} positive weights cannot share {total} units")
  if total == 0:
    return np.zeros(weight_V.shape, np.int64)
  cumulative_V = np.cumsum(weight_V / weight_V.max())
  end_V = np.rint(cumulative_V / cumulative_V[-1] * shared).astype(np.int64)
  return np.diff(end_V, prepend=0) + positive_V


def from_lengths(length_V: np.ndarray, num_strata: int) -> Strata:
  """Strata of classes with the given integer lengths, in units of 2^-32 stratum.

  Args:
    length_V: i64[V], non-negative, with sum num_strata * 2^32.
    num_strata: K.

  Raises:
    ValueError: the lengths do not sum to K strata.

  >>> from_lengths(np.array([UNIT // 2, UNIT // 2 + UNIT]), 2).first_K.tolist()
  [0, 2, 2]
  """
  end_V = np.cumsum(length_V)
  if end_V[-1] != num_strata * UNIT:
    raise ValueError(f"lengths sum to {end_V[-1]}, not to {num_strata} * 2^32")
  start_V = end_V - length_V
  first_K = np.searchsorted(start_V, np.arange(num_strata + 1) * UNIT)
  with np.errstate(divide="ignore"):
    log_expected_V = np.log(length_V / UNIT)
  return Strata(
    jnp.asarray(first_K.astype(np.int32)),
    jnp.asarray((start_V % UNIT).astype(np.uint32)),
    jnp.asarray(log_expected_V.astype(np.float32)),
  )


def build(pi_V: np.ndarray, num_strata: int) -> Strata:
  """Strata for classes with expected counts pi_V.

  The realised expected counts differ from pi_V by the rounding of `apportion` (below
  V / 2^32 relative, plus 2^-31); `log_expected_V` holds the realised counts. Counts of
  exactly 1 stay exactly 1, and counts up to 1 stay at most 1.

  Args:
    pi_V: f64[V], expected counts with sum K (numpy, on the host).
    num_strata: K, at most 2^20.

  Raises:
    ValueError: pi_V does not sum to K, or K is out of range.

  Cost: O(V) time, 8 bytes of state a class.

  >>> np.exp(build(np.array([1.0, 0.75, 0.25]), 2).log_expected_V).tolist()
  [1.0, 0.75, 0.25]
  """
  pi_V = np.asarray(pi_V, np.float64)
  if not 0 < num_strata <= MAX_STRATA:
    raise ValueError(f"the number of strata must be in 1..{MAX_STRATA}: {num_strata}")
  if not abs(pi_V.sum() - num_strata) <= 1e-6 * num_strata:
    raise ValueError(f"expected counts sum to {pi_V.sum()}, not to {num_strata}")
  certain_V = pi_V == 1
  length_V = np.where(certain_V, UNIT, 0)
  rest = (num_strata - int(certain_V.sum())) * UNIT
  length_V += apportion(np.where(certain_V, 0, pi_V), rest)
  return from_lengths(length_V, num_strata)


def build_iid(weight_V: np.ndarray) -> Strata:
  """Strata for `draw_iid` with probabilities proportional to weights f64[V].

  >>> build_iid(np.array([3.0, 1.0])).start_V.shape
  (2,)
  """
  return from_lengths(apportion(weight_V, IID_STRATA * UNIT), IID_STRATA)


def last_at_most(
  value_P: jax.Array, low: jax.Array, high: jax.Array, wanted: jax.Array
) -> jax.Array:
  """The last i in [low, high) with value_P[i] <= wanted, or low - 1 if there is none.

  Args:
    value_P: [P], ascending inside each range [low, high).
    low: i32, of any shape; high: i32, same shape; wanted: same shape, type of value_P.

  Cost: bit_length(P) gathers for each element.

  >>> last_at_most(np.array([1, 4, 6]), np.array([0]), np.array([3]), np.array([5]))
  Array([1], dtype=int32)
  """
  value_P = jnp.asarray(value_P)

  def halve(_, bounds):
    low, high = bounds
    middle = low + (high - low) // 2
    after = (low < high) & (value_P.at[middle].get(mode="clip") <= wanted)
    return jnp.where(after, middle + 1, low), jnp.where(after, high, middle)

  bounds = jnp.asarray(low, jnp.int32), jnp.asarray(high, jnp.int32)
  return jax.lax.fori_loop(0, value_P.shape[0].bit_length(), halve, bounds)[0] - 1


def lookup(strata: Strata, stratum_M: jax.Array, u_M: jax.Array) -> jax.Array:
  """The class at fraction u_M of stratum stratum_M.

  Args:
    strata: K strata.
    stratum_M: i32, of any shape, in 0..K-1.
    u_M: u32, same shape.

  Returns:
    i32, same shape: class ids; never that of a class of length 0.

  Cost: O(log V) gathers for each position.

  >>> strata = build(np.array([0.5, 0.5, 1.0]), 2)
  >>> lookup(strata, np.array([0, 0, 1]), np.array([0, UNIT // 2, 9], np.uint32))
  Array([0, 1, 2], dtype=int32)
  """
  low_M = strata.first_K[stratum_M]
  high_M = strata.first_K[stratum_M + 1]
  return last_at_most(strata.start_V, low_M, high_M, u_M)


def draw_iid(strata: Strata, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Independent draws, i32 of the given shape, from the strata of `build_iid`.

  A class is drawn with probability exp(log_expected_V) / IID_STRATA, exactly.

  >>> draw_iid(build_iid(np.array([0.0, 1.0])), jax.random.key(0), (3,))
  Array([1, 1, 1], dtype=int32)
  """
  if strata.first_K.shape != (IID_STRATA + 1,):
    raise ValueError("independent draws need the strata of `build_iid`")
  stratum, u = jax.random.bits(key, (2, *shape), jnp.uint32)
  return lookup(strata, (stratum // (UNIT // IID_STRATA)).astype(jnp.int32), u)


def draw_systematic(strata: Strata, key: jax.Array) -> jax.Array:
  """One draw from every stratum, i32[K], all at the same random fraction.

  The expected count of a class is exp(log_expected_V), exactly. Classes with expected
  counts up to 1 occur at most once: the count is then the inclusion probability.

  Source: Madow 1949, systematic sampling with unequal probabilities.

  >>> draw_systematic(build(np.array([1.0, 0.0, 1.0]), 2), jax.random.key(0))
  Array([0, 2], dtype=int32)
  """
  stratum_K = jnp.arange(strata.first_K.shape[0] - 1)
  u = jax.random.bits(key, (), jnp.uint32)
  return lookup(strata, stratum_K, jnp.full(stratum_K.shape, u))
