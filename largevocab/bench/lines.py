"""Lines of results, one JSON object per run, and checks of the lines in a file.

Every line has the keys of `KEYS`, and the keys of `TRAINED` unless `baseline` is true.
If the loss of a run was not finite, its line has `diverged`, the step, in place of the
keys of `MEASURED`. A line with `shared` comes from a run that shared its machine. For a
line without `load`, it is not known whether the machine was shared. The seconds of both
kinds of lines cannot be compared with others. Every line is also a valid line of
`tools.sweeps.records`, which writes the files.
"""

import hashlib
import itertools
import json
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from largevocab import baselines
from largevocab.bench import load
from largevocab.bench.tasks import (
  FREE,
  OF_ADAPTER,
  PROTOCOL,
  SEEDS,
  TASKS,
  Task,
  is_method,
)
from largevocab.errors import UserError, listed, nearest
from largevocab.provenance import describe_machine
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import KINDS, Record
from largevocab.tools.tables.significance import is_perplexity

# Keys of all lines.
KEYS: dict[str, type] = {
  **dict.fromkeys(("run", "task", "name", "metric", "data", "device", "python"), str),
  **{"protocol": int, "versions": dict},
}
# Further keys of runs with a seed.
TRAINED: dict[str, type] = {
  **{"method": str, "code": str, "git": str, "settings": list},
  **{"seed": int, "trials": int, "peak_mib": float},
}
# Further keys of runs that did not diverge; a baseline has only the keys of `METRICS`.
METRICS: dict[str, type] = {"valid": float, "test": float}
MEASURED: dict[str, type] = {**METRICS, "steps": int, "seconds": float, "curve": list}
DIVERGED: dict[str, type] = {"diverged": int}
# Keys of some lines: the revision of the checkout (`git`, which is in all lines of runs
# with a seed) and whether it had changes; the number of cores that other programs kept
# busy before or during the run, whichever is larger, and whether the machine was
# shared; where the code of an adapter is; environment variables that change the speed;
# and whether nothing was trained.
OPTIONAL: dict[str, type] = {
  **{"git": str, "git_dirty": bool, "load": float, "shared": bool},
  **{"code_url": str, "environment": dict, "baseline": bool},
}
COUNTED = {name: f"{name}, counted" for name in baselines.NAMES}
OURS = "largevocab.bench.adapters."  # modules of adapters of this package
MACHINE = ("device", "versions", "python")  # keys of `describe_machine`
_SHOWN = ("name", "code", "git", "device")  # texts in cells of a table
# Keys with the same value for all seeds of a method. Some are known before a run.
_METHOD = ("method", "settings")
KNOWN_BEFORE = (*_METHOD, "code_url", "trials", "device", "git", "environment")
_SAME = (*KNOWN_BEFORE, "code", "versions")
# Markdown, since texts are put into tables.
_MARKUP = re.compile(r"[|<>`*~&\\]|\]\(|://|(?<!\w)_|_(?!\w)")
_URL = re.compile(r"https?://[^\s|()<>\[\]]+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9a-f]{40}")
ROUNDED = 1e-4  # relative tolerance; numbers of a curve may have five digits
_KINDS = {**KINDS, float: "a finite number", list: "a list"}


def identity(line: Mapping[str, Any]) -> str:
  """The id of a run, which is readable, and unique by a hash of what the run is.

  >>> identity({"task": "ptb", "name": "full", "method": "full", "seed": 0})
  'ptb-full-seed=0-087d4970'
  """
  own = [*_of_method(line), line.get("seed")]
  hashed = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]
  words = [line["task"], line["name"]]
  words += [f"seed={line['seed']}"] if "seed" in line else ["baseline"]
  return re.sub(r"[^\w.=-]+", "-", "-".join([*words, hashed]))


def line(task: str, metric: str, digest: str, **fields: Any) -> Record:
  """Makes a line with a description of the machine, which `fields` may override."""
  machine = describe_machine()
  whole = {
    **{"task": task, "protocol": PROTOCOL, "metric": metric, "data": digest},
    **{key: machine[key] for key in MACHINE},
    **fields,
  }
  return {"run": identity(whole), **whole}


def faults(
  numbered: Sequence[tuple[int, Record]],
  known: Sequence[Record] = (),
  tasks: Mapping[str, Task] = TASKS,
) -> list[str]:
  """The faults in the lines of a file: one text each, with line number and key.

  Args:
    numbered: the lines, with their numbers.
    known: lines of the results so far, with which the new lines must agree.
    tasks: the tasks by name.
  """
  of_now = [row for row in known if not _is_old(row)]
  return _faults_of_lines(numbered, tasks, of_now)


def faults_of_run(row: Record, task: Task) -> list[str]:
  """The faults of one line, which are known before the other seeds have run."""
  return list(_faults(row, {row["task"]: task}, {}))


def published(path: pathlib.Path, tasks: Mapping[str, Task] = TASKS) -> list[Record]:
  """The lines of a file of results, except lines of earlier versions of the protocol.

  Raises:
    UserError: there is no file, or a line has a fault; the message names the first.
  """
  numbered = records.numbered(path)
  of_now = [(number, row) for number, row in numbered if not _is_old(row)]
  if found := _faults_of_lines(of_now, tasks):
    raise UserError(f"{path}:{found[0]}; correct the line, or remove it")
  return [row for _, row in of_now]


def _is_old(row: Record) -> bool:
  """Whether a line comes from an earlier version of the protocol."""
  return records.is_of(row.get("protocol"), int) and row["protocol"] < PROTOCOL


def method_of(row: Record) -> str:
  """The method of a line, as a key that lines with other seeds share."""
  return json.dumps([*_of_method(row), row.get("baseline")])


def shared_by_seeds(row: Mapping[str, Any], key: str) -> Any:
  """A value that is the same for all seeds; the order of settings does not matter."""
  value = row.get(key)
  return sorted(value) if key == "settings" and value is not None else value


def is_plain(text: str) -> bool:
  """Whether a text can be put into a cell of a table as it is.

  >>> is_plain("nce/pps, 512 negatives"), is_plain("a | b"), is_plain("tab\\t")
  (True, False, False)
  >>> is_plain("cutoffs=[5, 9]"), is_plain("[a](http://b)"), is_plain("<b>")
  (True, False, False)
  >>> is_plain("log_uniform"), is_plain("_a_"), is_plain("a "), is_plain("&amp;")
  (True, False, False, False)
  """
  is_trimmed = text == text.strip()
  return is_trimmed and text.isprintable() and not _MARKUP.search(text)


def _is_cell_of_code(text: str) -> bool:
  """Whether a text can be put into a cell of a table between backticks."""
  return text.isprintable() and "`" not in text


def needs_url(method: str) -> bool:
  """Whether a method needs the address of its code, which is not in this package.

  >>> needs_url("my_code:MyMethod"), needs_url("sampled/pps")
  (True, False)
  >>> needs_url("largevocab.bench.adapters.torch_adaptive:TorchAdaptive")
  False
  """
  return ":" in method and not method.startswith(OURS)


def is_url(text: str) -> bool:
  """Whether a text is a web address that Markdown accepts as it is.

  >>> is_url("https://example.org/code/tree/v1"), is_url("example.org"), is_url("http://)")
  (True, False, False)
  """
  return bool(_URL.fullmatch(text))


def _of_method(row: Mapping[str, Any]) -> list[Any]:
  """The values that define a method; the address of its code may be corrected."""
  own = [shared_by_seeds(row, key) for key in _METHOD]
  return [row.get("task"), row.get("name"), *own]


def _faults_of_lines(
  numbered: Sequence[tuple[int, Record]],
  tasks: Mapping[str, Task],
  known: Sequence[Record] = (),
) -> list[str]:
  """The faults of numbered lines, and of methods if all lines are valid."""
  found, sound = [], []
  firsts: dict[str, dict[str, Any]] = {}  # what the lines of a task have in common
  for row in known:
    firsts[row["task"]] = _common(row) | firsts.get(row["task"], {})
  for number, row in numbered:
    own = list(_faults(row, tasks, firsts))
    found += [f"{number}: {fault}" for fault in own]
    if not own:
      firsts[row["task"]] = _common(row) | firsts.get(row["task"], {})
      sound.append((number, row))
  # If a line of a method has a fault, it is not known which seeds the method has.
  return found or list(_faults_of_methods(sound, known))


def _common(row: Record) -> dict[str, Any]:
  """The values of a line that all lines of a task must share.

  They are the digest of the data and, if the line has a curve, the steps after which
  the validation data are evaluated.
  """
  steps = [step for step, *_ in row.get("curve", ())]
  return {"data": row["data"]} | ({"steps": steps} if steps else {})


def _faults(
  row: Record, tasks: Mapping[str, Task], firsts: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
  if found := list(_faults_of_keys(row)):
    yield from found
    return
  name = row["task"]
  if name not in tasks or not tasks[name].is_entered:
    entered = listed(key for key, task in tasks.items() if task.is_entered)
    yield f"task: is {name!r:.80}, not one of {entered}"
    return
  task, common = tasks[name], firsts.get(name, {})
  for key, wanted in (
    ("protocol", PROTOCOL),
    ("metric", task.metric),
    ("data", task.digest or common.get("data", row["data"])),
    ("run", identity(row)),
  ):
    if row[key] != wanted:
      yield f"{key}: is {row[key]!r:.80}, but must be {wanted!r}"
  if not _DIGEST.fullmatch(row["data"]):
    yield f"data: is {row['data']!r:.80}, but must be sha256: and 64 digits"
  for key in _SHOWN:
    if not is_plain(row.get(key, "")):
      yield f"{key}: is {row[key]!r:.80}, which cannot go into a table"
  for name, value in row.get("environment", {}).items():
    if not (isinstance(value, str) and _is_cell_of_code(f"{name}={value}")):
      yield f"environment: {name!r:.80} is {value!r:.80}, which cannot go into a table"
  for key in ("name", "code", "device"):
    if not row.get(key, "-").strip():
      yield f"{key}: is {row[key]!r:.80}, but must not be empty"
  if row.get("git_dirty"):
    yield "git_dirty: the checkout had changes; commit or undo them, and repeat the run"
  for key in METRICS:
    if key in row and not _is_possible(row[key], task.metric):
      low, high = _range(task.metric)
      yield f"{key}: is {row[key]}, but {task.metric} must be from {low:g} to {high:g}"
  if not row.get("baseline"):
    yield from _faults_of_training(row, task, common)
  elif row["name"] not in COUNTED.values():
    known = listed(map(repr, COUNTED.values()))
    yield f"name: is {row['name']!r:.80}, not one of the baselines {known}"


def _faults_of_keys(row: Record) -> Iterator[str]:
  """Faults of keys: missing keys, wrong types, and keys that a line cannot have."""
  if row.get("baseline") is True:
    what, wanted = "a baseline", KEYS | METRICS
  elif "diverged" in row:
    what, wanted = "a run that diverged", KEYS | TRAINED | DIVERGED
  else:
    what, wanted = "a run", KEYS | TRAINED | MEASURED
  known = KEYS | TRAINED | MEASURED | DIVERGED | OPTIONAL
  for key in row:
    if key not in known:
      yield f"{key}: lines have no such key{nearest(key, known)}"
  for key, kind in known.items():
    if key in wanted and key not in row:
      yield f"{key}: is missing"
    elif key in row and key not in wanted | OPTIONAL:
      yield f"{key}: {what} has none; leave it out"
    elif key in row and not records.is_of(row[key], kind):
      yield f"{key}: is {row[key]!r:.80}, not {_KINDS[kind]}"
  settings, points = row.get("settings"), row.get("curve")
  if isinstance(settings, list) and not all(
    records.is_of(word, str) for word in settings
  ):
    yield "settings: must all be strings KEY=VALUE"
  if isinstance(points, list) and not all(
    records.is_point(point, finite=True) for point in points
  ):
    yield "curve: has points other than [step, value, seconds] of finite numbers"


def _faults_of_training(
  row: Record, task: Task, common: Mapping[str, Any]
) -> Iterator[str]:
  if row["seed"] not in SEEDS:
    yield f"seed: is {row['seed']}, not one of {SEEDS}"
  if not _REVISION.fullmatch(row["git"]):
    yield (
      f"git: is {row['git']!r:.80}, not a revision of 40 digits; run it in a checkout "
      "of the repository"
    )
  if row.get("shared", True) is not True:
    yield f"shared: is {row['shared']!r:.80}, but must be true or absent"
  if row.get("load", 0.0) < 0:
    yield f"load: is {row['load']}, but must be at least 0"
  if row.get("load", 0.0) > load.MOST and "shared" not in row:
    yield f"load: other programs kept {row['load']} cores busy; set `shared`"
  if ":" not in row["method"] and not is_method(row["method"]):
    yield f"method: is {row['method']!r:.80}, not a path of a head such as sampled/pps"
  if needs_url(row["method"]) and "code_url" not in row:
    yield "code_url: is missing; give the web address of the adapter's code"
  elif "code_url" in row and not needs_url(row["method"]):
    yield f"code_url: leave it out; {row['method']!r:.80} is part of this package"
  elif "code_url" in row and not is_url(row["code_url"]):
    yield f"code_url: is {row['code_url']!r:.80}, not https://..."
  yield from _faults_of_settings(row)
  if row["trials"] < 1:
    yield f"trials: is {row['trials']}, but must be at least 1, for this run"
  for key in ("peak_mib", "seconds"):
    if row.get(key, 1.0) <= 0:
      yield f"{key}: is {row[key]}, but must be above 0"
  if not 0 <= row.get("diverged", 0) <= task.steps:
    yield f"diverged: is {row['diverged']}, not a step from 0 to {task.steps}"
  if "diverged" in row:
    return
  if row["steps"] != task.steps:
    yield f"steps: is {row['steps']}, but the task has {task.steps}"
  yield from _faults_of_curve(row, task, common.get("steps"))


def _faults_of_settings(row: Record) -> Iterator[str]:
  free = OF_ADAPTER if ":" in row["method"] else FREE
  keys = []
  for word in row["settings"]:
    key, equals, _ = word.partition("=")
    if not equals or not free.fullmatch(key):
      yield f"settings: {word!r:.80} is not KEY=VALUE of a key that you may choose"
    elif not _is_cell_of_code(word):
      yield f"settings: {word!r:.80} cannot go into a table"
    elif key in keys:
      yield f"settings: {key} is given twice"
    keys.append(key)


def _faults_of_curve(
  row: Record, task: Task, steps: Sequence[int] | None
) -> Iterator[str]:
  """Faults of the curve; `steps` are the steps of evaluations in other lines."""
  points = row["curve"]
  if not points or points[-1][0] != task.steps:
    yield f"curve: does not end at step {task.steps}"
    return
  for before, after in itertools.pairwise([[0, 0.0, 0.0], *points]):
    if not (before[0] < after[0] and before[2] < after[2]):
      yield f"curve: its steps or seconds do not increase to {after}"
      break
  if steps not in (None, [step for step, *_ in points]):
    yield "curve: its steps differ from those of other lines of the task"
  if not all(_is_possible(value, task.metric) for _, value, _ in points):
    yield f"curve: has values that {task.metric} cannot have"
  for key, last in (("valid", points[-1][1]), ("seconds", points[-1][2])):
    if not math.isclose(last, row[key], rel_tol=ROUNDED):
      yield f"curve: ends with {last}, but {key} is {row[key]}"


def _faults_of_methods(
  rows: Sequence[tuple[int, Record]], known: Sequence[Record]
) -> Iterator[str]:
  of_name: dict[tuple[str, str], list[tuple[int, Record]]] = {}
  for number, row in rows:
    of_name.setdefault((row["task"], row["name"]), []).append((number, row))
  named = {(row["task"], row["name"]): method_of(row) for row in known}
  for key_of_name, members in of_name.items():
    number, first = members[0]
    name, method = first["name"], method_of(first)
    if named.get(key_of_name, method) != method:
      yield f"{number}: name: {name!r:.80} names another method; give another --name"
    if first.get("baseline"):
      if len(members) > 1:
        yield f"{members[1][0]}: name: repeats the baseline of line {number}"
      continue
    seeds = [row["seed"] for _, row in members]
    values = [[value for _, value, _ in row.get("curve", ())] for _, row in members]
    if missing := [seed for seed in SEEDS if seed not in seeds]:
      yield f"{number}: seed: {name!r:.80} has no line for seed {missing[0]}"
    for place, (number_of, row) in enumerate(members):
      if row["seed"] in seeds[:place]:
        yield f"{number_of}: seed: {row['seed']} occurs twice"
      elif values[place] and values[place] in values[:place]:
        yield f"{number_of}: curve: has the values of another seed; is the seed used?"
      for key in _SAME:
        if shared_by_seeds(row, key) != shared_by_seeds(first, key):
          yield f"{number_of}: {key}: differs from line {number}, of the same name"


def _is_possible(value: float, metric: str) -> bool:
  low, high = _range(metric)
  return low <= value <= high


def _range(metric: str) -> tuple[float, float]:
  """The smallest and the largest value that a metric can have."""
  return (1.0, math.inf) if is_perplexity(metric) else (0.0, 1.0)
