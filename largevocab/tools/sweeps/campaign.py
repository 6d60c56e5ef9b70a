"""A sweep in progress, with the runs that can start and the results so far."""

import pathlib
import tomllib
from dataclasses import dataclass, field
from typing import Any

from largevocab.errors import UserError
from largevocab.tools import baselines
from largevocab.tools.sweeps import hparams_page, records, sweepfile
from largevocab.tools.sweeps.launch import REPOSITORY, Launcher, PathSetting
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import Run, data_of
from largevocab.tools.sweeps.sweepfile import Sweep


@dataclass
class Campaign:
  """A sweep, with a launcher for its runs.

  Attributes:
    path: path of the sweep file; results.jsonl, and search.jsonl with the trials of the
      search, are beside it.
    sweep: content of the file.
    launcher: launcher of the runs.
    names: only runs with these names are executed; empty: all runs.
    ids: only runs with these ids are executed; empty: all runs.
    rows_count: whether a run with a row in results.jsonl is done, wherever it was
      executed.
  """

  path: pathlib.Path
  sweep: Sweep
  launcher: Launcher
  names: frozenset[str] = frozenset()
  ids: frozenset[str] = frozenset()
  rows_count: bool = False
  _known: dict[str, Record] = field(default_factory=dict)  # trials that have ended
  _rows: frozenset[str] = frozenset()  # ids of runs with a row

  def __post_init__(self):
    if unknown := self.names - {run.name for run in self.sweep.runs}:
      raise UserError(f"{self.path} has no run named {min(unknown)!r}")
    if self._search_path.exists():
      rows = records.load(self._search_path, ["run"])
      self._known = {row["run"]: row for row in rows}
    if self.rows_count and self._results_path.exists():
      rows = records.load(self._results_path, ["run"])
      self._rows = frozenset(row["run"] for row in rows)

  @property
  def name(self) -> str:
    return self.path.resolve().parent.name

  @property
  def runs(self) -> list[Run]:
    """The selected runs of the sweep, without the rates of the search."""
    named = lambda run: not self.names or run.name in self.names
    asked = lambda run: not self.ids or run.id in self.ids
    return [run for run in self.sweep.runs if named(run) and asked(run)]

  def trials(self, runs: list[Run] | None = None) -> list[Run]:
    """The trials of the search for these runs; by default, for the selected ones."""
    search = self.sweep.search
    runs = self.runs if runs is None else runs
    every = (search.trials(run) for run in runs) if search else ()
    return list({trial.id: trial for trials in every for trial in trials}.values())

  def ready(self) -> list[Run]:
    """Runs that have ended or can start, in order.

    The trials of the search come first, then the runs whose rates have been chosen.
    """
    return [*self.trials(), *filter(None, map(self.chosen, self.runs))]

  def ended(self, run: Run) -> bool:
    """Whether a run is done, according to its workdir or to its row in a file."""
    is_known = run.id in self._known or run.id in self._rows
    return is_known or self.launcher.ended(run)

  def chosen(self, run: Run) -> Run | None:
    """A run with the rates that the search chose; None if they are not known yet."""
    search = self.sweep.search
    return search.chosen(run, self._record_of) if search else run

  def collect(self) -> None:
    """Writes the results so far: results.jsonl, search.jsonl, and the HPARAMS page.

    Rows of methods whose search lacks trials stay as they are.
    """
    search, root = self.sweep.search, self.launcher.root
    runs = [(run, self.chosen(run)) for run in self.sweep.runs]
    known = [run for _, run in runs if run is not None]
    told = {
      run.id: search.record_fields(run)
      for given, run in runs
      if search and run is not None and search.trials(given)
    }
    if search:
      records.update(self._search_path, self.trials(self.sweep.runs), root)
    waiting = {run.name for run, chosen in runs if chosen is None}
    records.update(
      self._results_path,
      known,
      root,
      lambda run: told.get(run.id, {}),
      keep=lambda record: record.get("name") in waiting,
    )
    if root.exists():
      hparams_page.write(root, known)

  def count_baselines(self) -> None:
    """Adds missing baselines for the data, and seeds of data, of the selected runs.

    Does nothing if there are no results.
    """
    rows = records.load(self._results_path) if self._results_path.exists() else []
    data = lambda name, overrides: (data_of(name), overrides.get("data.seed", 0))
    have = {data(row["name"], row["overrides"]) for row in rows if row.get("baseline")}
    runs = [run for run in self.runs if data(run.name, run.overrides) not in have]
    if rows and runs:
      counted = baselines.rows(runs, self.launcher.settings)
      records.merge(self._results_path, counted)

  @property
  def _results_path(self) -> pathlib.Path:
    return self.path.with_name("results.jsonl")

  @property
  def _search_path(self) -> pathlib.Path:
    return self.path.with_name("search.jsonl")

  def _record_of(self, trial: Run) -> Record | None:
    if trial.id not in self._known:
      record = records.of_run(trial, self.launcher.workdir(trial))
      if record is None:
        return None
      self._known[trial.id] = record
    return self._known[trial.id]


def of_sweep(
  path: pathlib.Path,
  root: pathlib.Path,
  settings: list[PathSetting],
  **more: Any,
) -> Campaign:
  """The campaign of a sweep file; `more` are fields of `Campaign`.

  Raises:
    UserError: the file cannot be read, adds no runs, or belongs to another checkout
      than this package, whose code its runs would execute.
  """
  is_checkout = lambda place: (place / "largevocab" / "__init__.py").exists()
  checkout = next(filter(is_checkout, path.resolve().parents), REPOSITORY)
  if not (checkout / "largevocab").samefile(REPOSITORY / "largevocab"):
    raise UserError(
      f"{path} is in {checkout}, but its runs would execute the package in "
      f"{REPOSITORY}; use the Python that {checkout}/scripts/install makes, or set "
      f"PYTHONPATH={checkout}"
    )
  sweep = sweepfile.load(path)
  if not sweep.runs:
    raise UserError(f"{path} adds no runs; its README.md says what makes its results")
  return Campaign(path, sweep, Launcher(root.resolve(), settings), **more)


def of_queue(
  path: pathlib.Path, root: pathlib.Path, settings: list[PathSetting]
) -> list[Campaign]:
  """The campaigns of a file that lists sweeps in the order of execution:

    [[sweep]]
    file = "../experiments/ptb_sampled/sweep.py"  # relative to the list
    names = ["full softmax"]                   # only these runs; leave out for all

  Runs with a row in the results.jsonl beside their sweep file are done.

  Args:
    path: path of the list.
    root: root directory; runs of experiments/NAME/sweep.py go to its subdirectory NAME.
    settings: paths of data for all sweeps.

  Raises:
    UserError: a line, key or file is wrong; the message names it.
  """
  try:
    content = tomllib.loads(records.read_text(path))
  except (tomllib.TOMLDecodeError, RecursionError) as error:
    raise UserError(f"{path}: {error}; correct the file") from None
  entries = content.get("sweep", [])
  is_list = isinstance(entries, list) and all(isinstance(e, dict) for e in entries)
  if set(content) != {"sweep"} or not is_list or not entries:
    raise UserError(f"{path}: must have [[sweep]] tables with `file`, and nothing else")
  campaigns = []
  for number, each in enumerate(entries, 1):
    place = f"{path}: [[sweep]] number {number}"
    names = each.get("names", [])
    if not isinstance(each.get("file"), str) or set(each) - {"file", "names"}:
      raise UserError(f"{place}: must have `file` and, optionally, `names`")
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
      raise UserError(f"{place}: names is {names!r:.80}, not a list of run names")
    file = path.parent / each["file"]
    place = root / file.resolve().parent.name
    more = {"names": frozenset(names), "rows_count": True}
    campaigns.append(of_sweep(file, place, settings, **more))
  return campaigns
