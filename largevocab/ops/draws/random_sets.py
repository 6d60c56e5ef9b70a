"""Random sets of classes: each class at most once, with a known inclusion probability.

There are three methods. In the first two, classes are included independently of each
other. The third has the same inclusion probabilities, but the size hardly varies. All
use integers, so that the realised probabilities are known exactly. Sets have a static
capacity and a mask. Sets of several blocks of classes can have statistics of equal
shapes: those of the largest.

Here C is the capacity of a set, U the number of candidate classes, and K the number of
strata.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops.draws import strata
from largevocab.ops.draws.strata import IID_STRATA, UNIT, Strata


class Poissonised(NamedTuple):
  """Independent inclusion, in time and memory proportional to the size of the set.

  Let lam(c) = -log(1 - b(c)), and N be a Poisson variable of mean L = sum of lam. Then
  N draws in proportion to lam include c Poisson(lam(c)) times, independently of the
  other classes, and hence at least once with probability b(c). Repetitions are merged.

  N is drawn from a table that is truncated at the capacity C = L + 7 sqrt(L) + 10, so
  no set exceeds it. The truncated probability P(N > C) is below 1e-11, and the table
  rounds probabilities to 2^-42. Inclusion probabilities change by less than 1e-9
  relative, far below the rounding of float32.

  Attributes:
    classes: strata in proportion to lam.
    sizes: strata of N in 0 ... C.

  Cost: O(C log V) a set.
  """

  classes: Strata
  sizes: Strata

  def draw(self, key: jax.Array, lead: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Sets i32[*lead, C], ascending, and their masks."""
    k_size, k_class = jax.random.split(key)
    V, shape = len(self.classes.start_V), (*lead, len(self.sizes.start_V) - 1)
    size = strata.draw_iid(self.sizes, k_size, (*lead, 1))
    ids = strata.draw_iid(self.classes, k_class, shape)
    at = jax.lax.broadcasted_iota(jnp.int32, shape, len(lead))
    ids = jnp.sort(jnp.where(at < size, ids, V), axis=-1)
    before = jnp.concatenate([jnp.full_like(ids[..., :1], -1), ids[..., :-1]], axis=-1)
    return jnp.minimum(ids, V - 1), (ids != before) & (ids < V)


class Compared(NamedTuple):
  """Independent inclusion with one random word per class.

  For sets that are so large that `Poissonised` would save nothing.

  Attributes:
    ids_U: i32[U], the classes.
    threshold_U: u32[U], their inclusion probabilities in units of 2^-32.

  Cost: O(U) a set.
  """

  ids_U: jax.Array
  threshold_U: jax.Array

  def draw(self, key: jax.Array, lead: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Sets i32[*lead, U], and their masks."""
    shape = (*lead, len(self.ids_U))
    threshold = jnp.broadcast_to(self.threshold_U, shape)
    mask = jax.random.bits(key, shape, jnp.uint32) < threshold
    return jnp.broadcast_to(self.ids_U, shape), mask


class Systematic(NamedTuple):
  """One draw from every stratum, all at the same fraction.

  The size of the set varies by one at most. If the probabilities do not sum to the
  number of strata, empty space after the last class fills the rest.

  Attributes:
    strata: the classes, and the empty space.
    full: i32[], number of strata with a class; only the last may be partly empty.
    last: u32[], the last fraction of the stratum after these that belongs to a class.

  Source: Madow 1949.
  Cost: O(K log V) a set of K classes, and one random word.
  """

  strata: Strata
  full: jax.Array
  last: jax.Array

  def draw(self, key: jax.Array, lead: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Sets i32[*lead, K], and their masks."""
    return self.at(jax.random.bits(key, (*lead, 1), jnp.uint32))

  def at(self, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The sets at fractions u32[..., 1], and their masks."""
    num = len(self.strata.first_K) - 1
    shape = (*u.shape[:-1], num)
    stratum = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    u = jnp.broadcast_to(u, shape)
    ids = strata.lookup(self.strata, stratum, u)
    return ids, (stratum < self.full) | ((stratum == self.full) & (u <= self.last))


RandomSets = Poissonised | Compared | Systematic


class Extent(NamedTuple):
  """The numbers that determine the shapes of a set's statistics.

  Attributes:
    num: number of classes of positive probability.
    capacity: capacity of `Poissonised`.
    strata: number of strata of `Systematic`, the expected size rounded up.
  """

  num: int
  capacity: int
  strata: int


class Realised(NamedTuple):
  """A sampler of sets, and its realised inclusion probabilities f64[V].

  These differ from the requested probabilities by rounding to integers. Positive ones
  stay positive.
  """

  sets: RandomSets
  b_V: np.ndarray


def capacity(mean: float) -> int:
  """A bound that a Poisson variable of this mean exceeds with probability below 1e-11.

  >>> capacity(0.0), capacity(100.0)
  (10, 180)
  """
  return math.ceil(mean + 7 * math.sqrt(mean) + 10)


def poisson_lengths(mean: float) -> np.ndarray:
  """Poisson probabilities of 0 ... capacity(mean), i64, in units of 2^-42; sum 2^42.

  >>> (poisson_lengths(1.0)[:3] / 2**42).round(6).tolist()
  [0.367879, 0.367879, 0.18394]
  """
  n_N = np.arange(1, capacity(mean) + 1)
  log_mean = math.log(mean) if mean else -math.inf
  log_N = np.cumsum(np.append(0.0, log_mean - np.log(n_N)))
  p_N = np.exp(log_N - log_N.max())
  total = IID_STRATA * UNIT
  # Values that round to 0 are left out: lengths of 1 would be taken from the others.
  return strata.apportion(np.where(p_N / p_N.sum() * total < 0.5, 0.0, p_N), total)


def extent(b_V: np.ndarray) -> Extent:
  """The extent of a set with inclusion probabilities f64[V] in [0, 1).

  >>> extent(np.array([0.5, 0.25, 0.0]))
  Extent(num=2, capacity=18, strata=1)
  """
  mean = float(-np.log1p(-b_V).sum())
  return Extent(int(np.count_nonzero(b_V)), capacity(mean), math.ceil(b_V.sum()))


def largest(extents: Iterable[Extent]) -> Extent:
  """The smallest extent that holds all of these.

  >>> largest([Extent(3, 10, 1), Extent(2, 12, 1)])
  Extent(num=3, capacity=12, strata=1)
  """
  return Extent(*map(max, zip(*extents, strict=True)))


def build_independent(b_V: np.ndarray, room: Extent | None = None) -> Realised:
  """Sets that include every class independently of the others.

  Uses `Compared` if the capacity of `Poissonised` would reach the number of classes of
  positive probability.

  Args:
    b_V: f64[V], inclusion probabilities in [0, 1), not all 0 (numpy, on the host).
    room: the extent whose shapes the statistics are to have; by default that of b_V,
      which may be all 0 if a larger extent is given.

  Cost: O(V) time, 8 bytes of state a class.

  >>> type(build_independent(np.array([0.5, 0.25])).sets).__name__
  'Compared'
  >>> type(build_independent(np.full(1000, 0.01)).sets).__name__
  'Poissonised'
  """
  b_V, room = _checked(b_V, room)
  if room.capacity >= room.num:
    return _compared(b_V, room.num)
  lam_V = -np.log1p(-b_V)
  mean = float(lam_V.sum())
  # If there is no class, sets are empty, whatever the strata are.
  length_V = strata.apportion(lam_V if mean else lam_V + 1, IID_STRATA * UNIT)
  classes = strata.from_lengths(length_V, IID_STRATA)
  length_N = poisson_lengths(mean)
  length_N = np.pad(length_N, (0, room.capacity + 1 - len(length_N)))
  sizes = strata.from_lengths(length_N, IID_STRATA)
  realised_V = -np.expm1(-mean * (length_V / (IID_STRATA * UNIT)))
  return Realised(Poissonised(classes, sizes), realised_V)


def _compared(b_V: np.ndarray, num: int) -> Realised:
  """`Compared` for `num` classes; any excess classes are never drawn."""
  ids_U = np.flatnonzero(b_V)
  threshold_U = np.clip(np.rint(b_V[ids_U] * UNIT), 1, UNIT - 1)
  realised_V = np.zeros(len(b_V))
  realised_V[ids_U] = threshold_U / UNIT
  padded = lambda x_U, dtype: np.pad(x_U, (0, num - len(x_U))).astype(dtype)
  sets = Compared(
    jnp.asarray(padded(ids_U, np.int32)), jnp.asarray(padded(threshold_U, np.uint32))
  )
  return Realised(sets, realised_V)


def build_systematic(b_V: np.ndarray, room: Extent | None = None) -> Realised:
  """Sets whose size is the sum of the probabilities, rounded up or down.

  Args:
    b_V: f64[V], inclusion probabilities in [0, 1), not all 0 (numpy, on the host).
    room: as in `build_independent`.

  Raises:
    ValueError: the probabilities sum to more than 2^20.

  Cost: O(V) time, 8 bytes of state a class.

  >>> sets = build_systematic(np.array([0.5, 0.25, 0.5])).sets
  >>> ids, mask = sets.at(jnp.array([[0], [2**31], [2**31 + 2**30]], jnp.uint32))
  >>> [i[m].tolist() for i, m in zip(ids, mask)]
  [[0, 2], [1], [2]]
  """
  b_V, (_, _, num) = _checked(b_V, room)
  V = len(b_V)
  if num > strata.MAX_STRATA:
    raise ValueError(f"the probabilities sum to {num}, more than {strata.MAX_STRATA}")
  length_V = strata.apportion(np.append(b_V, num - b_V.sum()), num * UNIT)
  filled = strata.from_lengths(length_V, num)
  classes = Strata(
    jnp.minimum(filled.first_K, V), filled.start_V[:V], filled.log_expected_V[:V]
  )
  full, last = divmod(num * UNIT - int(length_V[V]) - 1, UNIT)
  sets = Systematic(classes, jnp.int32(full), jnp.uint32(last))
  return Realised(sets, length_V[:V] / UNIT)


def _checked(b_V: np.ndarray, room: Extent | None) -> tuple[np.ndarray, Extent]:
  b_V = np.asarray(b_V, np.float64)
  is_right = ((b_V >= 0) & (b_V < 1)).all()
  if not is_right or not (b_V.any() or (room and room.num)):
    raise ValueError("inclusion probabilities must be in [0, 1), and not all 0")
  own = extent(b_V)
  return b_V, own if room is None else largest([own, room])
