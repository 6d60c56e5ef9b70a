"""Estimates whether a run had converged when it ended."""

import itertools
import math
import statistics
from collections.abc import Sequence

from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables.markdown import NOTHING, number

LAST = 0.1  # share of training that is examined
WIDEST = 0.2  # the share that is examined if evaluations are rare


def change_at_end(
  curve: Sequence[Sequence[float]], steps: float, every: float = 1.0
) -> float | None:
  """Change of a validation curve over the last tenth of training.

  It is computed from the slope of a least-squares line through the points in this tenth
  that are `at_one_place`. If there are fewer than two such points, the line goes
  through the last two points, provided that both are in the last fifth.

  Args:
    curve: [[step, value, seconds], ...].
    steps: number of steps of the whole run.
    every: epochs between evaluations; 0: not known.

  Returns:
    The change of the value; None if there are fewer than two points.

  >>> curve = [[80, 9.0, 0], [90, 2.0, 0], [95, 1.5, 0], [100, 1.0, 0]]
  >>> round(change_at_end(curve[1:], 100), 6)
  -1.0
  >>> change_at_end([[50, 2.0, 0], [100, 1.0, 0]], 100)
  """
  known = {x: y for x, y, *_ in curve if math.isfinite(y)}
  there = at_one_place(sorted(known), every)
  last = [x for x in there if x >= (1 - LAST) * steps]
  if len(last) < 2:
    last = [x for x in there[-2:] if x >= (1 - WIDEST) * steps]
  if len(last) < 2:
    return None
  values = [known[x] for x in last]
  return statistics.linear_regression(last, values).slope * LAST * steps


def at_one_place(steps: list[float], every: float) -> list[float]:
  """The steps of evaluations that are at the same place in an epoch as the last one.

  A network fits best what it has read last, so that the value depends on the place in
  the text. If the steps span less than an epoch, which has no two such places, all of
  them are returned.

  >>> at_one_place([50, 100, 150, 200, 250, 300], every=0.5)
  [100, 200, 300]
  >>> at_one_place([50, 100, 150, 200, 220], every=0.5)  # ended within an epoch
  [220]
  >>> at_one_place([50, 100, 150], every=0.1)
  [50, 100, 150]
  """
  if len(steps) < 2 or not every:
    return steps
  epoch = statistics.mode(b - a for a, b in itertools.pairwise(steps)) / every
  ago = [(steps[-1] - step) / epoch for step in steps]
  if max(ago) < 1:
    return steps
  near = min(every, 0.5) / 4
  is_there = lambda x: x == 0 or (x > 0.5 and abs(x - round(x)) < near)
  return [step for step, x in zip(steps, ago, strict=True) if is_there(x)]


def epochs_between(row: Record) -> float:
  """Epochs between evaluations of a run, from its settings; 0 if they do not say.

  >>> epochs_between({"overrides": {"eval.every_epochs": 0.5}})
  0.5
  """
  overrides = row.get("overrides", {})
  return overrides.get("eval.every_epochs", row.get("every_epochs", 0.0))


def cell(members: Sequence[Record]) -> str:
  """Mean change over runs that differ only in the seed.

  The change is that of the perplexity, in per cent, or, for labels, that of the
  precision, in percentage points.

  >>> curve = [[step, 5 - step / 1000, 0.0] for step in range(0, 1001, 50)]
  >>> cell([{"steps": 1000, "curve": curve}])
  '-9.5 %'
  """
  for name, unit, shown in (
    ("curve_p@1", "points", lambda change: 100 * change),
    ("curve", "%", lambda change: 100 * math.expm1(min(change, 700.0))),
  ):
    runs = [row for row in members if name in row and "steps" in row]
    ends = [
      change_at_end(row[name], number(row, "steps"), epochs_between(row))
      for row in runs
    ]
    known = [shown(end) for end in ends if end is not None]
    if known:
      return f"{statistics.fmean(known):+.1f} {unit}"
  return NOTHING
