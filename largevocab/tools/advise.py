"""Measures heads for your classes on this device, and suggests one for your budget.

  python scripts/advise.py --counts=counts.npy --dim=512 --batch=2560
  python scripts/advise.py --workdir=runs/ptb --num_samples 256 1024 --budget_ms=5
  python scripts/advise.py --workdir=runs/ptb --heads full sampled/pps adaptive

Runs training steps (loss, gradients, update) with your number of classes, width and
batch size. It does this for every head, and for `sampled` with every sampler, or for
the heads in --heads (any heads that configs accept). Prints for each head

  ms      time of a step of the output layer, the minimum of many
  mib     parameters, statistics, and temporary memory of the step as compiled
  relvar  Var(Z~) / Z^2 for a trained model, where Z~ is the partition function as a
          sampled softmax estimates it from the head's negatives. 0 for the exact
          softmax. Only with --workdir

Heads on the Pareto front of time and relvar are marked. Heads without relvar are
compared in time and memory with heads of the same kind. The kinds are `softmax`, which
is exact; `sample`, an estimate of it; and `other`, another model or loss, whose quality
only training shows. At the end, prints flags for largevocab.main with the head of
smallest relvar within --budget_ms and --budget_mib. With --workdir, --budget_ms is by
default twice the time of the fastest head with a relvar. Without --workdir, samples are
not judged, and only the exact softmax can be suggested.

relvar is a mean over 32 draws at 32 examples of the batch. Its error is about 10 %, or
more if few examples dominate. It cannot tell apart heads that are closer than that.

relvar is the noise of a step and, while it is small, about twice the bias of the loss.
It holds for the model that you give, and does not tell where training ends.
docs/README.md, Choose, lists which methods were trained to the end, on which data and
with how many seeds.

--workdir uses counts, class rows, optimiser, and activations and labels of held-out
data of that run, whose head must have one row per class. --counts draws labels in
proportion to their counts, and random activations. Heads that do not support these data
are reported and left out. Samplers that take the classes of batches (in_batch, cbns)
have as many draws as the batches have labels. When relvar is measured, they have seen
some batches of labels drawn in proportion to counts. The draws of these samplers, and
of top_k, sce and rece, do not vary: relvar is then the mean square of the relative
error of one draw.
"""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Cosine, Full, Sampled
from largevocab.heads.sampled_state import SampledState
from largevocab.labels import Counts, Targets, batch_classes, single_targets
from largevocab.rows import Adagrad, RowOptimizer
from largevocab.samplers.base import counts_rows
from largevocab.tools import entry
from largevocab.tools.reports.by_counts import counts_in, random_batch
from largevocab.tools.reports.measure import least_time, row_step, temp_bytes
from largevocab.tools.reports.trained import fresh_state, trained
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import markdown as tables

KEY = jax.random.key(0)
TRAINED = "for the results of training, see docs/README.md, Choose"
_BATCHES = 32  # number of batches that a sampler which counts them has seen


class Problem(NamedTuple):
  """Data and settings for measuring heads.

  Attributes:
    counts: class counts.
    h_ND: f32[N, D], activations.
    y: the true classes of the activations.
    optimizer: the optimiser of the class rows.
    w_VD: class rows of a trained model, or None.
    like: the head of the trained model, or None.
  """

  counts: Counts
  h_ND: jax.Array
  y: Targets
  optimizer: RowOptimizer
  w_VD: jax.Array | None = None
  like: Full | Sampled | None = None


def of_counts(path: str, dim: int, batch: int) -> Problem:
  """A problem with labels drawn in proportion to a file's counts, and random h."""
  counts = counts_in(path)
  return Problem(counts, *random_batch(counts, dim, batch), Adagrad())


def of_run(workdir: str, batch: int) -> Problem:
  """A problem with the held-out data and the class rows of a run."""
  model = trained(workdir, "latest", ", or give --counts")
  exp = model.exp
  x_ND, y = model.positions(batch or exp.train.batch_size * exp.train.unroll)
  counts = model.data.counts
  return Problem(counts, x_ND, y, exp.optimizer, model.w_VD, like=model.head)


def default_heads() -> list[str]:
  """Every head, and `sampled` with every sampler.

  >>> {"full", "adaptive", "nce", "sampled/pps"} <= set(default_heads())
  True
  """
  samplers = [path for path in config.head_paths() if path.startswith("sampled/")]
  return [*(name for name in config.head_names() if name != "sampled"), *samplers]


def heads(
  paths: Iterable[str], num_samples: Iterable[int], problem: Problem
) -> dict[str, Any]:
  """Heads by the flags that configure them."""
  shared = {"optimizer": problem.optimizer}
  if problem.like is not None:
    shared |= {"dtype": problem.like.dtype}
  made = {}
  for path in paths:
    head = config.head(path, **shared)
    if problem.like is not None and hasattr(head, "bias") and not _is_cosine(head):
      head = dataclasses.replace(head, bias=problem.like.bias)
    if not isinstance(head, Sampled):
      made[path] = head
      continue
    draws_for = getattr(head.sampler, "draws_for", None)
    own = [draws_for(num_labels(problem.y))] if draws_for else num_samples
    for num in own:
      flags = f"{path} --config.head.num_samples={num}"
      made[flags] = dataclasses.replace(head, num_samples=num)
  return made


def num_labels(y: Targets) -> int:
  """Number of labels in a batch, at least 1.

  >>> num_labels(single_targets([3, 3], [1.0, 0.0]))
  1
  """
  return max(int(jnp.sum(y.w_NP != 0)), 1)


def kind_of(head: Any) -> str:
  """The kind of a head; see the module docstring.

  >>> [kind_of(config.head(name)) for name in ("full", "sampled", "nce")]
  ['softmax', 'sample', 'other']
  >>> kind_of(config.head("full/cosine"))
  'other'
  """
  if _is_cosine(head):
    return "other"
  if isinstance(head, Full):
    return "softmax"
  is_sample = isinstance(head, Sampled) and head.loss.estimates_log_z
  return "sample" if is_sample else "other"


def _is_cosine(head: Any) -> bool:
  """Whether logits are cosines, so that the rows of another model do not suit."""
  return isinstance(getattr(head, "logits", None), Cosine)


def measured(head: Any, problem: Problem) -> Record:
  """Measures a head: kind, time, memory and, for a trained model, relvar."""
  counts, h_ND, y, _, w_VD, like = problem
  state = head.init(KEY, counts, h_ND.shape[1])
  row: Record = {"kind": kind_of(head)}
  is_of_products = like is not None and not _is_cosine(like)
  can_be_judged = row["kind"] != "other" and is_of_products and w_VD is not None
  if can_be_judged and head.absolute == like.absolute:
    if isinstance(head, Sampled):
      state = fresh_state(head, counts, w_VD)
    table = head.optimizer.init(jnp.copy(w_VD))  # which the step overwrites
    state = state._replace(table=table)
    if isinstance(head, Sampled) and counts_rows(head.sampler):
      state = after_batches(head, state, counts, num_labels(y))
    seen = (
      jax.jit(head.monitor)(state, h_ND, y, KEY)
      if row["kind"] == "sample"
      else {"relvar": 0}
    )
    row["relvar"] = float(seen["relvar"])
  held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  step = jax.jit(row_step(head), donate_argnums=0).lower(state, h_ND, y, KEY).compile()
  row["mib"] = (held + temp_bytes(step)) / 2**20

  def call():
    nonlocal state
    state, _ = step(state, h_ND, y, KEY)
    return state

  row["ms"] = 1e3 * least_time(call)
  return row


def after_batches(
  head: Sampled, state: SampledState, counts: Counts, labels: int
) -> SampledState:
  """The state of a sampler that counts, after batches of independent labels."""
  rng = np.random.default_rng(1)
  p_V = counts.unigram_V / counts.unigram_V.sum()
  ids_BN = rng.choice(counts.num_classes, (_BATCHES, labels), p=p_V)

  @jax.jit
  def update(stats, w_VD, ids_N):
    ids_R = batch_classes(single_targets(ids_N), len(w_VD))
    rows_RD = w_VD.at[ids_R].get(mode="clip")
    return head.sampler.update(stats, w_VD, ids_R, rows_RD, rows_RD)

  stats = state.stats
  for ids_N in ids_BN:
    stats = update(stats, state.table.w_VD, jnp.asarray(ids_N, jnp.int32))
  return state._replace(stats=stats)


def unbeaten(rows: list[Record]) -> list[Record]:
  """The Pareto front of rows in time and relvar.

  Rows without relvar are compared with rows of their kind, in time and memory.

  >>> rows = [{"kind": "sample", "ms": t, "mib": 1.0, "relvar": v}
  ...         for t, v in ((1.0, 0.5), (2.0, 0.1), (3.0, 0.2))]
  >>> [row["ms"] for row in unbeaten(rows)]
  [1.0, 2.0]
  """

  def figures(row):
    if "relvar" in row:
      return "", row["ms"], row["relvar"]
    return row["kind"], row["ms"], row["mib"]

  def beats(a, b):
    (kind_a, *a), (kind_b, *b) = figures(a), figures(b)
    return (
      kind_a == kind_b and a != b and all(x <= y for x, y in zip(a, b, strict=True))
    )

  return [row for row in rows if not any(beats(other, row) for other in rows)]


def choice(rows: list[Record], budget_ms: float, budget_mib: float) -> Record | None:
  """The row within the budgets with the smallest relvar, then the shortest time.

  If no row has a relvar, as without a trained model, the result is the exact softmax or
  None.

  Args:
    rows: results of `measured`.
    budget_ms: maximum milliseconds of a step; 0: no limit.
    budget_mib: maximum memory of a step; 0: no limit.

  >>> rows = [{"kind": "softmax", "ms": 9.0, "mib": 1.0, "relvar": 0.0},
  ...         {"kind": "sample", "ms": 2.0, "mib": 1.0, "relvar": 0.1}]
  >>> choice(rows, 0, 0)["ms"], choice(rows, 5, 0)["ms"]
  (9.0, 2.0)
  """
  judged = [row for row in rows if "relvar" in row]
  fits = [
    row
    for row in judged or [row for row in rows if row["kind"] == "softmax"]
    if (not budget_ms or row["ms"] <= budget_ms)
    and (not budget_mib or row["mib"] <= budget_mib)
  ]
  fits = [row for row in fits if not math.isnan(row.get("relvar", 0))]
  return min(fits, key=lambda row: (row.get("relvar", 0), row["ms"]), default=None)


def default_budget_ms(rows: list[Record]) -> float:
  """Twice the time of the fastest head with a relvar; 0 if there is none.

  >>> default_budget_ms([{"ms": 9.0, "relvar": 0.0}, {"ms": 1.0, "relvar": 0.1}])
  2.0
  """
  return 2 * min((row["ms"] for row in rows if "relvar" in row), default=0.0)


def advice(best: Record | None, budgets: str, is_trained: bool) -> str:
  """The advice at the end: a head, the reason, and where trained models are compared.

  >>> print(advice(None, "within 5 ms", True))
  no head is within 5 ms: raise --budget_ms or --budget_mib
  """
  if best is None and not is_trained:
    return (
      f"no exact softmax is {budgets}, and samples cannot be judged by counts: "
      "add `full` to --heads, raise the budget, or judge samples with --workdir"
    )
  if best is None:
    return f"no head is {budgets}: raise --budget_ms or --budget_mib"
  is_judged = "relvar" in best
  least = "the smallest relvar" if is_judged else "the exact softmax"
  found = f"relvar {best['relvar']:.3g}, " if is_judged else ""
  figures = f"{found}{best['ms']:.3g} ms and {best['mib']:.3g} MiB a step"
  return f"{least} {budgets}: {figures}\n{TRAINED}\n--config=FILE:{best['run']}"


def table(rows: list[Record]) -> str:
  """A Markdown table of the rows, fastest first."""
  marked = {row["run"] for row in unbeaten(rows)}
  cells = [
    [
      "*" if row["run"] in marked else "",
      row["run"],
      row["kind"],
      *(f"{row[key]:.4g}" if key in row else "-" for key in ("ms", "mib", "relvar")),
    ]
    for row in sorted(rows, key=lambda row: row["ms"])
  ]
  header = ["", "head", "kind", "ms", "mib", "relvar"]
  return tables.markdown(header, cells)


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument("--counts", help=".npy file with int[V], class counts")
  source.add_argument("--workdir", help="workdir of a run of largevocab.main")
  add = parser.add_argument
  add("--dim", type=int, help="width of activations, with --counts; default: 512")
  add("--batch", type=int, default=0, help="batch size; default: 2560, or the run's")
  add("--num_samples", type=int, nargs="+", default=[1024], help="numbers of negatives")
  add("--heads", nargs="+", default=default_heads(), metavar="HEAD[/SAMPLER]")
  least = "limit per step; 0: none; default with --workdir: twice the fastest head"
  add("--budget_ms", type=float, help=least)
  add("--budget_mib", type=float, default=0.0, help="memory limit; 0: none")
  add("--output", type=pathlib.Path, help=".jsonl file for the records")
  args = parser.parse_args(argv)
  entry.check_counts(args, "dim", "num_samples")
  if args.batch:
    entry.check_counts(args, "batch")
  if args.workdir and args.dim is not None:
    raise UserError("--dim is for --counts; with --workdir the run sets it")
  for key in ("budget_ms", "budget_mib"):
    if not 0 <= (getattr(args, key) or 0) < math.inf:
      raise UserError(f"--{key}={getattr(args, key)}: must be finite and at least 0")
  if args.counts:
    problem = of_counts(args.counts, args.dim or 512, args.batch or 2560)
  else:
    problem = of_run(args.workdir, args.batch)
  entry.check_output(args.output)
  num, dim = problem.h_ND.shape
  about = {"num_classes": problem.counts.num_classes, "dim": dim, "batch": num}
  print(", ".join(f"{key} {value:,}" for key, value in about.items()))

  rows: list[Record] = []
  about |= records.measured_here()
  candidates = heads(args.heads, args.num_samples, problem)
  for number, (flags, head) in enumerate(candidates.items(), start=1):
    print(f"\r{number} of {len(candidates)}: {flags:60}", end="", file=sys.stderr)
    try:
      row = measured(head, problem)
    except (UserError, jax.errors.JaxRuntimeError) as error:  # such as out of memory
      print(f"\nleft out: {flags}: {error}", file=sys.stderr)
      continue
    rows.append(records.report_row(flags, row, about))
  print(file=sys.stderr)
  if not rows:
    raise UserError("no head suits these data: name others in --heads")
  if args.output:
    records.replace(args.output, rows)
  print(table(rows))
  is_default = args.budget_ms is None
  budget_ms = default_budget_ms(rows) if is_default else args.budget_ms
  within = f"{budget_ms:.3g} ms" if budget_ms else "any time"
  within += ", twice the fastest," if is_default and budget_ms else ""
  memory = f"{args.budget_mib:.3g} MiB" if args.budget_mib else "any memory"
  best = choice(rows, budget_ms, args.budget_mib)
  print(advice(best, f"within {within} and {memory}", bool(args.workdir)))
  return 0


def cli() -> int:
  return entry.run("advise", main)


if __name__ == "__main__":
  sys.exit(cli())
