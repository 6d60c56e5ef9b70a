"""Makes the table of docs/goals.md: goals for speed, and measurements.

  python -m benchmarks.goals                       # print it
  python -m benchmarks.goals --update docs/goals.md
  python -m benchmarks.goals --check docs/goals.md # exit 1 if it is stale

The table stands between the lines <!-- goals --> and <!-- /goals -->. For several
sizes, it shows the worst and the best value, and the worst decides. A goal without
results is open.
"""

import pathlib
import re
import sys
from dataclasses import dataclass

from largevocab import atomic
from largevocab.errors import UserError
from largevocab.tools import entry, tabulate
from largevocab.tools.sweeps import records
from largevocab.tools.tables import markdown as tables

GPU = "gpu_speed"  # some of its goals are open, because only part of it has been run


@dataclass(frozen=True)
class Goal:
  """A bound on a ratio, or a part of it.

  Attributes:
    name: G1 and so on; parts of a goal have the same name.
    what: what is compared, as `above / below`.
    experiment, pattern: an experiment, and a regular expression that matches the
      beginning of the names of its results for this goal. "": no results yet.
    at_least, at_most: the bound.
    metric: field of the results that is bounded.
    remark: text for a goal without results.
  """

  name: str
  what: str
  experiment: str = ""
  pattern: str = ""
  at_least: float | None = None
  at_most: float | None = None
  metric: str = "ratio"
  remark: str = "open: `scripts/on_gpu.sh` on a GPU"

  @property
  def bound(self) -> str:
    """
    >>> Goal("G4", "", at_most=1.3).bound
    'at most 1.3'
    """
    how, value = ("least", self.at_least) if self.at_least else ("most", self.at_most)
    return f"at {how} {value:,.4g}" if value else "-"

  def is_met(self, values: list[float]) -> bool:
    """Whether all values are within the bound.

    >>> Goal("G4", "", at_most=1.3).is_met([1.1, 1.4])
    False
    """
    low, high = self.at_least or 0.0, self.at_most or float("inf")
    return low <= min(values) and max(values) <= high


SAMPLED = "sampled step, {}: {} / rows"
EXACT = "exact softmax: {} / chunks, V=100,000"
COMMON = r"cutoffs \(20000, 60000\)"
GOALS = [
  Goal(
    "G1",
    "`tf.nn.sampled_softmax_loss` / ours, SGD",
    *("peers", SAMPLED.format("sgd", "tensorflow")),
    at_least=1.3,
  ),
  Goal(
    "G1",
    "`tf.nn.nce_loss` / ours, SGD",
    *("peers", "nce step, sgd: tensorflow / rows"),
    at_least=1.3,
  ),
  Goal(
    "G2",
    "torch `Embedding(sparse=True)` / sampled step, SGD and SparseAdam",
    *("peers", SAMPLED.format("(sgd|adam)", "torch")),
    at_least=2.0,
  ),
  Goal(
    "G3",
    "Keras' Adam / lazy Adam, 800,000 classes",
    *("peers", SAMPLED.format("adam", "tensorflow") + ", V=800,000"),
    at_least=50.0,
  ),
  Goal(
    "G3",
    "Keras' Adam / lazy Adam, 100,000 classes",
    *("peers", SAMPLED.format("adam", "tensorflow") + ", V=100,000"),
    at_least=10.0,
  ),
  Goal(
    "G3",
    "`jax.grad` and optax' Adam / lazy Adam, 800,000 classes, 512 examples",
    *("peers", SAMPLED.format("adam", r"jax \+ optax") + r", .*N=512$"),
    at_least=50.0,
  ),
  Goal(
    "G3",
    "the same with 2,560 examples",
    *("peers", SAMPLED.format("adam", r"jax \+ optax") + r", .*N=2560$"),
    at_least=15.0,
  ),
  Goal(
    "G4",
    "sampled step, a million classes / ten thousand",
    *("bench", "sampled step, V=1,000,000 / V=10,000"),
    at_most=1.3,
  ),
  Goal(
    "G5",
    "exact softmax in chunks / all logits, time",
    *("bench", "exact softmax in chunks"),
    at_most=1 / 1.2,
  ),
  Goal(
    "G5",
    "exact softmax in chunks / all logits, temporary memory",
    *("bench", "exact softmax in chunks"),
    at_most=0.125,
    metric="memory_ratio",
  ),
  Goal(
    "G6",
    "torch / exact softmax, both float32",
    *("peers", EXACT.format("torch cross_entropy, float32")),
    at_least=1.7,
  ),
  Goal(
    "G6",
    "torch in bfloat16 / exact softmax in float32",
    *("peers", EXACT.format("torch cross_entropy, bfloat16")),
    at_least=1.0,
  ),
  Goal(
    "G6",
    "TensorFlow / exact softmax, both float32",
    *("peers", EXACT.format("tensorflow, float32")),
    at_least=0.95,
  ),
  Goal(
    "G6",
    "torch `linear_cross_entropy` / exact softmax, both float32",
    *("peers", EXACT.format("torch linear_cross_entropy, float32")),
    at_least=8.0,
  ),
  Goal(
    "G7",
    "on a GPU: exact softmax in chunks / all logits",
    *(GPU, "exact softmax in chunks / all logits"),
    at_most=1.1,
  ),
  Goal(
    "G7",
    "the same, temporary memory",
    *(GPU, "exact softmax in chunks / all logits"),
    at_most=0.1,
    metric="memory_ratio",
  ),
  Goal(
    "G8",
    "gradient, then optax / step of `full`",
    *("peers", "exact step, sgd"),
    at_least=1.0,
  ),
  Goal(
    "G8",
    "step of `full`, a million classes, D = 128: temporary memory, MB",
    *("compiled", "(v5e|h100): full, V=1,048,576"),
    at_most=64.0,
    metric="temporary_mb",
  ),
  Goal(
    "G9",
    "on a GPU: `jax.grad` and optax' Adam / sampled step",
    *(GPU, "sampled step, adam: jax"),
    at_least=10.0,
  ),
  Goal(
    "G10",
    "torch's adaptive softmax / ours, same cutoffs",
    *("adaptive_speed", f"torch / adaptive, {COMMON}"),
    at_least=1.5,
  ),
  Goal(
    "G10",
    "torch's with common cutoffs / ours with planned ones",
    *("adaptive_speed", f"torch, {COMMON} / adaptive, planned, V"),
    at_least=2.0,
  ),
  Goal(
    "G10",
    "ours with common cutoffs / ours with planned ones",
    *("adaptive_speed", f"adaptive, {COMMON} / adaptive, planned, V"),
    at_least=2.0,
  ),
  Goal(
    "G11",
    "share of 50 random cutoffs whose time is predicted to a quarter",
    *("adaptive_speed", "predicted / measured time"),
    at_least=1.0,
    metric="within_a_quarter",
  ),
  Goal(
    "G11",
    "planned cutoffs / the best of 50",
    *("adaptive_speed", "planned cutoffs / best of 50"),
    at_most=1.1,
  ),
  Goal(
    "G12",
    "dense step of a spherical loss / factored, 793,471 classes",
    *("lst_speed", "output layer, naive / factored, V=793,471"),
    at_least=1000.0,
  ),
  Goal(
    "G12",
    "factored step, up to ten million classes / ten thousand",
    *("lst_speed", "factored step"),
    at_most=1.3,
  ),
  Goal(
    "G12",
    "on a GPU: dense step of a spherical loss / factored",
    *(GPU, "output layer, naive / factored"),
    at_least=4.0,
  ),
  Goal(
    "G13",
    "all logits / draws of `quadratic`, a million classes, D = 64",
    *("bench", "draws, all logits / quadratic, V=1,000,000 D=64"),
    at_least=20.0,
  ),
  Goal(
    "G14",
    "step of `full` / of hash tables, at the size of Amazon-670K",
    *("bench", "training step, full / LSH"),
    at_least=20.0,
  ),
  Goal(
    "G14",
    "time of hash tables / of `full` to the same P@1",
    at_most=1 / 3,
    remark="open: Amazon-670K was never trained",
  ),
  Goal(
    "G15",
    "torch / the best five classes",
    *("peers", "top 5: torch / streamed"),
    at_least=1.3,
  ),
  Goal(
    "G16",
    "right where peers are wrong",
    remark="`tests/heads/contract_test.py`, `tests/ops`",
  ),
  Goal(
    "G17",
    "on a GPU: a step with the same bits in two runs / any",
    *(GPU, "step with equal bits / any"),
    at_most=1.2,
  ),
]


def row(goal: Goal, experiments: pathlib.Path) -> list[str]:
  """The line of a goal in the table.

  Raises:
    UserError: no result has a matching name, unless the goal is for a GPU; or a result
      lacks the metric, such as for a program that does not compile.
  """
  first = [goal.name, goal.what, goal.bound]
  path = experiments / goal.experiment / "results.jsonl"
  rows = records.load(path, ["name"]) if goal.experiment else []
  found = [each for each in rows if re.match(goal.pattern, each["name"])]
  if not found and goal.experiment in ("", GPU):
    return [*first, goal.remark, "", ""]
  if not found:
    raise UserError(
      f"{path}: no result with a name like {goal.pattern!r} ({goal.what})"
    )
  if errors := [record for record in found if goal.metric not in record]:
    raise UserError(
      f"{path}: {errors[0]['name']} has no {goal.metric}: measure it again"
    )
  values = sorted(record[goal.metric] for record in found)
  ends = values if goal.at_least else values[::-1]
  shown = list(dict.fromkeys(f"{ends[i]:.3g}" for i in (0, -1)))
  place = ", ".join(sorted({_place(record) for record in found}))
  met = "yes" if goal.is_met(values) else "no"
  return [*first, " to ".join(shown), met, place]


def _place(record: records.Record) -> str:
  """The device, and whether malloc was told to avoid page faults."""
  has_many = record.get("page_faults", True)
  return record["device"] + ("" if has_many else "; few page faults")


def table(experiments: pathlib.Path) -> str:
  """All goals, as Markdown."""
  header = ["", "what", "goal", "measured", "met", "on"]
  return tables.markdown(header, [row(goal, experiments) for goal in GOALS])


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  mode = parser.add_mutually_exclusive_group()
  mode.add_argument("--update", type=pathlib.Path, help="rewrite the table in a file")
  mode.add_argument("--check", type=pathlib.Path, help="exit 1 if it is stale")
  parser.add_argument("--experiments", type=pathlib.Path, default=tabulate.EXPERIMENTS)
  args = parser.parse_args(argv)
  path = args.update or args.check
  if not path:
    print(table(args.experiments))
    return 0
  page = tables.with_section(path, "goals", table(args.experiments))
  if args.update:
    atomic.write_text(path, page)
  elif page != records.read_text(path):
    print(f"{path}: stale table; run benchmarks/goals.py --update {path}")
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("goals", main))
