"""A grid search for learning rates that is the same for every method of a sweep.

A method is a set of runs that differ only in the seed. Before these runs, the method is
trained for a few steps with every combination of a grid. The best combination on
validation data is used for its runs. Their records have the number of trials.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from largevocab.errors import UserError
from largevocab.tools.sweeps.records import Record, is_loss, is_number
from largevocab.tools.sweeps.sweep_run import Run


@dataclass(frozen=True)
class Search:
  """A grid search.

  Attributes:
    steps: minimum length of a trial.
    grid: {key of the config: values}; all combinations are tried.
    metric: validation metric of result.json by which to choose.
    seed: seed of all trials; should not be a seed of the sweep.
    share: share of the run's own `train.max_steps`, which the run must set. A trial has
      this number of steps if it is larger than `steps`. Rates that are best for a short
      trial are too large for a run that is much longer.
  """

  steps: int
  grid: dict[str, list[Any]]
  metric: str = "valid_nll"
  seed: int = 100
  share: float = 0.0

  def __post_init__(self):
    if not (isinstance(self.steps, int) and self.steps > 0):
      raise UserError(f"search: steps is {self.steps!r:.80}; give the steps of a trial")
    is_grid = isinstance(self.grid, dict) and self.grid
    if not is_grid or not all(isinstance(v, list) and v for v in self.grid.values()):
      raise UserError(f"search: grid is {self.grid!r:.80}, not {{key: [values]}}")
    if not (isinstance(self.metric, str) and self.metric.startswith("valid_")):
      raise UserError(
        f"search: metric is {self.metric!r:.80}, but must be one of validation data, "
        "such as 'valid_nll'"
      )
    if not (isinstance(self.share, int | float) and 0 <= self.share <= 1):
      raise UserError(f"search: share is {self.share!r:.80}, but must be from 0 to 1")

  def points(self) -> list[dict[str, Any]]:
    """All combinations of the grid.

    >>> Search(1, {"train.lr": [1, 2]}).points()
    [{'train.lr': 1}, {'train.lr': 2}]
    """
    return [
      dict(zip(self.grid, values, strict=True))
      for values in itertools.product(*self.grid.values())
    ]

  def trials(self, run: Run) -> list[Run]:
    """The trials that choose the rates of a run, in the order of `points`.

    There are none if the run's own overrides have all keys of the grid.

    Raises:
      UserError: the overrides have some of the keys but not all, or lack
        `train.max_steps`, of which a share is needed.
    """
    if self._has_rates(run):
      return []
    steps = self._trial_steps(run)
    length: dict[str, Any] = {"train.max_steps": steps, "eval.every_epochs": 0.0}
    if "train.patience" in run.overrides:  # counts evaluations; only in overrides
      length["train.patience"] = 0
    same = run.without_seed().with_overrides({**length, "train.seed": self.seed})
    return [same.with_overrides(point) for point in self.points()]

  def chosen(self, run: Run, record_of: Callable[[Run], Record | None]) -> Run | None:
    """The run with the best point of the grid; None if trials are missing.

    Args:
      run: a run of the sweep.
      record_of: returns the record of a trial, if any. Diverged trials are the worst.

    Raises:
      UserError: a trial that did not diverge lacks the metric.
    """
    if self._has_rates(run):
      return run
    found = [record_of(trial) for trial in self.trials(run)]
    records = [record for record in found if record is not None]
    if len(records) < len(found):
      return None
    best = min(range(len(records)), key=lambda number: self._loss(records[number]))
    return run.with_overrides(self.points()[best])

  def record_fields(self, run: Run) -> Record:
    """Fields about the search, for the record of a run with chosen rates.

    `trials` is the number of trials. `at_edge` lists the keys whose chosen value is the
    smallest or largest of at least three, so that a wider grid might have a better one.
    """
    edges = [
      key
      for key, values in self.grid.items()
      if len(values) > 2 and run.overrides[key] in (min(values), max(values))
    ]
    told: Record = {"trials": len(self.points())}
    return {**told, "at_edge": edges} if edges else told

  def _trial_steps(self, run: Run) -> int:
    if not self.share:
      return self.steps
    if not run.overrides.get("train.max_steps"):
      raise UserError(
        f"{run.name!r} sets no train.max_steps, which `share` of search() needs"
      )
    return max(self.steps, round(self.share * run.overrides["train.max_steps"]))

  def _has_rates(self, run: Run) -> bool:
    own = [key for key in self.grid if key in run.overrides]
    if own and len(own) < len(self.grid):
      missing = [key for key in self.grid if key not in own]
      raise UserError(
        f"{run.name!r} sets {', '.join(own)} of search()'s grid but not "
        f"{', '.join(missing)}: set all of them, or none, to be searched"
      )
    return bool(own)

  def _loss(self, record: Record) -> float:
    if self.metric not in record and "diverged" not in record:
      raise UserError(
        f"search: the trial {record['run']} has no {self.metric!r}; choose another "
        "`metric` in search()"
      )
    value: Any = record.get(self.metric)
    if not is_number(value, finite=True):
      return math.inf
    return value if is_loss(self.metric) else -value


def search(description: dict[str, Any]) -> Search:
  """A `Search` from the dict that `search()` of a sweep file returns.

  >>> search({"steps": 5, "grid": {"train.lr": [1.0]}}).seed
  100

  Raises:
    UserError: a key is missing or unknown, or a value is invalid.
  """
  try:
    return Search(**description)
  except TypeError:
    raise UserError(
      f"search() returns {description!r:.80}; its keys are 'steps', 'grid' and, "
      "optionally, 'metric', 'seed' and 'share'"
    ) from None
