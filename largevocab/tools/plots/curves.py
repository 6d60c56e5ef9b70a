"""Curves over training, with means and bands over runs that differ only in the seed."""

import math
import statistics
from typing import Any

from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweepfile import CURVE_Y, Figure
from largevocab.tools.tables.axes import SECONDS as IDLE_SECONDS

NAMED = ("method", "data")  # keys whose values are parts of a run's name
Band = tuple[tuple[float, float, float], ...]  # (x, low, high)


def shown(members: list[Record], figure: Figure) -> list[Record]:
  """The runs that did not diverge, that have x and y, and whose values are finite.

  If none of those that did not diverge has x and y, this returns them all.
  """
  kept = [row for row in members if not is_lost(row, figure)]
  return [row for row in kept if _has_values(row, figure)] or kept


def _has_values(row: Record, figure: Figure) -> bool:
  """Whether a run has the curve, or the x and y of a point."""
  if figure.is_curve:
    return bool(row.get(_key(figure)))
  has = lambda key: key in (*NAMED, *row["overrides"], *row)
  return has(figure.x) and has(figure.y)


def is_lost(row: Record, figure: Figure) -> bool:
  """Whether a run has diverged, or has a value in the figure that is not finite."""
  if "diverged" in row:
    return True
  if figure.is_curve:
    values = [y for _, y, _ in row.get(_key(figure), [])]
  else:
    values = [row.get(key) for key in (figure.x, figure.y)]
  return any(isinstance(value, float) and not math.isfinite(value) for value in values)


def curve(members: list[Record], figure: Figure) -> list[tuple[float, float]]:
  """The mean curve of runs that differ only in the seed, at steps common to all."""
  return [mean_point(pairs) for pairs in at_steps(members, figure)]


def band(members: list[Record], figure: Figure) -> Band:
  """The mean of y minus and plus its standard deviation over seeds, at common steps.

  The band is empty for a single run, and if the figure has no bands.
  """
  if not figure.band or len(members) < 2:
    return ()
  return tuple(deviation(pairs) for pairs in at_steps(members, figure))


def at_steps(members: list[Record], figure: Figure) -> list[list[tuple[float, float]]]:
  """The (x, y) of each run, at each step where all runs have a finite value.

  If x is "idle_time" and a run lacks `idle_seconds`, the result is empty.
  """
  by_step: dict[int, list[tuple[float, float]]] = {}
  for row in members:
    if figure.x == "idle_time" and IDLE_SECONDS not in row:
      continue
    for step, y, seconds in row.get(_key(figure), []):
      if not math.isfinite(y):
        continue
      y = math.exp(min(y, 700.0)) if figure.y == "valid_ppl" else y
      by_step.setdefault(step, []).append((x_of(row, step, seconds, figure), y))
  return [by_step[s] for s in sorted(by_step) if len(by_step[s]) == len(members)]


def _key(figure: Figure) -> str:
  """The key of the curve that the figure shows."""
  return figure.y if figure.y not in CURVE_Y else "curve"


def x_of(row: Record, step: int, seconds: float, figure: Figure) -> float:
  """The position of a run's step on the x axis.

  >>> figure = Figure("over_time", x="idle_time", y="valid_ppl")
  >>> x_of({"steps": 200, "idle_seconds": 8.0}, 50, 31.0, figure)
  2.0
  """
  if figure.x == "idle_time":
    return step * row[IDLE_SECONDS] / row["steps"]
  if figure.x == "epoch":
    return step / figure.steps_per_epoch
  return seconds if figure.x == "seconds" else step


def mean_point(pairs: list[tuple[Any, Any]]) -> tuple[float, float]:
  """
  >>> mean_point([(1, 2), (3, 4)])
  (2.0, 3.0)
  """
  x, y = zip(*pairs, strict=True)
  return statistics.fmean(x), statistics.fmean(y)


def deviation(pairs: list[tuple[Any, Any]]) -> tuple[float, float, float]:
  """The mean of x, and the mean of y minus and plus its standard deviation.

  >>> deviation([(1, 2), (3, 4), (5, 3)])
  (3.0, 2.0, 4.0)
  """
  x, y = mean_point(pairs)
  half = statistics.stdev(y for _, y in pairs)
  return x, y - half, y + half
