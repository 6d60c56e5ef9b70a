"""The search for rates: the same for every method of a sweep, before its runs.

Each method, that is runs which differ in nothing but the seed, is tried with every
combination of a grid for a few steps. The combination that is best on validation data
is taken for its runs, whose records say how many were tried.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from largevocab.errors import UserError
from largevocab.tools.sweeps.sweep_run import Run

Record = dict[str, Any]
# Of what more is better.
_MOST = ("p@", "recall@", "mrr@", "ndcg@", "psp@")


@dataclass(frozen=True)
class Search:
  """What is tried.

  Attributes:
    steps: of a trial.
    grid: {key of the config: values}; all combinations are tried.
    metric: of result.json, on validation data.
    seed: of all trials; better none of the sweep's.
  """

  steps: int
  grid: dict[str, list[Any]]
  metric: str = "valid_nll"
  seed: int = 100

  def __post_init__(self):
    if not (isinstance(self.steps, int) and self.steps > 0):
      raise UserError(f"search: steps is {self.steps!r:.80}; give how many a trial has")
    is_grid = isinstance(self.grid, dict) and self.grid
    if not is_grid or not all(isinstance(v, list) and v for v in self.grid.values()):
      raise UserError(f"search: grid is {self.grid!r:.80}, not {{key: [values]}}")
    if not (isinstance(self.metric, str) and self.metric.startswith("valid_")):
      raise UserError(
        f"search: metric is {self.metric!r:.80}; choose by one of validation data, "
        "such as 'valid_nll'"
      )

  def points(self) -> list[dict[str, Any]]:
    """
    >>> Search(1, {"train.lr": [1, 2]}).points()
    [{'train.lr': 1}, {'train.lr': 2}]
    """
    return [
      dict(zip(self.grid, values, strict=True))
      for values in itertools.product(*self.grid.values())
    ]

  def trials(self, run: Run) -> list[Run]:
    """The runs by which the rates of a run are chosen, in the order of `points`."""
    length = {"train.max_steps": self.steps, "eval.every_epochs": 0.0}
    same = run.without_seed().with_overrides({**length, "train.seed": self.seed})
    return [same.with_overrides(point) for point in self.points()]

  def chosen(self, run: Run, record_of: Callable[[Run], Record | None]) -> Run | None:
    """A run with the point of the grid that is best for it; None: trials are missing.

    Args:
      run: as the sweep adds it.
      record_of: of a trial. Trials that diverged are the worst.
    """
    found = [record_of(trial) for trial in self.trials(run)]
    records = [record for record in found if record is not None]
    if len(records) < len(found):
      return None
    best = min(range(len(records)), key=lambda number: self._loss(records[number]))
    return run.with_overrides(self.points()[best])

  def told(self, run: Run) -> Record:
    """What the record of a run that was chosen says of the search.

    `trials` is how many were tried, `at_edge` of which keys the value is the least or
    greatest of three or more: there a wider grid might find a better one.
    """
    edges = [
      key
      for key, values in self.grid.items()
      if len(values) > 2 and run.overrides[key] in (min(values), max(values))
    ]
    told: Record = {"trials": len(self.points())}
    return {**told, "at_edge": edges} if edges else told

  def _loss(self, record: Record) -> float:
    value = record.get(self.metric, math.inf)
    if isinstance(value, bool) or not isinstance(value, int | float):
      value = math.inf
    sign = -1 if self.metric.removeprefix("valid_").startswith(_MOST) else 1
    return sign * value if math.isfinite(value) else math.inf


def search(description: dict[str, Any]) -> Search:
  """A search from what `search()` of a sweep file says of it.

  >>> search({"steps": 5, "grid": {"train.lr": [1.0]}}).seed
  100

  Raises:
    UserError: a key is missing or unknown, or a value impossible.
  """
  try:
    return Search(**description)
  except TypeError:
    raise UserError(
      f"search() returns {description!r:.80}; its keys are 'steps', 'grid', and if "
      "need be 'metric' and 'seed'"
    ) from None
