"""The fastest path through stages within a limit of memory, by dynamic programming.

Here G is the number of places, K the number of stages, and F the number of
Pareto-optimal paths.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class _Front(NamedTuple):
  """Partial paths: for each place, those that are Pareto-optimal in time and memory.

  Attributes:
    at_F: last place of the path, ascending.
    seconds_F, bytes_F: time and memory of the path so far.
    before_F: index of the path of the previous stage that this path continues.
  """

  at_F: np.ndarray
  seconds_F: np.ndarray
  bytes_F: np.ndarray
  before_F: np.ndarray


def least_bytes(bytes_KGG: np.ndarray) -> np.ndarray:
  """Fewest bytes of the remaining path from each place at each stage, [K + 1, G]."""
  K, G, _ = bytes_KGG.shape
  rest = np.full((K + 1, G), np.inf)
  rest[K, -1] = 0
  for k in reversed(range(K)):
    steps_GG = np.where(np.triu(np.ones((G, G)), 1), bytes_KGG[k], np.inf)
    rest[k] = (steps_GG + rest[k + 1][None]).min(axis=1)
  return rest


def fastest_path(
  seconds_KGG: np.ndarray, bytes_KGG: np.ndarray, max_bytes: float
) -> tuple[int, ...]:
  """Places p_1 < ... < p_K = G - 1 that minimise sum_k seconds_KGG[k, p_k, p_k+1].

  Args:
    seconds_KGG: time of stage k from one place to a later one; the path starts at
      place 0. Infinite where there is no such step.
    bytes_KGG: memory, likewise; 0 where it does not matter.
    max_bytes: limit for all stages together.

  Returns:
    The places after each stage.

  Raises:
    ValueError: there is no such path.

  Cost: O(K G^2) times the Pareto-optimal paths to a place: one, if bytes are 0.

  >>> seconds = np.array([[[0, 1, 2, 3]] * 4, [[0, 9, 9, 9], [0, 0, 9, 5], [0, 0, 0, 6],
  ...                     [0, 0, 0, 0]]])
  >>> fastest_path(seconds, np.zeros(seconds.shape), 0)
  (1, 3)
  """
  K, G, _ = seconds_KGG.shape
  rest = least_bytes(bytes_KGG)
  fronts = [_Front(*(np.zeros(1, int), np.zeros(1), np.zeros(1), np.zeros(1, int)))]
  for k in range(K):
    room_G = max_bytes - rest[k + 1]
    ends = [G - 1] if k == K - 1 else range(1, G - 1)
    steps = _steps(fronts[-1], seconds_KGG[k], bytes_KGG[k], room_G, ends)
    columns = zip(*steps, strict=True)
    fronts.append(_Front(*(np.concatenate(column) for column in columns)))
  if not len(fronts[-1].at_F):
    raise ValueError(f"no path fits in {max_bytes} bytes: {rest[0, 0]} are the least")
  way = int(np.argmin(fronts[-1].seconds_F))
  path = []
  for front in reversed(fronts[1:]):
    path.append(int(front.at_F[way]))
    way = int(front.before_F[way])
  return tuple(reversed(path))


def _steps(front, seconds_GG, bytes_GG, room_G, ends) -> Iterator[tuple]:
  """For each end the Pareto-optimal paths to it, as columns of a `_Front`."""
  for end in ends:
    before_F = np.arange(np.searchsorted(front.at_F, end))
    start_F = front.at_F[before_F]
    seconds_F = front.seconds_F[before_F] + seconds_GG[start_F, end]
    bytes_F = front.bytes_F[before_F] + bytes_GG[start_F, end]
    fits_F = (bytes_F <= room_G[end]) & np.isfinite(seconds_F)
    order_F = np.lexsort((bytes_F[fits_F], seconds_F[fits_F]))
    kept_F = np.flatnonzero(fits_F)[order_F]
    # Slower paths must need less memory than all faster ones.
    smallest_F = np.minimum.accumulate(np.append(np.inf, bytes_F[kept_F]))[:-1]
    kept_F = kept_F[bytes_F[kept_F] < smallest_F]
    at_F = np.full(len(kept_F), end)
    yield at_F, seconds_F[kept_F], bytes_F[kept_F], before_F[kept_F]
