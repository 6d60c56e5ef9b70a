"""Whether a run had converged when it ended."""

import math
import statistics
from collections.abc import Sequence

from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables.markdown import NOTHING, number

LAST = 0.1  # share of training that is examined
WIDEST = 0.2  # the same where evaluations are rare


def change_at_end(
  curve: Sequence[Sequence[float]], steps: float, per_epoch: int = 1
) -> float | None:
  """Change of a validation curve over the last tenth of training.

  The slope is that of a least-squares line through the points there; of the last two
  points where it has fewer, if both are in the last fifth. A network fits best what it
  read last, so that within an epoch the value also depends on the place in the text:
  with several evaluations an epoch, those at the place of the last one count.

  Args:
    curve: [[step, value, seconds], ...].
    steps: of the whole run.
    per_epoch: evaluations an epoch.

  Returns:
    The change of the value; None if there are fewer than two points.

  >>> curve = [[80, 9.0, 0], [90, 2.0, 0], [95, 1.5, 0], [100, 1.0, 0]]
  >>> round(change_at_end(curve, 100), 6)
  -1.0
  >>> round(change_at_end(curve, 100, per_epoch=2), 6)
  -1.0
  >>> change_at_end([[50, 2.0, 0], [100, 1.0, 0]], 100)
  """
  known = {x: y for x, y, *_ in curve if math.isfinite(y)}
  points = sorted(known.items())
  if len(points) > per_epoch:
    points = points[::-1][::per_epoch][::-1]
  last = [point for point in points if point[0] >= (1 - LAST) * steps]
  if len(last) < 2:
    last = [point for point in points[-2:] if point[0] >= (1 - WIDEST) * steps]
  if len(last) < 2:
    return None
  return statistics.linear_regression(*zip(*last, strict=True)).slope * LAST * steps


def evaluations_per_epoch(row: Record) -> int:
  """Of a run, by its settings; 1 if it has fewer than one, or says nothing.

  >>> evaluations_per_epoch({"overrides": {"eval.every_epochs": 0.5}})
  2
  """
  every = row.get("overrides", {}).get("eval.every_epochs", 1.0)
  return max(1, round(1 / every)) if every else 1


def cell(members: Sequence[Record]) -> str:
  """Mean change over runs that differ only in the seed: of perplexity in per cent or,
  for labels, of precision in percentage points.

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
      change_at_end(row[name], number(row, "steps"), evaluations_per_epoch(row))
      for row in runs
    ]
    known = [shown(end) for end in ends if end is not None]
    if known:
      return f"{statistics.fmean(known):+.1f} {unit}"
  return NOTHING
