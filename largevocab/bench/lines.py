"""Lines of results: one JSON object a run, and what is wrong with those of a file.

Every line has the keys of `KEYS`, and those of `TRAINED` unless `baseline` is true. If
the loss of a run was not finite, its line has `diverged`, the step, in place of the
keys of `MEASURED`. A line with `shared` is of a run that had its machine not for
itself: its seconds compare with no others.
"""

import hashlib
import json
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from largevocab.bench.tasks import PROTOCOL, SEEDS, TASKS, Task
from largevocab.errors import UserError, listed
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import KINDS, Record
from largevocab.training.workdir import describe_machine

# All lines.
KEYS: dict[str, type] = {
  **dict.fromkeys(("run", "task", "name", "metric", "data", "device", "python"), str),
  **{"protocol": int, "versions": dict},
}
# Lines of runs with a seed.
TRAINED: dict[str, type] = {
  **{
    "method": str,
    "code": str,
    "settings": list,
    "seed": int,
    "trials": int,
    "peak_mib": float,
  },
}
# Lines of runs that did not diverge; a baseline has the first two.
MEASURED: dict[str, type] = {
  **{"valid": float, "test": float, "steps": int, "seconds": float, "curve": list},
}
_KINDS = {**KINDS, float: "a finite number", list: "a list"}


def identity(line: Mapping[str, Any]) -> str:
  """The id of a run: readable, and unique by a hash of what it is a run of.

  >>> identity({"task": "ptb", "name": "full", "method": "full", "seed": 0})
  'ptb-full-seed=0-087d4970'
  """
  own = [line.get(key) for key in ("task", "name", "method", "settings", "seed")]
  hashed = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]
  words = [line["task"], line["name"]]
  words += [f"seed={line['seed']}"] if "seed" in line else ["baseline"]
  return re.sub(r"[^\w.=-]+", "-", "-".join([*words, hashed]))


def line(task: str, metric: str, digest: str, **fields: Any) -> Record:
  """A line, with the machine's description; fields replace what that says."""
  machine = describe_machine()
  whole = {
    **{"task": task, "protocol": PROTOCOL, "metric": metric, "data": digest},
    **{key: machine[key] for key in ("device", "versions", "python", "git")},
    **fields,
  }
  return {"run": identity(whole), **whole}


def faults(
  path: pathlib.Path,
  known: Sequence[Record] = (),
  tasks: Mapping[str, Task] = TASKS,
) -> list[str]:
  """What is wrong with the lines of a file: one text each, with line number and key.

  Args:
    path: of the file.
    known: lines of the results so far, which say the digest of data that no task does.
    tasks: by name.

  Raises:
    UserError: the file cannot be read, or a line is no JSON object.
  """
  numbered = records.numbered(path)
  if not numbered:
    raise UserError(f"{path} has no lines: make some by largevocab-bench run --out")
  found, sound, seen = [], [], {row["task"]: row["data"] for row in known}
  for number, row in numbered:
    own = list(_faults(row, tasks, seen))
    found += [f"{path}:{number}: {fault}" for fault in own]
    if not own:
      seen.setdefault(row["task"], row["data"])
      sound.append((number, row))
  # Of a method with a faulty line nobody knows which seeds it has.
  return found or [f"{path}:{fault}" for fault in _faults_of_methods(sound)]


def method_of(row: Record) -> str:
  """What lines that differ only in the seed have in common."""
  keys = ("task", "name", "method", "settings", "baseline")
  return json.dumps([row.get(key) for key in keys])


def _faults(
  row: Record, tasks: Mapping[str, Task], digests: Mapping[str, str]
) -> Iterator[str]:
  is_baseline, has_diverged = row.get("baseline") is True, "diverged" in row
  expected = KEYS | ({} if is_baseline else TRAINED)
  if has_diverged:
    expected |= {"diverged": int}
  else:
    measured = ("valid", "test") if is_baseline else MEASURED
    expected |= {key: MEASURED[key] for key in measured}
  is_whole = True
  for key, kind in expected.items():
    if key not in row:
      yield f"{key}: is missing"
    elif not _is_of(row[key], kind):
      yield f"{key}: is {row[key]!r:.80}, not {_KINDS[kind]}"
    is_whole = is_whole and _is_of(row.get(key), kind)
  if not is_whole:
    return
  name = row["task"]
  if name not in tasks or not tasks[name].is_entered:
    entered = listed(key for key, task in tasks.items() if task.is_entered)
    yield f"task: is {name!r:.80}, not one of {entered}"
    return
  task = tasks[name]
  for key, wanted in (
    ("protocol", PROTOCOL),
    ("metric", task.metric),
    ("data", task.digest or digests.get(name, row["data"])),
    ("run", identity(row)),
  ):
    if row[key] != wanted:
      yield f"{key}: is {row[key]!r:.80}, and must be {wanted!r}"
  if not is_baseline:
    yield from _faults_of_training(row, task)


def _faults_of_training(row: Record, task: Task) -> Iterator[str]:
  if row["seed"] not in SEEDS:
    yield f"seed: is {row['seed']}, not one of {SEEDS}"
  if row.get("shared", True) is not True:
    yield f"shared: is {row['shared']!r:.80}; it is true, or the line does not have it"
  if row["trials"] < 1:
    yield f"trials: is {row['trials']}, and at least this run was one"
  if "diverged" in row:
    return
  if row["steps"] != task.steps:
    yield f"steps: are {row['steps']}, and the task has {task.steps}"
  points = row["curve"]
  if not all(map(_is_point, points)):
    yield "curve: has points other than [step, value, seconds] of finite numbers"
  elif not points or points[-1][0] != task.steps:
    yield f"curve: does not end at step {task.steps}"


def _faults_of_methods(rows: Sequence[tuple[int, Record]]) -> Iterator[str]:
  of_method: dict[str, list[tuple[int, Record]]] = {}
  for number, row in rows:
    of_method.setdefault(method_of(row), []).append((number, row))
  for members in of_method.values():
    number, first = members[0]
    if first.get("baseline"):
      if len(members) > 1:
        yield f"{members[1][0]}: name: the baseline of line {number} again"
      continue
    seeds = [row["seed"] for _, row in members]
    if missing := [seed for seed in SEEDS if seed not in seeds]:
      name = first["name"]
      yield f"{number}: seed: {name!r:.80} has no line of the seed {missing[0]}"
    for place, (number_of, row) in enumerate(members):
      if row["seed"] in seeds[:place]:
        yield f"{number_of}: seed: {row['seed']} is there twice"
      for key in ("trials", "device", "shared"):
        if row.get(key) != first.get(key):
          yield f"{number_of}: {key}: is not that of line {number}, of the same method"


def _is_of(value: Any, kind: type) -> bool:
  if kind is float:
    return records.is_number(value) and math.isfinite(value)
  return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _is_point(point: Any) -> bool:
  is_triple = isinstance(point, list) and len(point) == 3
  return is_triple and all(_is_of(value, float) for value in point)
