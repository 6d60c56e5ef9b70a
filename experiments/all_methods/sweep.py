"""Every head and every sampler on the same three problems, by steps and by time.

The methods are compared after equal numbers of steps and after equal time, a comparison
that none of the papers has. Each method is set as its page in docs/ advises. None was
tuned for the problem, except that the factored heads have learning rates of their own.
"""

import bisect
import itertools
import json
import math
import pathlib
import statistics
from dataclasses import dataclass, field
from typing import Any

FULL = "full softmax"
EVALUATIONS = 5  # in a run of one round; longer runs have one evaluation a round


@dataclass(frozen=True)
class Problem:
  """A problem on which the methods are compared.

  Attributes:
    config: The config for largevocab.main, where {} stands for the head.
    steps: Number of steps of the comparison at equal numbers of steps.
    steps_per_epoch: Number of steps in an epoch of the training data.
    examples: Number of examples in a step.
    num_samples: The numbers of negatives that SHARED and HASHED stand for.
    overrides: Overrides of all runs.
    own: Overrides of single methods, by name.
  """

  config: str
  steps: int
  steps_per_epoch: int
  examples: int
  num_samples: dict[str, int]
  overrides: dict[str, Any] = field(default_factory=dict)
  own: dict[str, dict[str, Any]] = field(default_factory=dict)

  def length(self, rounds: int) -> dict[str, Any]:
    """Overrides that set the length of a run and the times of its evaluations."""
    between = self.steps if rounds > 1 else self.steps / EVALUATIONS
    every = {"eval.every_epochs": round(between / self.steps_per_epoch, 6)}
    return every | {"train.max_steps": rounds * self.steps}


SHARED, HASHED = "shared", "hashed"  # by the batch; for each example, from hash tables
SLOWER = {"train.lr": 5.0}  # these diverge on text at the rate of a softmax
FACTORED = {"train.head_lr_factor": 1000.0}  # the best of 1, 10, 100 and 1000
OF_TEXT = {
  "negative sampling": SLOWER,
  "ranking": SLOWER,
  "spherical": {"train.head_lr_factor": 5.0},
  "Taylor": {"train.head_lr_factor": 25.0},
}
LSH = ("LSH embedding", "LSH label")
PROBLEMS = {
  "ptb": Problem(
    "configs/ptb.py:{}",
    **{"steps": 500, "steps_per_epoch": 2323, "examples": 400},
    num_samples={SHARED: 512, HASHED: 32},
    own=OF_TEXT | {name: {"head.sampler.codes": 3} for name in LSH},
  ),
  "enwiki8": Problem(
    "configs/enwiki8.py:{},optimizer=sgd",
    **{"steps": 250, "steps_per_epoch": 42_324, "examples": 400},
    num_samples={SHARED: 2048, HASHED: 32},
    overrides={
      **{"model.embed": 128, "model.hidden": 128},
      **{"train.batch_size": 20, "eval.batch_size": 20},
      **{"data.valid_share": 3e-4, "data.test_share": 3e-4},
    },
    own=OF_TEXT,
  ),
  "citeulike_t": Problem(
    "configs/xmlc.py:{},data=citeulike_t",
    **{"steps": 231, "steps_per_epoch": 77, "examples": 256},
    num_samples={SHARED: 2647, HASHED: 265},
    overrides={"train.epochs": 100.0},  # no limit: max_steps ends the runs
    own={"spherical": FACTORED, "Taylor": FACTORED},
  ),
}

OWN = {"head.sampler.per_example": True}
REBUILT = {"head.refresh_every": 50, "head.refresh_growth": 1.2}
# By name: the head, the number of negatives, overrides, and the length of the run on
# each problem as a multiple of the problem's steps. Methods that are faster than the
# full softmax have runs long enough to use at least its time. 0 means that the method
# is not for this problem.
METHODS = {
  FULL: ("full", 0, {}, (1, 1, 1)),
  "uniform": ("sampled/uniform", SHARED, {}, (4, 20, 3)),
  "log-uniform": ("sampled/log_uniform", SHARED, {}, (4, 21, 3)),
  "unigram": ("sampled/unigram", SHARED, {}, (4, 21, 3)),
  "own unigram": ("sampled/unigram", 100, OWN, (1, 6, 2)),
  "bigram": ("sampled/bigram", 100, {}, (1, 7, 0)),
  "pps": ("sampled/pps", SHARED, {}, (4, 16, 3)),
  "pps + batch": ("sampled/pps", SHARED, {"head.exact_batch": True}, (4, 14, 0)),
  "bernoulli": ("sampled/bernoulli", SHARED, {}, (3, 11, 3)),
  "ivf": ("sampled/ivf", SHARED, REBUILT, (3, 11, 3)),
  "block": ("sampled/block", 32, {}, (2, 8, 3)),
  "quadratic": ("sampled/quadratic", 32, {}, (2, 2, 2)),
  "quadratic + prior": ("sampled/quadratic_prior", 32, {}, (2, 2, 2)),
  "quartic": ("sampled/quartic", 32, {}, (2, 2, 2)),
  "ideal sampler": ("sampled/softmax", 32, {}, (2, 2, 2)),
  "LSH embedding": ("sampled/lsh_embedding", HASHED, REBUILT, (3, 7, 1)),
  "LSH label": ("sampled/lsh_label", HASHED, REBUILT, (2, 6, 1)),
  "top k": ("sampled/top_k", 32, {}, (2, 2, 2)),
  "NCE": ("nce/unigram", 100, OWN, (1, 8, 2)),
  "negative sampling": ("negative_sampling/unigram", 32, OWN, (4, 33, 3)),
  "ranking": ("ranking/uniform", 32, OWN | {"head.loss.alpha": "1"}, (4, 25, 3)),
  "BlackOut": ("blackout/unigram", 32, OWN | {"head.sampler.power": 0.5}, (3, 23, 3)),
  "adaptive": ("adaptive", 0, {}, (3, 13, 3)),
  "D-softmax": ("d_softmax", 0, {}, (2, 3, 2)),
  "D-softmax [*]": ("d_softmax", 0, {"head.projected": True}, (3, 3, 2)),
  "hierarchical": ("hierarchical", 0, {"head.binning": "sqrt"}, (3, 4, 2)),
  "Huffman": ("huffman", 0, {}, (4, 29, 2)),
  "spherical": ("spherical/spherical", 0, {}, (3, 32, 3)),
  "Taylor": ("spherical/taylor", 0, {}, (4, 37, 3)),
}


def sweep(add):
  for number, (data, problem) in enumerate(PROBLEMS.items()):
    for name, (head, num_samples, overrides, rounds) in METHODS.items():
      if not rounds[number]:
        continue
      is_named = isinstance(num_samples, str)
      m = problem.num_samples[num_samples] if is_named else num_samples
      negatives = {"head.num_samples": m} if m else {}
      is_planned = head in ("adaptive", "d_softmax")
      plan = {"head.batch_examples": problem.examples} if is_planned else {}
      overrides = {
        **problem.overrides,
        **problem.length(rounds[number]),
        "log.monitor_every_steps": 0,
        **(negatives | plan | overrides),
        **problem.own.get(name, {}),
      }
      add(problem.config.format(head), overrides, name=f"{data}: {name}")


def at_the_end(add, data, more, length, seeds):
  """Adds runs of all methods of a problem, with this length and each of the seeds.

  Args:
    add: The function that adds a run.
    data: The name of the problem.
    more: Further methods, {name: (head, overrides)}.
    length: Overrides that set the length of the runs.
    seeds: The seeds.
  """
  config = PROBLEMS[data].config
  added = {name: (config.format(head), own) for name, (head, own) in more.items()}
  for seed in seeds:
    for name, (config, own) in (settings(data) | added).items():
      add(config, {**own, **length, "train.seed": seed}, name=name)


def settings(data):
  """{method: (config, overrides)} of a problem, without numbers of steps and rates.

  Learning rates are left out because they are searched.
  """
  found = {}

  def add(config, overrides, name):
    problem, _, method = name.partition(": ")
    if problem == data:
      del overrides["train.max_steps"]
      overrides.pop("train.lr", None)
      found[method] = (config, overrides)

  sweep(add)
  return found


def metrics():
  scores = [f"{score}_{when}" for score in SCORES for when in ("by_steps", "by_time")]
  return [*scores, "time_share", "step_ms", "seconds_for_steps"]


def comparison():
  return {"to": FULL, "metric": ["ppl_by_time", "p@1_by_time"]}


SCORES = {"ppl": "curve", "p@1": "curve_p@1"}


def derived(record, records):
  """Validation scores after the steps of the comparison, and at equal time.

  The scores at equal time are those after as many steps as fit into the time that the
  full softmax takes for the steps of the comparison, by times.jsonl. A run that ends
  earlier is scored at its end; `time_share` is the share of that time that it had.
  Counted baselines have the same scores at any time.
  """
  if record.get("baseline"):
    score = "p@1" if "valid_p@1" in record else "ppl"
    times = ("by_steps", "by_time")
    return {f"{score}_{when}": record[f"valid_{score}"] for when in times}
  data = record["name"].partition(": ")[0]
  steps = PROBLEMS[data].steps
  own, full = pace(record["name"]), pace(f"{data}: {FULL}")
  if own is None or full is None:
    return {}
  seconds = own.seconds(steps)
  in_time, last = own.steps(full.seconds(steps)), record["steps"]
  results = {
    **{"step_ms": own.step_ms, "seconds_for_steps": seconds},
    "time_share": min(1.0, last / in_time),
  }
  for score, curve in SCORES.items():
    if curve not in record or (score == "ppl" and "curve_p@1" in record):
      continue
    for when, step in (("by_steps", steps), ("by_time", min(in_time, last))):
      value = at(record[curve], step)
      if value is not None:
        results[f"{score}_{when}"] = math.exp(value) if score == "ppl" else value
  return results


@dataclass(frozen=True)
class Pace:
  """The speed of a method.

  Attributes:
    step_ms: Time of a step, in ms.
    refresh_ms: Time of a rebuild of the head's statistics, in ms.
    refresh_steps: Numbers of steps after which there is a rebuild.
  """

  step_ms: float
  refresh_ms: float
  refresh_steps: list[int]

  def seconds(self, steps):
    """The time of these steps with their rebuilds.

    >>> Pace(10, 100, [1, 2, 4]).seconds(3)
    0.23
    """
    rebuilds = bisect.bisect_right(self.refresh_steps, steps)
    return (steps * self.step_ms + rebuilds * self.refresh_ms) / 1e3

  def steps(self, seconds):
    """The number of steps that fit into this time, with their rebuilds.

    >>> Pace(10, 100, [1, 2, 4]).steps(0.23)
    3.0
    """
    places = [0, *self.refresh_steps, math.inf]
    for rebuilds, (place, after) in enumerate(itertools.pairwise(places)):
      steps = (1e3 * seconds - rebuilds * self.refresh_ms) / self.step_ms
      if steps < after:
        return max(steps, float(place))  # `place` if a rebuild is under way
    raise AssertionError("no number is above infinity")


def pace(name):
  """The `Pace` of a run, or None if the run was not timed."""
  if name not in TIMES:
    return None
  row, data = TIMES[name], name.partition(": ")[0]
  rows = [row for key, row in TIMES.items() if key.startswith(f"{data}: ")]
  full_ms = statistics.median(row["full_ms"] for row in rows)
  return Pace(row["ratio"] * full_ms, row["refresh_ms"], row["refresh_steps"])


def read_times():
  """The last line of each name in times.jsonl, for the first device in the file."""
  path = pathlib.Path(__file__).with_name("times.jsonl")
  lines = path.read_text().splitlines() if path.exists() else []
  rows = [*map(json.loads, lines)]
  return {row["name"]: row for row in rows if row["device"] == rows[0]["device"]}


TIMES = read_times()


def at(curve, step):
  """The value of a curve [[step, value, seconds], ...] at a step.

  Values between two points are interpolated linearly. Outside the curve it is None.

  >>> at([[0, 2.0, 0], [10, 1.0, 30]], 5)
  1.5
  """
  after = bisect.bisect_left([point[0] for point in curve], step)
  if after == len(curve) or (after == 0 and curve[0][0] > step):
    return None
  if curve[after][0] == step:
    return curve[after][1]
  (left, value, _), (right, then, _) = curve[after - 1 : after + 1]
  return value + (step - left) / (right - left) * (then - value)


def figures():
  return [
    {
      **{"file": f"front_{data}", "x": "seconds_for_steps", "y": score, "log": "x"},
      **{"where": {"data": data}, "front": best, **ends},
    }
    for data, score, best, ends in (
      ("ptb", "ppl_by_steps", "least", {"y_max": 470}),
      ("enwiki8", "ppl_by_steps", "least", {"y_max": 2100}),
      ("citeulike_t", "p@1_by_steps", "most", {"y_min": 0.35}),
    )
  ]
