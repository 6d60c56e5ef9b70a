"""Records of finished runs, as read from workdirs and kept in results.jsonl.

A record is an object: `run` (id), `name`, `config`, `overrides` (an object itself), all
of the run's result.json, of its meta.json the device, versions and source revision, and
`curve`, the exact loss on validation data as it went: [[step, nll, seconds], ...] with
the nll in nats and the seconds of training; `curve_p@1` is the same of the precision,
`curve_PAIRS_input` and `curve_PAIRS_output` of the rank correlations with a file of
pairs of words. A run that does not measure these has no such curve.
"""

import json
import os
import pathlib
import re
from typing import Any

from sweepfile import Run

from largevocab.errors import UserError

Record = dict[str, Any]
CURVES = {"curve": "nll", "curve_p@1": "p@1"}
OF_PAIRS = re.compile(r"valid_(.+_(?:input|output))")  # see largevocab.similarity
CURVE_DIGITS = 5  # significant ones


def of_run(run: Run, workdir: pathlib.Path) -> Record | None:
  """Record of a run, or None if it has not finished."""
  if not (workdir / "result.json").exists():
    return None
  result = _read_json(workdir / "result.json")
  meta = _read_json(workdir / "meta.json")
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
    **measured_with(meta),
    **{name: curve for name, curve in curves.items() if curve},
  }


def measured_with(meta: Record) -> Record:
  """Of what `workdir.describe_machine` tells, that on which figures depend."""
  return {
    **{key: meta[key] for key in ("device", "num_devices", "python")},
    **meta["versions"],
    **{key: meta[key] for key in ("git", "git_dirty")},
  }


def validation_curve(path: pathlib.Path, metric: str) -> list[list[float]]:
  """[[step, metric, seconds], ...] of the lines of metrics.jsonl on validation data.

  >>> validation_curve(pathlib.Path("no/such/metrics.jsonl"), "nll")
  []
  """
  if not path.exists():
    return []
  lines = load(path)
  valid = [line for line in lines if line["split"] == "valid" and metric in line]
  rounded = lambda value: float(f"{value:.{CURVE_DIGITS}g}")
  return [[v["step"], rounded(v[metric]), rounded(v["seconds"])] for v in valid]


def of_directory(root: pathlib.Path) -> list[Record]:
  """Records of all finished runs below a directory, named by their paths."""
  workdirs = sorted(path.parent for path in root.rglob("result.json"))
  names = [str(workdir.relative_to(root)) for workdir in workdirs]
  runs = [Run(config="", name=name) for name in names]
  records = (of_run(run, workdir) for run, workdir in zip(runs, workdirs, strict=True))
  return [record for record in records if record is not None]


def load(path: pathlib.Path) -> list[Record]:
  """The objects in results.jsonl, or in another file of one a line.

  Raises:
    UserError: the file is missing, or a line of it is not JSON.
  """
  if not path.is_file():
    raise UserError(f"{path}: no such file; run scripts/run_sweep.py first")
  records = []
  for number, line in enumerate(path.read_text().splitlines(), start=1):
    try:
      records.append(json.loads(line))
    except json.JSONDecodeError as error:
      raise UserError(f"{path}:{number}: not JSON ({error.msg}); mend it") from None
  return records


def update(path: pathlib.Path, runs: list[Run], root: pathlib.Path) -> None:
  """Rewrites results.jsonl: one line for each finished run, in the sweep's order.

  A run that has not finished in `root` keeps the line that it has (from another
  machine, say); lines of runs that are not in the sweep go.
  """
  kept = {record["run"]: record for record in load(path)} if path.exists() else {}
  rows = [of_run(run, root / run.id) or kept.get(run.id) for run in runs]
  if finished := [row for row in rows if row is not None]:
    _write(path, finished)


def merge(path: pathlib.Path, rows: list[Record]) -> None:
  """Puts records into a file, in place of those of the same run."""
  old = load(path) if path.exists() else []
  merged = {record["run"]: record for record in [*old, *rows]}
  path.parent.mkdir(parents=True, exist_ok=True)
  _write(path, list(merged.values()))


def _write(path: pathlib.Path, rows: list[Record]) -> None:
  """All of it or nothing, whoever else writes or whatever kills us."""
  temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
  temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
  temporary.replace(path)


def _read_json(path: pathlib.Path) -> Record:
  try:
    return json.loads(path.read_text())
  except (OSError, json.JSONDecodeError) as error:
    raise UserError(f"{path} cannot be read ({error}); delete its directory") from error
