"""Paired t-tests between two methods, whose runs are paired by seed.

Runs with the same seed start from the same rows and read the same examples in the same
order, so the effect of the seed on both cancels in their difference. The 95 %
confidence interval of the mean difference over n common seeds is ± t s / sqrt(n), where
s is the standard deviation of the differences and t the 97.5 % quantile of Student's t
distribution with n - 1 degrees of freedom (Student 1908). The difference is significant
at 5 % if this interval does not contain 0. Perplexities are compared by their
logarithms, other metrics directly.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

from largevocab.tools.sweeps.records import Record, is_loss
from largevocab.tools.tables.bootstrap import LEVEL
from largevocab.tools.tables.markdown import NOTHING, number
from largevocab.tools.tables.seeds import seed_of

MARK = "n.s."  # not significant


class Difference(NamedTuple):
  """Mean difference of two methods over their common seeds.

  Attributes:
    mean: mean of the differences; in nats for perplexities.
    half: half the width of the confidence interval; None if there is only one seed.
  """

  mean: float
  half: float | None

  @property
  def is_significant(self) -> bool:
    """Whether the interval does not contain 0; with one seed there is no interval."""
    return self.half is not None and abs(self.mean) > self.half


def of_pairs(differences: Sequence[float]) -> Difference:
  """Mean and confidence interval of the differences of pairs.

  >>> of_pairs([1.0]), of_pairs([1.0, 1.0]).is_significant
  (Difference(mean=1.0, half=None), True)
  >>> round(of_pairs([1.0, 2.0, 3.0]).half, 3)
  2.484
  """
  num, mean = len(differences), statistics.fmean(differences)
  if num < 2:
    return Difference(mean, None)
  error = statistics.stdev(differences) / math.sqrt(num)
  return Difference(mean, float(stats.t.ppf(1 - LEVEL / 2, num - 1)) * error)


def compared(
  own: Sequence[Record], other: Sequence[Record], metric: str
) -> Difference | None:
  """Mean difference of a method from another; None if they have no common seed.

  A baseline has the same value for every seed of the runs. If it was counted for
  several seeds of the data, it has the same value for every run on the same data.
  """
  mine, theirs = _by_seed(own, metric), _by_seed(other, metric)
  if own and own[0].get("baseline"):
    mine = _of_baseline(mine, len(own), other)
  elif other and other[0].get("baseline"):
    theirs = _of_baseline(theirs, len(other), own)
  common = mine.keys() & theirs.keys()
  differences = [mine[seed] - theirs[seed] for seed in sorted(common)]
  return of_pairs(differences) if differences else None


def cell(difference: Difference | None, metric: str) -> str:
  """The difference with its interval; in per cent for perplexities.

  >>> cell(Difference(0.01, 0.02), "test_ppl"), cell(Difference(0.01, None), "test_ppl")
  ('+1.0 % (-1.0 to +3.0), n.s.', '+1.0 %')
  >>> cell(Difference(-0.05, 0.01), "test_p@1")
  '-0.0500 (-0.0600 to -0.0400)'
  """
  if difference is None:
    return NOTHING
  mean, half = difference
  shown = _shown(mean, metric) + (" %" if is_perplexity(metric) else "")
  if half is None:
    return shown
  interval = f"{_shown(mean - half, metric)} to {_shown(mean + half, metric)}"
  return f"{shown} ({interval})" + ("" if difference.is_significant else f", {MARK}")


def is_perplexity(metric: str) -> bool:
  """
  >>> is_perplexity("test_ppl"), is_perplexity("ppl_by_time"), is_perplexity("test_nll")
  (True, True, False)
  """
  return "ppl" in metric.split("_")


def is_better(value: float, other: float, metric: str) -> bool:
  """Whether a value is better: smaller for losses, larger for other metrics.

  >>> is_better(1.0, 2.0, "test_ppl"), is_better(1.0, 2.0, "test_p@1")
  (True, False)
  """
  return value < other if is_loss(metric) else value > other


def _by_seed(rows: Sequence[Record], metric: str) -> dict[str, float]:
  values = {seed_of(row): number(row, metric) for row in rows if metric in row}
  if is_perplexity(metric):
    values = {s: math.log(value) for s, value in values.items() if value > 0}
  return {s: value for s, value in values.items() if math.isfinite(value)}


def _of_baseline(
  values: dict[str, float], num_counted: int, runs: Sequence[Record]
) -> dict[str, float]:
  """The values of a baseline for the seeds of runs."""
  seed_of_data = lambda run: seed_of(run, "data.") if num_counted > 1 else min(values)
  return {
    seed_of(run): values[seed_of_data(run)]
    for run in runs
    if values and seed_of_data(run) in values
  }


def _shown(value: float, metric: str) -> str:
  if not is_perplexity(metric):
    return f"{value:+.4f}"
  percent = 100 * math.expm1(min(value, 700.0))
  return f"{percent:+.1f}" if abs(percent) < 1000 else f"{percent:+.2g}"
