"""Reports the fastest clusters for given data, as predicted and as measured.

  python -m largevocab.tools.clusters_report --config=configs/europarl.py:adaptive \\
    --config.data.train=FILE
  python -m largevocab.tools.clusters_report --counts=counts.npy --dim=512 --batch=2560
  python -m largevocab.tools.clusters_report --config=configs/europarl.py:adaptive \\
    --config.data.train=FILE --measure=10 --output=experiments/adaptive/clusters.jsonl

Prints the best cutoffs for 2 to 5 clusters, and the best of all, by the cost model and
within the limits of the head `adaptive`. This head comes from the config, or is the
default one with the flags given here. With --output, also writes records, in
milliseconds per step, of

  - short-list sizes from 1 to V - 1, with one tail and without limits
  - 2 to 10 clusters, each with the best cutoffs
  - the full softmax

and draws figures/short_list and figures/clusters beside the file, as in figures 2 and 4
of Grave et al. 2017. --measure=N also times steps on this device: of N short-list
sizes, of all numbers of clusters, and of the full softmax. Steps have a batch of labels
drawn in proportion to their counts, random activations, and SGD.
"""

import dataclasses
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from largevocab import command_line, config
from largevocab.errors import UserError
from largevocab.heads import Adaptive, Full
from largevocab.heads.partitioned import Partitioned
from largevocab.labels import Counts
from largevocab.ops.adaptive.plan import MOST_CLUSTERS, ClusterPlan
from largevocab.rows import SGD
from largevocab.tools import entry
from largevocab.tools.plots import drawing
from largevocab.tools.reports.by_counts import counts_in, random_batch
from largevocab.tools.reports.measure import Stepper, least_time, row_step
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record, measured_here

CURVE_POINTS = 60
NUMBERS = range(2, 11)
FULL = "full softmax"


def of_config(argument: str, flags: list[str]) -> tuple[Partitioned, Counts, int]:
  """Head, class counts and width of an experiment."""
  settings = command_line.load(argument)
  command_line.override(settings, ["clusters_report", *flags], known=["config"])
  exp = config.build(settings)
  if not isinstance(exp.head, Partitioned):
    raise UserError(f"--config={argument} has another head; write adaptive after ':'")
  return exp.head, exp.data.load().counts, exp.model.width


def step_ms(head: Any, counts: Counts, dim: int, num: int) -> float:
  """Measured milliseconds per step of a head on this device."""
  h_ND, y = random_batch(counts, dim, num)
  head = dataclasses.replace(head, optimizer=SGD())
  state = head.init(jax.random.key(0), counts, dim)
  return 1e3 * least_time(Stepper(row_step(head), state, h_ND, y, jax.random.key(0)))


def record(kind: str, plan: ClusterPlan) -> Record:
  """The record of a plan, with its predicted time."""
  clusters = plan.clusters
  return records.report_row(
    kind,
    {"run": f"{kind}-{'-'.join(map(str, plan.cutoffs))}"},
    {"num_clusters": len(clusters.sizes), "cutoffs": list(plan.cutoffs)},
    {"short_list": clusters.sizes[0], "short_list_mass": clusters.masses[0]},
    {"predicted_ms": 1e3 * sum(plan.seconds), "mib": plan.num_bytes / 2**20},
  )


def report(head: Any, counts: Counts, dim: int, measure: int) -> list[Record]:
  """Records for both figures and the full softmax, some of them measured."""
  machine = measured_here()
  V, num = counts.num_classes, head.batch_examples
  free = dataclasses.replace(head, cutoffs=(), num_clusters=0)
  with_cutoffs = lambda cutoffs: dataclasses.replace(
    free, cutoffs=tuple(cutoffs), max_mib=0.0
  )
  ends = np.unique(np.geomspace(1, V - 1, CURVE_POINTS).round().astype(int)).tolist()
  rows = [
    record("short list", with_cutoffs([e]).cluster_plan(counts, dim)) for e in ends
  ]
  timed = set(np.linspace(0, len(ends) - 1, measure).round().astype(int).tolist())
  heads = {i: with_cutoffs(rows[i]["cutoffs"]) for i in timed}
  for n in NUMBERS:
    if n <= V:
      chosen = dataclasses.replace(free, num_clusters=n).cluster_plan(counts, dim)
      rows.append(record("clusters", chosen))
      heads[len(rows) - 1] = with_cutoffs(chosen.cutoffs)
  whole = with_cutoffs([1]).cluster_plan(counts, dim)
  rows.append(
    record(FULL, whole)
    | {"run": FULL, "num_clusters": 1, "cutoffs": [], "short_list": V}
    | {"short_list_mass": 1.0, "predicted_ms": 1e3 * whole.full_seconds}
  )
  rows[-1].pop("mib")
  heads[len(rows) - 1] = Full(bias=head.bias, dtype=head.dtype)
  if measure:
    for i, this in sorted(heads.items()):
      rows[i]["measured_ms"] = step_ms(this, counts, dim, num)
      keys = ("predicted_ms", "measured_ms")
      print(rows[i]["run"], *(f"{key} {rows[i][key]:.4g}" for key in keys), sep="  ")
  about = {"num_classes": V, "dim": dim, "batch": num, "cost_model": head.cost_model}
  return [{**row, **about, **machine} for row in rows]


def draw(rows: list[Record], kind: str, x: str):
  """Plots milliseconds over `x`: predicted times as a line, measured ones as points."""
  canvas = drawing.new_figure(6, 4)
  ax = canvas.subplots()
  of_kind = lambda name, key: [r for r in rows if r["name"] == name and key in r]
  xy = lambda key: zip(*[(r[x], r[key]) for r in of_kind(kind, key)], strict=True)
  ax.plot(*xy("predicted_ms"), color="C0", label="predicted")
  if of_kind(kind, "measured_ms"):
    ax.plot(*xy("measured_ms"), "o", color="C1", label="measured")
  for key, color in (("predicted_ms", "C0"), ("measured_ms", "C1")):
    for row in of_kind(FULL, key):
      how = {"color": color, "ls": "--", "label": f"{FULL}, {key.removesuffix('_ms')}"}
      ax.axhline(row[key], **how)
  ax.set_yscale("log")
  if x == "short_list":
    ax.set_xscale("log")
  ax.grid(alpha=0.3)
  labels = {"short_list": "classes of the short list", "num_clusters": "clusters"}
  ax.set_xlabel(labels[x])
  ax.set_ylabel("milliseconds a step")
  canvas.legend(loc="outside upper center", ncols=2)
  return canvas


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument("--config", help="FILE:ARG; set keys with --config.KEY=VALUE")
  source.add_argument("--counts", help=".npy file with int[V], class counts")
  add = parser.add_argument
  add("--dim", type=int, help="width of activations, with --counts; default: 512")
  add("--batch", type=int, help="true classes in a batch, for head.batch_examples")
  add("--cost_model", help="for head.cost_model")
  add("--measure", type=int, default=0, help="number of short-list sizes to time")
  add("--output", type=pathlib.Path, help="file for records; figures go beside it")
  args, flags = parser.parse_known_args(argv)
  entry.check_counts(args, "dim", "batch")
  entry.check_counts(args, "measure", least=0)
  entry.check_output(args.output)
  if args.measure and not args.output:
    raise UserError("--measure is for records: give --output=FILE.jsonl too")
  if args.counts and flags:
    raise UserError(f"unexpected argument {flags[0]!r}; it needs --config")
  if args.config and args.dim is not None:
    raise UserError("--dim is for --counts; with --config the model sets it")
  if args.config:
    head, counts, dim = of_config(args.config, flags)
  else:
    head, counts, dim = Adaptive(), counts_in(args.counts), args.dim or 512
  given = {"batch_examples": args.batch, "cost_model": args.cost_model}
  given = {key: value for key, value in given.items() if value is not None}
  head = dataclasses.replace(head, **given)

  free = dataclasses.replace(head, cutoffs=(), num_clusters=0)
  for n in range(2, min(MOST_CLUSTERS, counts.num_classes) + 1):
    plan = dataclasses.replace(free, num_clusters=n).cluster_plan(counts, dim)
    print(f"{n} clusters, cutoffs {plan.cutoffs}\n{plan}\n")
  best = free.cluster_plan(counts, dim)
  print(f"fastest: {len(best.clusters.sizes)} clusters, cutoffs {best.cutoffs}")
  if args.output:
    drawing.new_figure(1, 1)  # fails here without matplotlib, rather than at the end
    rows = report(head, counts, dim, args.measure)
    records.replace(args.output, rows)
    figures = args.output.parent / "figures"
    drawing.save(draw(rows, "short list", "short_list"), figures, "short_list")
    drawing.save(draw(rows, "clusters", "num_clusters"), figures, "clusters")
  return 0


def cli() -> int:
  return entry.run("clusters_report", main)


if __name__ == "__main__":
  sys.exit(cli())
