"""Reports on sampled heads with the model of a run, with one record per head."""

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import jax

from largevocab.heads import Full, Sampled
from largevocab.labels import Counts
from largevocab.tools import entry
from largevocab.tools.reports.positions import Positions
from largevocab.tools.reports.trained import Trained, experiment, trained
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record
from largevocab.tools.tables import results_table

# Counts, class rows and examples of a model.
Model = tuple[Counts, jax.Array, Positions]

POSITIONS = (256, "number of examples")
DRAWS = "number of draws per head"
SAMPLERS = "SAMPLER[:FIELD=VALUE...]"
LOSSES_TOO = f"[LOSS/]{SAMPLERS}"


def parse(
  name: str,
  description: str | None,
  argv: list[str] | None,
  heads: str = SAMPLERS,
  **numbers: tuple[int, str],
) -> argparse.Namespace:
  """Parses the arguments of a report.

  Args:
    name: name of the report.
    description: description of the report.
    argv: the arguments that the user gives.
    heads: the form of an argument that describes a head.
    numbers: the report's own numeric arguments, which are at least 1, each with its
      default and its help.
  """
  parser = entry.Parser(description)
  add = parser.add_argument
  add("heads", nargs="+", metavar=heads)
  add("--workdir", required=True, help="workdir of a run of largevocab.main")
  add("--checkpoint", choices=["latest", "best"], default="latest")
  for number, (default, what) in numbers.items():
    add(f"--{number}", type=int, default=default, help=what)
  add("--label", default="", help="prefix of names, to identify the run")
  add("--output", type=pathlib.Path, help=f"default: WORKDIR/{name}.jsonl")
  args = parser.parse_args(argv)
  entry.check_counts(args, *numbers)
  args.output = args.output or pathlib.Path(args.workdir, f"{name}.jsonl")
  return args


def examples(model: Trained, args: argparse.Namespace) -> Model:
  """Reads the data for a report on args.positions examples."""
  return model.data.counts, model.w_VD, model.positions(args.positions)


def report(
  args: argparse.Namespace,
  head_of: Callable[[str, Full | Sampled], Any],
  read: Callable[[Trained, argparse.Namespace], Any],
  figures: Callable[[Any, Any], Record],
  columns: list[str],
) -> None:
  """Prints a record for each of args.heads as soon as it is made, then their table.

  Writes the records to args.output, where they replace those of the same names and
  seeds. Reports on runs that differ in the seed count as seeds of one method.

  Args:
    args: see `parse`.
    head_of: function that makes the head that an argument describes, with settings of
      the run's head.
    read: function that reads, once, the data that `figures` needs.
    figures: function that measures a head on these data.
    columns: the figures to print.

  Raises:
    UserError: the run's head does not have one row per class, or a head is invalid.
  """
  _, like = experiment(args.workdir)
  entry.check_output(args.output)
  heads = {text: head_of(text, like) for text in args.heads}  # before reading data
  model = trained(args.workdir, args.checkpoint)
  given = read(model, args)
  about = {"checkpoint_step": int(model.state.step), "draws": args.draws}
  about |= {"num_classes": model.data.counts.num_classes} | records.measured_here()
  seed = model.exp.train.seed
  overrides, suffix = ({"train.seed": seed}, f", seed={seed}") if seed else ({}, "")
  rows = []
  for text, head in heads.items():
    name = f"{args.label}: {text}" if args.label else text
    which = {"run": name + suffix, "overrides": overrides}
    row = records.report_row(name, which, figures(head, given), about)
    rows.append(row)
    shown = (f"{key} {row[key]:.4g}" for key in columns if key in row)
    print(name, *shown, sep="  ", flush=True)
  print(results_table.table(rows, columns))
  records.merge(args.output, rows)
