"""Sweep files, which define runs, metrics of the table, published numbers and figures.

A sweep file is a Python file with a function `metrics`. It also has a function `sweep`,
unless another program writes results.jsonl. All other functions are optional:

  def sweep(add):
    for seed in range(3):
      add("configs/ptb.py:full", {"train.seed": seed}, name="full softmax")
      add("configs/ptb.py:sampled/pps", {"head.num_samples": 160, "train.seed": seed})

  def metrics():                                   # keys of result.json
    return ["test_ppl", "train_seconds"]

  def paper():                                     # by name, then by metric
    return {"full softmax": {"test_ppl": 114.5}}

  def figures():                                   # see `Figure`
    return [
      {"file": "samples", "x": "head.num_samples", "y": "test_ppl", "log": "xy"},
      {"file": "epochs", "x": "step", "y": "valid_ppl", "line": "head.num_samples"},
    ]

  def search():                                    # see `Search`
    return {"steps": 500, "grid": {"train.lr": [5.0, 10.0, 20.0]}}

  def comparison():                                # see `Comparison`
    return {"to": "full softmax", "metric": "test_ppl"}

  def derived(record, records):                    # more metrics of a record
    full = next(r for r in records if r["name"] == "full softmax")
    return {"slower": record["test_ppl"] / full["test_ppl"]}

A config is the name of a config of the package, as in "quickstart:full", or the path of
a file. The path is relative to the project directory that contains experiments/NAME or,
if the file is not there, to the current directory.

The records passed to `derived` include baselines (`record.get("baseline")`), which have
no steps and no seconds. They do not include diverged runs.
"""

import pathlib
import re
import runpy
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from largevocab import command_line
from largevocab.errors import UserError
from largevocab.tools.sweeps.records import is_number
from largevocab.tools.sweeps.search import Search, search
from largevocab.tools.sweeps.sweep_run import Run

# Values of x and y for validation curves.
CURVE_X = ("step", "epoch", "seconds", "idle_time")
CURVE_Y = ("valid_nll", "valid_ppl")


@dataclass(frozen=True)
class Figure:
  """One figure: a point for each run, or a curve for each run.

  A key is "method" or "data" (see `Run.name`), an override such as "head.num_samples",
  or a field of a record, such as "test_ppl". "idle_seconds" and "operations" can be
  used if they were measured (`tools/tables/axes.py`). The method of a baseline is its
  whole name. Runs that differ only in the seed are averaged.

  Attributes:
    file: file name in experiments/NAME/figures, without suffix.
    x: for curves over training, "step", "epoch", "seconds" of the run, or "idle_time",
      where each step takes its share of the run's "idle_seconds"; for points, a key.
    y: for curves, "valid_ppl", "valid_nll" or the name of another curve of the records,
      such as "curve_p@1"; for points, a key.
    line: key; runs with the same value form a line of points, or have the same colour
      of curve.
    panel: key; runs with the same value share a panel. "": a single panel.
    where: {key: value or list of values}; only matching runs are drawn.
    reference: methods drawn dashed in every panel: their curves, or the y of their
      points as a level. `where` does not apply to them.
    log: logarithmic axes: "", "x", "y" or "xy".
    steps_per_epoch: number of steps per epoch, for x = "epoch".
    y_max: upper limit of the y axis, if larger values would flatten the rest; 0: none.
    y_min: lower limit of the y axis, likewise; 0: none.
    band: whether to show the standard deviation over seeds on both sides, shaded along
      curves and as bars at points.
    front: "least" or "most", whichever is better for y: joins the points of the Pareto
      front, with small x and good y, and labels all points. "": no front.
  """

  file: str
  x: str
  y: str
  line: str = "method"
  panel: str = ""
  where: dict[str, Any] = field(default_factory=dict)
  reference: list[str] = field(default_factory=list)
  log: str = ""
  steps_per_epoch: int = 0
  y_max: float = 0.0
  y_min: float = 0.0
  band: bool = False
  front: str = ""

  def __post_init__(self):
    if self.is_curve and not (self.y in CURVE_Y or self.y.startswith("curve_")):
      raise UserError(
        f"figure {self.file}: over {self.x}, y must be one of {CURVE_Y}, or a curve "
        "in the records, such as 'curve_p@1'"
      )
    if self.front and self.is_curve:
      raise UserError(
        f"figure {self.file}: a front joins points, so x cannot be {self.x!r}"
      )
    if self.front not in ("", "least", "most"):
      raise UserError(
        f"figure {self.file}: `front` must be '', 'least' or 'most', not {self.front!r}"
      )
    if self.x == "epoch" and self.steps_per_epoch < 1:
      raise UserError(f"figure {self.file}: x is 'epoch', so give steps_per_epoch")
    if not re.fullmatch(r"[\w-]+", self.file):
      raise UserError(f"figure {self.file}: `file` must be a name without suffix")
    if self.log not in ("", "x", "y", "xy"):
      raise UserError(
        f"figure {self.file}: `log` must be '', 'x', 'y' or 'xy', not {self.log!r}"
      )
    for key, limit in (("y_min", self.y_min), ("y_max", self.y_max)):
      if not is_number(limit, finite=True):
        raise UserError(
          f"figure {self.file}: {key} is {limit!r:.80}, but must be finite"
        )
    if self.y_min and self.y_max and not self.y_min < self.y_max:
      raise UserError(
        f"figure {self.file}: y_max is {self.y_max}, but must be above y_min"
      )

  @property
  def is_curve(self) -> bool:
    """Whether the figure has curves over training."""
    return self.x in CURVE_X


# Fields of figures that are not strings.
_KINDS: dict[str, Any] = {
  "where": (dict, "{key: value}"),
  "reference": (list, "a list of names"),
  "steps_per_epoch": (int, "a whole number"),
  "y_max": (int | float, "a number"),
  "y_min": (int | float, "a number"),
  "band": (bool, "True or False"),
}


def figure(description: dict[str, Any]) -> Figure:
  """A `Figure` from a dict that `figures()` returns.

  >>> figure({"file": "speed", "x": "train_seconds", "y": "test_ppl"}).line
  'method'

  Raises:
    UserError: a missing or unknown key, or an invalid value.
  """
  if not isinstance(description, dict):
    raise UserError(f"a figure is {description!r:.80}, not {{'file': ..., 'x': ...}}")
  known = [f.name for f in fields(Figure)]
  missing = [key for key in ("file", "x", "y") if key not in description]
  unknown = [key for key in description if key not in known]
  if missing or unknown:
    what = f"lacks {missing}" if missing else f"has unknown {unknown}"
    raise UserError(f"figure {description} {what}; known: {', '.join(known)}")
  for each in fields(Figure):
    kind, what = _KINDS.get(each.name, (str, "a string"))
    if each.name in description and not isinstance(description[each.name], kind):
      raise UserError(
        f"figure {description}: {each.name} is {description[each.name]!r}, not {what}"
      )
  return Figure(**description)


@dataclass(frozen=True)
class Comparison:
  """The reference of the rows of a table; see `tools/tables/significance.py`.

  Attributes:
    to: name of the reference runs, without the data: "full softmax" compares runs
      "ptb: unigram" with runs "ptb: full softmax".
    metrics: metrics, of which a row is compared by the first that it has.
  """

  to: str
  metrics: tuple[str, ...]


def comparison(
  description: dict[str, Any], runs: list[Run], metrics: list[str]
) -> Comparison | None:
  """A `Comparison` from the dict that `comparison()` returns; None if it is empty.

  Raises:
    UserError: a key is missing or unknown, or a run or metric is unknown.
  """
  if not description:
    return None
  to, names = description.get("to"), description.get("metric")
  names = names if isinstance(names, list) else [names]
  is_text = all(isinstance(name, str) for name in (to, *names))
  if set(description) != {"to", "metric"} or not is_text:
    raise UserError(
      f"comparison() returns {description!r:.80}, not {{'to': name of runs, 'metric': "
      "name, or list of names}"
    )
  if unknown := [name for name in names if name not in metrics]:
    raise UserError(
      f"comparison() compares {unknown}, which metrics() lacks; it has {metrics}"
    )
  if not any(run.name == to or run.name.endswith(f": {to}") for run in runs):
    raise UserError(f"comparison() is to {to!r}, but no run has this name")
  return Comparison(str(to), tuple(names))


@dataclass(frozen=True)
class Sweep:
  """Content of a sweep file; a field is the result of the function of this name."""

  runs: list[Run]
  metrics: list[str]
  paper: dict[str, dict[str, float]]
  figures: list[Figure] = field(default_factory=list)
  search: Search | None = None
  derived: Callable[[dict, list[dict]], dict[str, float]] = lambda record, records: {}
  comparison: Comparison | None = None

  def complete(self, records: list[dict]) -> list[dict]:
    """Records with derived metrics; diverged runs have no derived metrics."""
    ended = [record for record in records if "diverged" not in record]
    return [
      record if "diverged" in record else record | self.derived(record, ended)
      for record in records
    ]


def collect(sweep: Callable[[Callable[..., None]], None]) -> list[Run]:
  """The runs that `sweep(add)` adds, in order.

  >>> collect(lambda add: add("configs/ptb.py", {"train.seed": 1}))[0].overrides
  {'train.seed': 1}
  """
  runs: dict[str, Run] = {}

  def add(config, overrides=None, /, *, name=""):
    is_text = isinstance(config, str) and isinstance(name, str)
    if not is_text or not isinstance(overrides or {}, dict):
      raise UserError(
        f"add({config!r}, {overrides!r}, name={name!r}): config and name must be "
        "strings, overrides {'key': value}"
      )
    run = Run(config, dict(overrides or {}), name)
    # Equal runs can have different ids, as with 1 and 1.0.
    same = [old for old in runs.values() if old.config == config]
    if run.id in runs or any(old.overrides == run.overrides for old in same):
      raise UserError(f"the sweep adds {' '.join(run.flags())} twice; remove one")
    runs[run.id] = run

  sweep(add)
  return list(runs.values())


def _placed(run: Run, project: pathlib.Path) -> Run:
  """The run, with the config of the project if the project has the file."""
  name = run.config.partition(":")[0]
  is_there = not command_line.is_name(name) and (project / name).is_file()
  return replace(run, folder=str(project)) if is_there else run


@contextmanager
def _running(path: pathlib.Path) -> Iterator[None]:
  """Adds the failing line of a sweep file to errors."""
  try:
    yield
  except (Exception, SystemExit) as error:
    if isinstance(error, SyntaxError) and error.filename == str(path):
      lines = [error.lineno]
    else:
      frames = traceback.extract_tb(error.__traceback__)
      lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    place = f"{path}:{lines[-1]}" if lines else f"{path}"
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    raise UserError(f"{place}: {kind}{error}") from error


def _called(names: dict[str, Any], key: str, kind: type) -> Any:
  """The result of function `key`; an empty `kind` if there is no such function."""
  value = names[key]() if key in names else kind()
  if not isinstance(value, kind):
    raise UserError(f"{key}() returns {value!r:.80}, not a {kind.__name__}")
  return value


def load(path: pathlib.Path) -> Sweep:
  """Reads a sweep file.

  Raises:
    UserError: there is no such file, it fails, lacks `metrics`, or adds a run twice.
  """
  if not path.is_file():
    raise UserError(f"{path}: no such sweep file; see experiments/*/sweep.py")
  with _running(path):
    names = runpy.run_path(str(path))
    if "metrics" not in names:
      raise UserError(f"must define metrics(); see {__file__}")
    metrics = _called(names, "metrics", list)
    if not all(isinstance(metric, str) for metric in metrics):
      raise UserError(f"metrics() returns {metrics!r:.80}, not names")
    paper = _called(names, "paper", dict)
    if not all(isinstance(numbers, dict) for numbers in paper.values()):
      raise UserError("paper() returns other than {name: {metric: number}}")
    figures = [figure(each) for each in _called(names, "figures", list)]
    if len({each.file for each in figures}) < len(figures):
      raise UserError("two figures have the same `file`; rename one")
    searched = search(_called(names, "search", dict)) if "search" in names else None
    project = path.resolve().parent.parent.parent
    found = collect(names.get("sweep", lambda add: None))
    runs = [_placed(run, project) for run in found]
    compared = comparison(_called(names, "comparison", dict), runs, metrics)

  def derived(record: dict, records: list[dict]) -> dict[str, float]:
    with _running(path):
      further = names["derived"](record, records) if "derived" in names else {}
      if not isinstance(further, dict):
        raise UserError(f"derived() returns {further!r:.80}, not {{metric: number}}")
      return further

  return Sweep(runs, metrics, paper, figures, searched, derived, compared)
