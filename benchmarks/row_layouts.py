"""Compares layouts of class rows and biases, compiled for an accelerator or timed here.

  python -m benchmarks.row_layouts --device v5e --output results.jsonl  # or h100, cpu

Measures the part of a sampled step that reads and writes rows: look-up, logits, their
gradient and the update. Prints one JSON object per line, for each layout, width and
optimiser. The layouts are:

  column: biases are a column of the table, which is padded to a multiple of 8 columns
    and kept row-major.
  column, default layout: the same table, in the layout that the compiler prefers.
  column, 128s: the table is padded to a multiple of 128 columns, in the layout that the
    compiler prefers.
  vector: biases are a separate array; the table is row-major.

Fields are those of `benchmarks.compile_report`; `aliased_mb` is the memory of rows,
biases and optimiser states. On the CPU, `ratio` is the time relative to "column".
"""

import argparse
import functools
import json
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.absent_devices import DEVICES, place
from benchmarks.compile_report import abstract, compiled
from benchmarks.zipf import zipf_ids
from largevocab.ops.softmax.bias import extended_width
from largevocab.ops.softmax.chunks import product
from largevocab.placement import placed, row_major
from largevocab.rows import OPTIMIZERS, RowGrads, RowOptimizer
from largevocab.tools import entry
from largevocab.tools.reports.measure import LR, Stepper, about_this_run, compare
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record

DIMS = (16, 64, 128, 200, 300, 512, 1024)
WAYS = ("column", "column, default layout", "column, 128s", "vector")
N, R = 1024, 2048
PyTree = Any


def tables(way: str, optimizer: RowOptimizer, num_classes: int, dim: int) -> PyTree:
  """Tables of zeros: rows with a column of biases, or rows and biases separately."""
  width = extended_width(dim)
  widths = {"vector": [dim, 1], "column, 128s": [-(-width // 128) * 128]}
  make = lambda width: optimizer.init(jnp.zeros((num_classes, width)))
  return [make(width) for width in widths.get(way, [width])]


def formats(way: str, state: PyTree) -> PyTree:
  """The layouts to request from the compiler."""
  first, *biases = state
  rows = row_major(first) if way in ("column", "vector") else _default(first)
  return [rows, *map(_default, biases)]


def step(optimizer: RowOptimizer, dtype: str, state: PyTree, h_ND, ids_R, do_NR):
  """The new tables, and the logits of R distinct rows."""
  rows, *biases = state
  h_ND = jnp.pad(h_ND, ((0, 0), (0, rows.w_VD.shape[1] - h_ND.shape[1])))
  look_up = lambda table: table.w_VD.at[ids_R].get(mode="clip")
  o_NR = product("nd,rd->nr", h_ND, look_up(rows), dtype)
  o_NR += sum(look_up(table)[:, 0] for table in biases)
  grads = [product("nr,nd->rd", do_NR, h_ND, dtype)]
  grads += [jnp.sum(do_NR, axis=0)[:, None] for _ in biases]
  updated = lambda table, g_RD: optimizer.update(table, RowGrads(ids_R, g_RD), LR, 1.0)
  return list(map(updated, state, grads)), o_NR


def _default(tree: PyTree) -> PyTree:
  return jax.tree.map(lambda leaf: None, tree)


def arguments(dim: int, num_classes: int) -> tuple[jax.Array, ...]:
  """Activations, distinct ids, and gradients of logits."""
  ids_R = jnp.unique(zipf_ids(R, num_classes), size=R, fill_value=num_classes)
  ids_R = jnp.where(ids_R < num_classes, ids_R, num_classes + jnp.arange(R))
  return jnp.ones((N, dim)), ids_R, jnp.ones((N, R))


def on_accelerator(way, optimizer, args, dim, here) -> Record:
  state = jax.eval_shape(lambda: tables(way, optimizer, args.classes, dim))
  state, others = abstract((state, arguments(dim, args.classes)), here)
  how = formats(way, state)
  new = jax.jit(
    functools.partial(step, optimizer, args.dtype),
    in_shardings=(how, None, None, None),
    out_shardings=(how, None),
    donate_argnums=0,
  )
  program = new.lower(state, *others)
  return compiled(program.compile, args.classes)


def on_cpu(way, optimizer, args, dim) -> Record:
  def stepper(way):
    state = tables(way, optimizer, args.classes, dim)
    state = placed(state, formats(way, state))
    body = functools.partial(step, optimizer, args.dtype)
    return Stepper(body, state, *arguments(dim, args.classes))

  return compare(stepper(way), stepper("column"), seconds=4)


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("--device", choices=[*DEVICES, "cpu"], default="v5e")
  add("--dims", nargs="+", type=int, default=DIMS)
  add("--classes", type=int, default=1_048_576)
  add("--ways", nargs="+", choices=WAYS, default=WAYS)
  add("--optimizers", nargs="+", choices=OPTIMIZERS, default=["sgd", "adagrad", "adam"])
  add("--dtype", choices=["float32", "bfloat16"], default="float32")
  add("--output", type=pathlib.Path, help="results.jsonl to update")
  args: argparse.Namespace = parser.parse_args(argv)
  entry.check_output(args.output)
  about = about_this_run()
  if args.device != "cpu":
    here, about["device"] = place(args.device), f"{args.device}, compiled only"
  for dim in args.dims:
    for name in args.optimizers:
      for way in args.ways:
        optimizer = OPTIMIZERS[name]()
        run = f"{args.device}: {way}, D={dim}, {name}, {args.dtype}"
        if args.device == "cpu":
          found = on_cpu(way, optimizer, args, dim)
        else:
          found = on_accelerator(way, optimizer, args, dim, here)
        which = {"way": way, "dim": dim, "optimizer": name, "dtype": args.dtype}
        row = records.report_row(run, found, which, about)
        print(json.dumps(row), flush=True)
        if args.output:
          records.merge(args.output, [row])
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("row_layouts", main))
