"""Whether a run had converged when it ended."""

import math
import statistics
from collections.abc import Sequence

from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables.markdown import NOTHING, number

LAST = 0.1  # share of training that is examined


def change_at_end(curve: Sequence[Sequence[float]], steps: float) -> float | None:
  """Change of a validation curve over the last tenth of training.

  The slope is that of a least-squares line through the points there.

  Args:
    curve: [[step, value, seconds], ...].
    steps: of the whole run.

  Returns:
    The change of the value; None if there are fewer than two points.

  >>> curve = [[80, 9.0, 0], [90, 2.0, 0], [95, 1.5, 0], [100, 1.0, 0]]
  >>> round(change_at_end(curve, 100), 6)
  -1.0
  >>> change_at_end([[50, 2.0, 0], [100, 1.0, 0]], 100)
  """
  begin = (1 - LAST) * steps
  points = {x: y for x, y, *_ in curve if x >= begin and math.isfinite(y)}
  if len(points) < 2:
    return None
  line = statistics.linear_regression(list(points), list(points.values()))
  return line.slope * LAST * steps


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
    ends = [change_at_end(row[name], number(row, "steps")) for row in runs]
    known = [shown(end) for end in ends if end is not None]
    if known:
      return f"{statistics.fmean(known):+.1f} {unit}"
  return NOTHING
