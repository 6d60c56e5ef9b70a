"""Records of runs that have ended, read from workdirs and stored in results.jsonl.

A record is a JSON object with `run` (the id), `name`, `config`, `overrides` (an
object), everything in the run's result.json, and the device, versions and source
revision from its meta.json. Curves on validation data are [[step, value, seconds],
...], where seconds are those of training. `curve` has the exact nll in nats,
`curve_p@1` the precision, and `curve_PAIRS_input` and `curve_PAIRS_output` the rank
correlations with a file of word pairs. Curves that a run does not measure are missing.
`every_epochs` is the number of epochs between evaluations, from config.json.

Optional fields are:

- `baseline`: true for a count-based model (`tools/baselines.py`)
- `bound`: true for the Bayes classifier, which is one of the baselines
- `trials`: the number of learning rates that were tried
- `diverged`: the step at which the loss was not finite, in place of all metrics
- `page_faults`: for a time, whether large arrays were outside huge pages
"""

import json
import math
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from largevocab import atomic
from largevocab.errors import UserError
from largevocab.provenance import describe_machine
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training.json_files import read_json

Record = dict[str, Any]
CURVES = {"curve": "nll", "curve_p@1": "p@1"}
OF_PAIRS = re.compile(
  r"valid_(.+_(?:input|output))"
)  # see largevocab.evaluation.similarity
_SEEDED = ("train", "data")  # parts of a config that have a seed
_LOSSES = {"ppl", "nll", "loss", "byte"}  # "byte" is for bits per byte
CURVE_DIGITS = 5  # significant digits
# Types of a record's own fields; metrics may have any type.
FIELDS: dict[str, type] = {
  **dict.fromkeys(("run", "name", "config", "device", "jax", "python", "git"), str),
  **{"overrides": dict, "git_dirty": bool},
}
MEASURED_WITH = ("device", "jax", "python", "git", "git_dirty")
# Types of optional fields. `earlier` has the starts of a run that was resumed.
SOME_HAVE: dict[str, type] = {
  "baseline": bool,
  "bound": bool,
  "trials": int,
  "diverged": int,
  "page_faults": bool,
  "earlier": list,
}
KINDS = {
  **{str: "a text", dict: "an object", list: "a list"},
  **{bool: "true or false", int: "a whole number"},
}


def of_run(run: Run, workdir: pathlib.Path) -> Record | None:
  """The record of a run, or None if the run has not ended."""
  if (workdir / "result.json").exists():
    result = _file(workdir / "result.json")
    if not result:
      raise UserError(
        f"{workdir / 'result.json'} is empty; delete its directory to repeat the run"
      )
  elif (workdir / "diverged.json").exists():
    result = {"diverged": _file(workdir / "diverged.json").get("step")}
  else:
    return None
  last, *earlier = _starts(workdir / "meta.json")
  pairs = [found[1] for key in result if (found := OF_PAIRS.fullmatch(key))]
  metrics = CURVES | {f"curve_{metric}": metric for metric in pairs}
  curves = {
    name: validation_curve(workdir / "metrics.jsonl", metric)
    for name, metric in metrics.items()
  }
  return {
    "run": run.id,
    "name": run.name,
    "config": run.config,
    "overrides": run.overrides,
    **{key: result[key] for key in sorted(result)},
    **_evaluated(workdir / "config.json"),
    **last,
    **({"earlier": earlier} if earlier else {}),
    **{name: curve for name, curve in curves.items() if curve},
  }


def _starts(path: pathlib.Path) -> list[Record]:
  """The fields of `measured_with` of the last start of a run, then of others, if any.

  A run that resumed has more starts. Those whose fields are those of the last, or of
  one before in the list, are left out.
  """
  meta = _file(path)
  earlier = meta.get("earlier", [])
  if not isinstance(earlier, list) or not all(isinstance(m, dict) for m in earlier):
    raise UserError(f"{path} is damaged (`earlier` is no list of starts); delete it")
  starts: list[Record] = []
  for start in [meta, *reversed(earlier)]:
    for key in ("device", "num_devices", "python", "versions", "git", "git_dirty"):
      if key not in start or (key == "versions" and not isinstance(start[key], dict)):
        raise UserError(f"{path} lacks {key!r}; delete its directory to repeat the run")
    if (fields := measured_with(start)) not in starts:
      starts.append(fields)
  return starts


def _evaluated(path: pathlib.Path) -> Record:
  """The number of epochs between evaluations, if a config has it."""
  settings = _file(path) if path.exists() else {}
  between = settings.get("eval", {}).get("every_epochs")
  return {"every_epochs": between} if between else {}


def _seeds(path: pathlib.Path) -> dict[str, int]:
  """The seeds in a config, as overrides; {} if there is no file."""
  settings = _file(path) if path.exists() else {}
  found = {f"{part}.seed": settings.get(part, {}).get("seed") for part in _SEEDED}
  return {key: seed for key, seed in found.items() if seed}


def measured_with(meta: Record) -> Record:
  """The fields of `provenance.describe_machine` on which measurements depend."""
  return {
    **{key: meta[key] for key in ("device", "num_devices", "python")},
    **meta["versions"],
    **{key: meta[key] for key in ("git", "git_dirty")},
  }


def measured_here() -> Record:
  """The fields of `measured_with` for this process.

  Read them before the measurement, since the source on disk may change during it.
  """
  return measured_with(describe_machine())


def report_row(name: str, *fields: Record) -> Record:
  """The record of a report that trains nothing.

  >>> report_row("a", {"ms": 2.0})
  {'run': 'a', 'name': 'a', 'config': '', 'overrides': {}, 'ms': 2.0}
  """
  row: Record = {"run": name, "name": name, "config": "", "overrides": {}}
  for each in fields:
    row |= each
  return row


def validation_curve(path: pathlib.Path, metric: str) -> list[list[float]]:
  """[[step, metric, seconds], ...] from the validation lines of metrics.jsonl.

  >>> validation_curve(pathlib.Path("no/such/metrics.jsonl"), "nll")
  []
  """
  if not path.exists():
    return []
  rounded = lambda value: float(f"{value:.{CURVE_DIGITS}g}")
  points: list[list[float]] = []
  for number, line in numbered(path):
    if line.get("split") == "valid" and metric in line:
      point: list[Any] = [line.get(key) for key in ("step", metric, "seconds")]
      if not all(map(is_number, point)):
        raise UserError(f"{path}:{number}: step, {metric} or seconds is not a number")
      points.append([point[0], *map(rounded, point[1:])])
  return points


def of_directories(roots: Sequence[pathlib.Path]) -> list[Record]:
  """Records of all runs that have ended in or below directories.

  Runs are named by their paths, which are relative if there is only one directory. Runs
  that have not ended are counted on standard error.
  """
  above = lambda *names: {
    path.parent for root in roots for name in names for path in root.rglob(name)
  }
  ended = above("result.json", "diverged.json")
  if others := sorted(above("meta.json") - ended):
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    print(f"left out, without a result: {others[0]}{more}", file=sys.stderr)
  found = []
  for workdir in sorted(ended):
    is_within = len(roots) == 1 and workdir != roots[0]
    name = str(workdir.relative_to(roots[0]) if is_within else workdir)
    record = of_run(Run("", _seeds(workdir / "config.json"), name), workdir)
    found += [record | {"run": name}] if record is not None else []
  return found


def load(path: pathlib.Path, needs: Iterable[str] = FIELDS) -> list[Record]:
  """Reads the records in results.jsonl, or in another JSON Lines file.

  Args:
    path: path of the file.
    needs: fields that every record must have.

  Raises:
    UserError: the file is missing, a line is not a valid record, or two lines are for
      the same run.
  """
  records, line_of = [], {}
  for number, record in numbered(path):
    if found := problem(record, needs):
      raise UserError(f"{path}:{number}: {found}; correct the line, or remove it")
    if "run" in record:
      first = line_of.setdefault(record["run"], number)
      if first != number:
        raise UserError(
          f"{path}:{number}: the run {record['run']!r:.80} is on line {first} already; "
          "remove one of them"
        )
    records.append(record)
  return records


@contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
  """Prefixes error messages with the name of their file."""
  try:
    yield
  except UserError as error:
    raise UserError(f"{path}: {error}") from None


def numbered(path: pathlib.Path) -> list[tuple[int, Record]]:
  """The objects in a JSON Lines file, with their line numbers.

  Raises:
    UserError: the file cannot be read, or a line is not an object.
  """
  objects = []
  if not path.exists():
    raise UserError(
      f"{path}: no such file; scripts/run_sweep.py or largevocab-bench run writes it"
    )
  for number, line in enumerate(read_text(path).split("\n"), start=1):
    if not line.strip():
      continue
    try:
      content = json.loads(line)
    except (ValueError, RecursionError) as error:
      what = error.msg if isinstance(error, json.JSONDecodeError) else error
      raise UserError(f"{path}:{number}: not JSON ({what}); correct it") from None
    if not isinstance(content, dict):
      raise UserError(f"{path}:{number}: holds no object {{...}}; correct it")
    objects.append((number, content))
  return objects


def read_text(path: pathlib.Path) -> str:
  """Reads a file; raises a UserError if it is missing or not UTF-8."""
  if not path.is_file():
    what = "not a file" if path.exists() else "no such file"
    raise UserError(f"{path}: {what}; name an existing file")
  try:
    return path.read_text(encoding="utf-8")
  except UnicodeDecodeError as error:
    line = path.read_bytes()[: error.start].count(b"\n") + 1
    raise UserError(f"{path}:{line}: not UTF-8; correct it") from None


def is_number(value: Any, *, finite: bool = False) -> bool:
  """Whether a value is a number that fits in a float and, with `finite`, is finite.

  >>> [is_number(value) for value in (1, 0.5, True, "1", 10**400)]
  [True, True, False, False, False]
  >>> is_number(math.inf), is_number(math.inf, finite=True)
  (True, False)
  """
  if isinstance(value, bool) or not isinstance(value, int | float):
    return False
  if isinstance(value, float):
    return math.isfinite(value) or not finite
  return abs(value) < 1e300


def problem(record: Record, needs: Iterable[str] = ()) -> str:
  """Why an object is not a valid record with all `needs`; '' if it is valid.

  >>> problem({"bound": 3}), problem({"bound": True}), problem({}, ["run"])
  ("'bound' is 3, not true or false", '', "it has no 'run'")
  """
  for key in needs:
    if key not in record:
      return f"it has no {key!r}"
  for key, kind in (FIELDS | SOME_HAVE).items():
    if key in record and not is_of(record[key], kind):
      return f"{key!r} is {record[key]!r:.80}, not {KINDS[kind]}"
  for key in record:
    if key == "curve" or key.startswith("curve_"):
      points = record[key] if isinstance(record[key], list) else [None]
      if not all(map(is_point, points)):
        return f"{key!r} has points other than [step, value, seconds]"
  for start in record.get("earlier", []):
    if not isinstance(start, dict) or problem(start, MEASURED_WITH):
      return f"'earlier' has {start!r:.80}, not a start with {', '.join(MEASURED_WITH)}"
  return ""


def is_of(value: Any, kind: type) -> bool:
  """Whether a value has a type: any finite number is a float, but a bool is not.

  >>> is_of(True, int), is_of(3, float), is_of(math.nan, float)
  (False, True, False)
  """
  if kind is float:
    return is_number(value, finite=True)
  return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def is_point(point: Any, *, finite: bool = False) -> bool:
  """Whether this is [step, value, seconds] with a finite step.

  With `finite`, all three must be finite.

  >>> point = [5, math.nan, 1.0]
  >>> is_point(point), is_point(point, finite=True), is_point(point[:2])
  (True, False, False)
  """
  if not isinstance(point, list) or len(point) != 3:
    return False
  step, *others = point
  are_numbers = all(is_number(value, finite=finite) for value in others)
  return is_number(step, finite=True) and are_numbers


def update(
  path: pathlib.Path,
  runs: list[Run],
  root: pathlib.Path,
  more: Callable[[Run], Record] = lambda run: {},
  keep: Callable[[Record], bool] = lambda record: False,
) -> None:
  """Rewrites results.jsonl: one line for each run that has ended, in the sweep's order.

  A run that has not ended in `root` keeps its line, for example one from another
  machine. Baselines are kept, and so are lines for which `keep` is true and whose runs
  are not in the sweep. All other old lines go to results.removed.jsonl. If no line
  would be left, all stay until a run has ended. `more` returns additional fields of a
  new line.
  """
  with atomic.locked(path.parent):
    kept = _by_run(path)
    rows = []
    for run in runs:
      row = of_run(run, root / run.id)
      rows.append({**row, **more(run)} if row else kept.get(run.id))
    own = {run.id for run in runs}
    others = [record for record in kept.values() if record["run"] not in own]
    rows += [record for record in others if record.get("baseline") or keep(record)]
    if finished := [row for row in rows if row is not None]:
      _set_aside(path, [*kept.values()], finished)
      _write(path, finished)


def merge(path: pathlib.Path, rows: list[Record]) -> None:
  """Adds records to a file, where they replace records of the same runs."""
  with changed(path) as by_run:
    by_run.update({record["run"]: record for record in rows})


def replace(path: pathlib.Path, rows: list[Record]) -> None:
  """Replaces the records of a file.

  The old ones go to FILE.removed.jsonl, as in `update`.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with atomic.locked(path.parent):
    old = [record for _, record in numbered(path)] if path.exists() else []
    _set_aside(path, old, rows)
    _write(path, rows)


@contextmanager
def changed(
  path: pathlib.Path, keys: Iterable[str] = ("run",)
) -> Iterator[dict[str, Record]]:
  """Yields the records of a file by their run, to be changed while others wait.

  At the end of the block, the file is written, unless nothing was changed or the block
  raises.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with atomic.locked(path.parent):
    old = _by_run(path, keys)
    new = dict(old)
    yield new
    if new != old:
      _write(path, list(new.values()))


def only(rows: list[Record], pattern: str, setting: str) -> list[Record]:
  """The rows in whose names a regular expression is found.

  Args:
    rows: records with names.
    pattern: the expression.
    setting: where it was given, for error messages.

  Raises:
    UserError: the pattern is not a regular expression, or is found in no name.

  >>> only([{"name": "pps, 512"}, {"name": "full"}], "^pps", "rows")
  [{'name': 'pps, 512'}]
  """
  try:
    found = [row for row in rows if re.search(pattern, row["name"])]
  except re.error as error:
    raise UserError(
      f"{setting}={pattern} is not a regular expression: {error}"
    ) from None
  if not found:
    raise UserError(f"{setting}={pattern} matches no row name; correct it")
  return found


def is_loss(metric: str) -> bool:
  """Whether smaller values of a metric are better.

  >>> [is_loss(name) for name in ("valid_nll", "test_ppl", "hr@10", "SimLex-999_input")]
  [True, True, False, False]
  """
  return bool(_LOSSES & set(metric.split("_")))


def _file(path: pathlib.Path) -> Record:
  """Reads a file of a run that has ended; only running it again would restore it."""
  try:
    return read_json(str(path))
  except UserError as error:
    what, _, _ = str(error).partition(";")
    raise UserError(f"{what}; delete its directory to repeat the run") from error


def _by_run(path: pathlib.Path, keys: Iterable[str] = ("run",)) -> dict[str, Record]:
  rows = load(path, keys) if path.exists() else []
  return {record["run"]: record for record in rows}


def _set_aside(path: pathlib.Path, old: list[Record], new: list[Record]) -> None:
  """Adds old lines that are not among the new ones to a separate file, and says so."""
  stay = set(map(json.dumps, new))
  lost = [line for line in map(json.dumps, old) if line not in stay]
  if not lost:
    return
  aside = path.with_suffix(f".removed{path.suffix}")
  before = read_text(aside) if aside.exists() else ""
  atomic.write_text(aside, before + "".join(f"{line}\n" for line in lost))
  print(f"{path}: rows removed or replaced: {len(lost)}; {aside} has them")


def _write(path: pathlib.Path, rows: list[Record]) -> None:
  atomic.write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
