"""The costs of runs: seconds on an idle core, and operations.

Runs of a sweep may share their machine, so that their own seconds are not comparable.
The time of a step is therefore measured separately, on an idle machine, and multiplied
by the number of steps. For each method, experiments/NAME/times.jsonl has a line
{"name": ..., "config": ..., "overrides": ..., "ms_per_step": ..., "full_ms": ...,
"operations_per_step": ..., "device": ...}, which holds for runs of that name with the
same settings of a step.

An idle machine does not always have the same speed. `full_ms` is the time that a step
of the first method on the same data took in turns with the timed method. Times are
scaled as if `full_ms` had been its median for all methods on these data and this
device.

A step takes longer without huge pages, which `page_faults` records. Times on one device
are all with huge pages or all without, whichever most methods have.
"""

import json
import pathlib
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from largevocab.errors import listed
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import data_of, is_seed
from largevocab.tools.tables.markdown import number

SECONDS, OPERATIONS = "idle_seconds", "operations"
# Settings on which the time of a step does not depend.
_NOT_OF_STEPS = re.compile(
  r"(eval|log|checkpoint)\.|"
  r"train\.(?!(batch_size|unroll|accumulate|tied|clip_norm)$)"
)


def joined(rows: Sequence[Record], path: pathlib.Path) -> list[Record]:
  """Records with `idle_seconds` and `operations`, if their method was measured.

  If methods were measured on several devices, there is one 'idle_seconds, DEVICE' for
  each device, and `idle_seconds` is that of the first device of the file; methods that
  were not measured there have none. If there are several lines for a step on one device
  with the same `page_faults`, the last one counts.

  Args:
    rows: records; records without `steps` are not changed.
    path: path of times.jsonl, which may be missing. Lines without `ms_per_step` are
      ignored.
  """
  if not path.exists():
    return list(rows)
  lines = [line for line in records.load(path, ["name"]) if "ms_per_step" in line]
  place = lambda line: (*_method(line), line.get("page_faults"))
  lines = [*{place(line): line for line in lines}.values()]
  times: dict[str, list[Record]] = {}
  for line in _at_one_pace(_of_one_kind(lines, path)):
    times.setdefault(line["name"], []).append(line)
  devices = list(dict.fromkeys(line.get("device", "") for line in lines))
  fitting = lambda row: [t for t in times.get(row["name"], []) if _fits(t, row)]
  return [row | _costs(row, fitting(row), devices) for row in rows]


def _fits(line: Record, row: Record) -> bool:
  """Whether a time belongs to a row's steps; without settings, its name decides."""
  return "config" not in line or _step(line) == _step(row)


def _step(record: Record) -> str:
  """The settings on which the time of a step depends."""
  overrides = {
    key: value
    for key, value in record.get("overrides", {}).items()
    if not (is_seed(key) or _NOT_OF_STEPS.match(key))
  }
  return json.dumps([record.get("config"), overrides], sort_keys=True)


def _method(line: Record) -> tuple[str, str, str]:
  """The step that was timed, and on which device."""
  return line["name"], line.get("device", ""), _step(line)


def _of_one_kind(lines: list[Record], path: pathlib.Path) -> list[Record]:
  """Drops `ms_per_step` from lines whose `page_faults` is not the usual one.

  The usual value is that of most lines on the same device. Methods whose times this
  leaves out are reported on standard error.
  """
  counts: dict[str, Counter[Any]] = {}
  for line in lines:
    counts.setdefault(line.get("device", ""), Counter())[line.get("page_faults")] += 1

  def methods(device: str, *kinds: Any) -> set[tuple[str, str, str]]:
    of_device = (line for line in lines if line.get("device", "") == device)
    return {_method(line) for line in of_device if line.get("page_faults") in kinds}

  # Lines with huge pages, which runs have, are the usual ones if there is one for each
  # method, or for as many methods as without huge pages.
  usual = {
    device: False
    if methods(device, False) == methods(device, *num)
    else max(num, key=lambda kind: (num[kind], kind is False))
    for device, num in counts.items()
  }
  is_usual = lambda line: line.get("page_faults") is usual[line.get("device", "")]
  have_time = {_method(line) for line in lines if is_usual(line)}
  if lost := {line["name"] for line in lines if _method(line) not in have_time}:
    print(
      f"{path}: left out, as `page_faults` differs from most: "
      f"{listed(map(repr, lost))}; time all of them again, with "
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
      file=sys.stderr,
    )
  untimed = lambda line: {k: v for k, v in line.items() if k != "ms_per_step"}
  return [line if is_usual(line) else untimed(line) for line in lines]


def _at_one_pace(lines: list[Record]) -> list[Record]:
  """Scales `ms_per_step` of each line by the median `full_ms` over its own."""
  place = lambda line: (line.get("device", ""), data_of(line["name"]))
  paces: dict[tuple[str, str | None], list[float]] = {}
  is_timed = lambda line: line.keys() >= {"ms_per_step", "full_ms"}
  for line in filter(is_timed, lines):
    paces.setdefault(place(line), []).append(number(line, "full_ms"))
  usual = {here: statistics.median(all_ms) for here, all_ms in paces.items()}
  scaled = lambda line: (
    number(line, "ms_per_step") * usual[place(line)] / number(line, "full_ms")
  )
  return [
    line | {"ms_per_step": scaled(line)} if is_timed(line) else line for line in lines
  ]


def _costs(
  row: Record, times: list[Record], devices: Sequence[str]
) -> dict[str, float]:
  """The costs of a row, given the times of its step and the devices of all times."""
  if "steps" not in row or not times:
    return {}
  steps = number(row, "steps")
  seconds = {
    line.get("device", ""): number(line, "ms_per_step") * steps / 1e3
    for line in times
    if "ms_per_step" in line
  }
  costs = {SECONDS: seconds[devices[0]]} if devices[0] in seconds else {}
  if len(devices) > 1:
    costs |= {f"{SECONDS}, {device}": value for device, value in seconds.items()}
  if "operations_per_step" in times[0]:
    costs[OPERATIONS] = float(number(times[0], "operations_per_step") * steps)
  return costs


def seconds_of(rows: Sequence[Record]) -> list[str]:
  """The keys of idle seconds in records: one per device, if there are several devices.

  >>> seconds_of([{"idle_seconds": 1.0}, {"steps": 3}])
  ['idle_seconds']
  """
  keys = [key for row in rows for key in row if key.startswith(SECONDS)]
  several = [key for key in keys if key != SECONDS]
  return list(dict.fromkeys(several or keys))
