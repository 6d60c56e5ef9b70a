"""The table of the benchmark, made from the lines of all entries.

A row is a method, with its runs of all seeds, or a baseline. The rows of a task are in
order of the median of the metric on test data, the best first. In the median of a
metric, a run that diverged counts as the worst.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

from largevocab.bench.lines import method_of
from largevocab.bench.tasks import TASKS, Task
from largevocab.tools.sweeps.records import Record, is_loss
from largevocab.tools.tables.markdown import NOTHING, of_columns, short, summary
from largevocab.tools.tables.results_table import Row
from largevocab.tools.tables.significance import is_better, is_perplexity, of_pairs

WITHIN = 0.05  # relative distance to the full softmax's metric on validation data
FULL = "full"  # the method that is the full softmax
NEVER = "never"


def tables(rows: Sequence[Record], tasks: Mapping[str, Task] = TASKS) -> str:
  """A heading and a Markdown table for each task with lines."""
  of_task: dict[str, list[Record]] = {}
  for row in rows:
    of_task.setdefault(row["task"], []).append(row)
  shown = [name for name in tasks if name in of_task]
  return "\n\n".join(
    f"### {tasks[name].title} (`{name}`)\n\n{table(of_task[name], tasks[name].metric)}"
    for name in shown
  )


def table(rows: Sequence[Record], metric: str) -> str:
  """The table of one task."""
  of_method: dict[str, list[Record]] = {}
  for row in rows:
    of_method.setdefault(method_of(row), []).append(row)
  methods = list(of_method.values())
  goal = level(methods, metric)
  best_first = 1 if is_loss(metric) else -1

  def rank(members: list[Record]) -> float:
    return best_first * _quality(members, "test", metric)

  methods.sort(key=rank)
  lines = [Row(members[0]["name"], members) for members in methods]
  return of_columns(
    {
      "method": [line.title for line in lines],
      "code": [_code(members[0]) for members in methods],
      "seeds": [line.seeds for line in lines],
      f"valid {metric}": [_shown(members, "valid", metric) for members in methods],
      f"test {metric}": [_shown(members, "test", metric) for members in methods],
      "95 % interval": [
        interval([_quality([row], "test", metric) for row in members], metric)
        for members in methods
      ],
      f"seconds to within {WITHIN:.0%} of {FULL}".replace("%", " %"): [
        _reached(members, goal, metric) for members in methods
      ],
      "seconds": [
        _median(members, "seconds") if _is_timed(members) else NOTHING
        for members in methods
      ],
      "peak MiB": [_median(members, "peak_mib") for members in methods],
      "trials": [str(members[0].get("trials", NOTHING)) for members in methods],
      "device": [members[0]["device"] for members in methods],
      "settings": [_settings(members[0]) for members in methods],
    }
  )


def level(methods: Sequence[Sequence[Record]], metric: str) -> float | None:
  """The value on validation data that counts as within 5 % of the full softmax.

  The full softmax is the method `full` with the best median at the end. The value is
  None if there is no such method, or if most of its runs diverged.

  >>> level([[{"method": "full", "valid": 100.0}]], "ppl")
  105.0
  >>> level([[{"method": "full", "valid": 0.5}], [{"method": "nce/pps"}]], "p@1")
  0.475
  >>> level([[{"method": "full", "diverged": 7}]], "p@1") is None
  True
  """
  found = [_quality(of, "valid", metric) for of in methods if _is_full(of)]
  medians = [median for median in found if math.isfinite(median)]
  if not medians:
    return None
  if is_loss(metric):
    return min(medians) * (1 + WITHIN)
  return max(medians) * (1 - WITHIN)


def seconds_to(row: Record, goal: float, metric: str) -> float:
  """Seconds of training until all further evaluations reach a level.

  This is the time of the first of these evaluations; inf if the last one did not reach
  the level.

  >>> seconds_to({"curve": [[1, 9.0, 10.0], [2, 5.0, 20.0]]}, 5.0, "ppl")
  20.0
  >>> seconds_to({"curve": [[1, 4.0, 10.0], [2, 6.0, 20.0], [3, 5, 30.0]]}, 5.0, "ppl")
  30.0
  """
  since = math.inf
  for _, value, seconds in row.get("curve", []):
    is_near = value == goal or is_better(value, goal, metric)
    since = min(since, seconds) if is_near else math.inf
  return since


def interval(values: Sequence[float], metric: str) -> str:
  """The 95 % interval of the mean over seeds, by Student's t.

  For a perplexity, it is computed from the logarithms. '-' if there are fewer than two
  values, or if one is infinite.

  >>> interval([0.49, 0.5, 0.51], "p@1"), interval([0.5], "p@1")
  ('0.4752 to 0.5248', '-')
  >>> interval([90.0, 95.0, math.inf], "ppl")
  '-'
  """
  if len(values) < 2 or not all(map(math.isfinite, values)):
    return NOTHING
  is_log = is_perplexity(metric)
  mean, half = of_pairs([math.log(value) for value in values] if is_log else values)
  assert half is not None  # there are two values or more
  ends = [mean - half, mean + half]
  return " to ".join(summary([math.exp(end) if is_log else end]) for end in ends)


def _is_timed(members: Sequence[Record]) -> bool:
  """Whether each run is known to have had its machine to itself.

  >>> _is_timed([{"load": 0.1}]), _is_timed([{"load": 0.1}, {}])
  (True, False)
  >>> _is_timed([{"load": 0.1, "shared": True}])
  False
  """
  return all("load" in row and "shared" not in row for row in members)


def _is_full(members: Sequence[Record]) -> bool:
  return members[0].get("method") == FULL


def _settings(first: Record) -> str:
  """What an entrant chose, and the environment variables that change the speed.

  >>> _settings({"settings": ["train.lr=1"], "environment": {"OMP_NUM_THREADS": "2"}})
  '`train.lr=1` `OMP_NUM_THREADS=2`'
  """
  words = sorted(first.get("settings", ()))
  words += [f"{name}={value}" for name, value in first.get("environment", {}).items()]
  return " ".join(f"`{word}`" for word in words).replace("|", r"\|") or NOTHING


def _code(first: Record) -> str:
  """The packages of a method, and the revision of this repository.

  The packages are a link to the code if the code is elsewhere.

  >>> _code({"code": "torch 2", "code_url": "https://example.org"}), _code({})
  ('[torch 2](https://example.org)', '-')
  >>> _code({"code": "largevocab 1", "git": "0123456789abcdef"})
  'largevocab 1, 0123456'
  """
  if "code" not in first:
    return NOTHING
  code = first["code"]
  code = f"[{code}]({first['code_url']})" if "code_url" in first else code
  return ", ".join(filter(None, [code, first.get("git", "")[:7]]))


def _quality(members: Sequence[Record], key: str, metric: str) -> float:
  """The median of a metric, where a run that diverged has the worst value."""
  worst = math.inf if is_loss(metric) else -math.inf
  return statistics.median(row.get(key, worst) for row in members)


def _shown(members: Sequence[Record], key: str, metric: str) -> str:
  median = _quality(members, key, metric)
  return summary([median]) if math.isfinite(median) else NOTHING


def _median(members: Sequence[Record], key: str) -> str:
  values = [row[key] for row in members if key in row]
  return short([statistics.median(values)]) if values else NOTHING


def _reached(members: Sequence[Record], goal: float | None, metric: str) -> str:
  if goal is None or not _is_timed(members):
    return NOTHING
  median = statistics.median(seconds_to(row, goal, metric) for row in members)
  return short([median]) if math.isfinite(median) else NEVER
