"""Reports on sampled heads with the model of a run: one record per head."""

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import jax

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Full, Linear, Sampled
from largevocab.labels import Counts
from largevocab.tools import entry
from largevocab.tools.reports.positions import Positions, positions_of
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import results_table
from largevocab.training.state import restore
from largevocab.training.workdir import describe_machine

# Counts, class rows and examples of a model.
Model = tuple[Counts, jax.Array, Positions]


def parse(
  description: str | None, draws: int, argv: list[str] | None = None
) -> argparse.Namespace:
  """Parses the arguments of a report."""
  parser = entry.Parser(description)
  add = parser.add_argument
  add("heads", nargs="+", metavar="SAMPLER[:FIELD=VALUE...]")
  add("--workdir", required=True, help="workdir of a run of largevocab.main")
  add("--checkpoint", choices=["latest", "best"], default="latest")
  add("--positions", type=int, default=256, help="number of examples")
  add("--draws", type=int, default=draws, help="number of draws per head")
  add("--label", default="", help="prefix of names, to identify the run")
  add("--output", type=pathlib.Path, help="default: WORKDIR/REPORT.jsonl")
  args = parser.parse_args(argv)
  entry.check_counts(args, "positions", "draws")
  return args


def report(
  args: argparse.Namespace,
  head_of: Callable[[str, Full | Sampled], Any],
  figures: Callable[[Any, Model], Record],
  columns: list[str],
) -> list[Record]:
  """A record for each of args.heads, which is printed as soon as it is made.

  Raises:
    UserError: the run's head does not have one row per class, or a head is invalid.
  """
  exp = config.build(config.of_workdir(args.workdir))
  if not isinstance(exp.head, Full | Sampled):
    raise UserError(
      f"{args.workdir} has a head without one row for each class, or one divided by "
      "mesh.blocks: choose another run"
    )
  if not isinstance(exp.head.logits, Linear):
    raise UserError(f"{args.workdir} has cosines as logits: choose another run")
  heads = {text: head_of(text, exp.head) for text in args.heads}
  data, state = restore(exp, args.workdir, args.checkpoint)
  batches = data.evaluation_batches("valid", exp.eval.batch_size, exp.eval.unroll)
  num_classes = data.counts.num_classes
  positions = positions_of(exp, state, batches, args.positions, num_classes)
  model = data.counts, state.head.table.w_VD, positions
  about = {"checkpoint_step": int(state.step), "positions": len(positions.x_ND)}
  about |= {"draws": args.draws, "num_classes": num_classes}
  rows = []
  for text, head in heads.items():
    name = f"{args.label}: {text}" if args.label else text
    row = {"run": name, "name": name, "config": "", "overrides": {}}
    row |= figures(head, model)
    rows.append({**row, **about, **records.measured_with(describe_machine())})
    print(name, *(f"{key} {row[key]:.4g}" for key in columns), sep="  ")
  return rows


def write(
  args: argparse.Namespace, name: str, rows: list[Record], columns: list[str]
) -> None:
  """Prints the table, and writes the records to args.output or the workdir, where they
  replace records of the same names."""
  print(results_table.table(rows, columns))
  records.merge(args.output or pathlib.Path(args.workdir, f"{name}.jsonl"), rows)
