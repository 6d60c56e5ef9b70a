"""Programs of heads, compiled for an accelerator on a machine that has none.

  scripts/install compile  # for TPU; of the extra `cuda12`, its plug-in, for h100
  python -m benchmarks.compile_report --device v5e --heads sampled/pps full \
    --classes 65536 1048576 --output experiments/compiled/results.jsonl

Prints one JSON object a line, for each head, number of classes and program: the step
with its update, evaluation, top k, refresh and monitor. No program is run, so there are
no times; memory and traffic are those that the compiler states.

Fields:
  compile_seconds: of wall time.
  state_mb: the head's state, as the device lays it out.
  aliased_mb: donated state that the program updates in place.
  temporary_mb: memory besides arguments and results.
  accessed_mb: bytes read and written, if the compiler counts them.
  floor_mb: what a step must read and write: activations, the touched rows and their
    optimiser state; of dense heads the whole state.
  copies, copied_mb: copies and transposes of arrays with V rows.
  loops, sorts: in the program.
  error: why it does not compile.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from benchmarks.absent_devices import DEVICES, place
from largevocab import config
from largevocab.labels import Counts, Targets
from largevocab.ops.tree.blocks import BlockGrads
from largevocab.placement import row_major
from largevocab.rows import OPTIMIZERS, RowGrads
from largevocab.tools import entry
from largevocab.tools.reports.measure import about_this_run
from largevocab.tools.sweeps import records
from largevocab.tools.sweeps.records import Record

PROGRAMS = ("step", "evaluate", "top_k", "refresh", "monitor")
K = 10
_MB = 1e6
_COPY = re.compile(r"= (\w+)\[([\d,]+)\]\S* (?:copy|transpose)\(")
_BYTES = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1, "s8": 1}

PyTree = Any


def abstract(tree: PyTree, here: NamedSharding) -> PyTree:
  """The shapes of a pytree's arrays, at a place."""
  of = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here)
  return jax.tree.map(of, tree)


def zipf_counts(num_classes: int) -> Counts:
  """Counts proportional to 1 / rank, and the shortest stream that has pairs."""
  counts_V = (1e9 / np.arange(1, num_classes + 1)).astype(np.int64) + 1
  tokens = np.arange(4 * num_classes, dtype=np.int32) % num_classes
  return Counts(counts_V, tokens)


def programs(
  head: Any, state: PyTree, batch: tuple[Any, ...], layout: str
) -> dict[str, Any]:
  """What compiles each program, by its name."""
  h_ND, y, key = batch
  as_trained = layout == "trained" and getattr(head, "row_sparse", False)
  how = row_major(state) if layout == "row_major" or as_trained else None

  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, 0.1, 1.0), (out.dh_ND, out.loss)

  def reads(function: Callable, *args: Any):
    kept = jax.jit(function, in_shardings=(how, *len(args) * [None]))
    return lambda: kept.lower(state, *args).compile()

  def changes(function: Callable, results: Any, *args: Any):
    new = jax.jit(
      function,
      in_shardings=(how, *len(args) * [None]),
      out_shardings=results,
      donate_argnums=0,
    )
    return lambda: new.lower(state, *args).compile()

  return {
    "step": changes(step, (how, None), *batch),
    "evaluate": reads(head.evaluate, h_ND, y),
    "top_k": reads(lambda state, h_ND: head.top_k(state, h_ND, K), h_ND),
    "refresh": changes(head.refresh, how, key),
    "monitor": reads(head.monitor, *batch),
  }


def floor(head: Any, state: PyTree, batch: tuple[Any, ...]) -> int:
  """Bytes that a step must read and write, at least; see the top of this file."""
  grads = jax.eval_shape(head.backward, state, *batch).grads
  size = lambda a: math.prod(a.shape) * a.dtype.itemsize
  is_rows = lambda g: isinstance(g, RowGrads | BlockGrads)
  parts = jax.tree.leaves(grads, is_leaf=is_rows)
  tables = jax.tree.leaves(head.optimizer.init(jnp.zeros((1, 1))).slots)
  slots = sum(slot.ndim == 2 for slot in tables)
  rows = sum(size(g.rows_RD) for g in parts if isinstance(g, RowGrads))
  for g in parts:
    if isinstance(g, BlockGrads):
      blocks_KE = state.leaves.w_VD
      rows += size(blocks_KE) * min(len(g.ids_M), len(blocks_KE)) // len(blocks_KE)
  dense = sum(size(g) for g in parts if not is_rows(g))
  activations = 2 * size(batch[0])
  return activations + (2 * (1 + slots) + 1) * rows + (3 + 2 * slots) * dense


def compiled(compile: Callable[[], Any], num_classes: int) -> Record:
  """What the compiler says of one program."""
  began = time.perf_counter()
  try:
    program = compile()
  except Exception as error:  # whatever a compiler raises is the result
    return {"error": " ".join(str(error).split())[:300]}
  seconds = time.perf_counter() - began
  memory, text = program.memory_analysis(), program.as_text()
  cost = program.cost_analysis() or {}
  copied = [
    math.prod(map(int, shape.split(","))) * _BYTES.get(dtype, 4)
    for dtype, shape in _COPY.findall(text)
    if str(num_classes) in shape.split(",")
  ]
  of = {
    "compile_seconds": seconds,
    "aliased_mb": memory.alias_size_in_bytes / _MB,
    "temporary_mb": memory.temp_size_in_bytes / _MB,
    "copies": len(copied),
    "copied_mb": sum(copied) / _MB,
    "loops": len(re.findall(r" while\(", text)),
    "sorts": len(re.findall(r" sort\(", text)),
  }
  if "bytes accessed" in cost:
    of["accessed_mb"] = cost["bytes accessed"] / _MB
  return {key: round(value, 3) for key, value in of.items()}


def parse(argv: list[str] | None) -> argparse.Namespace:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("--device", choices=DEVICES, default="v5e")
  add("--heads", nargs="+", default=config.head_paths(), metavar="HEAD[/SAMPLER]")
  add("--classes", nargs="+", type=int, default=[65_536, 1_048_576])
  add("--dim", type=int, default=128, help="columns of activations, D")
  add("--examples", type=int, default=1024, help="of a batch, N")
  add("--shared", type=int, default=1024, help="negatives of a batch")
  add("--own", type=int, default=64, help="negatives of each example, else")
  add("--optimizer", choices=OPTIMIZERS, default="sgd")
  add("--dtype", choices=["float32", "bfloat16"], default="float32")
  add(
    "--layout",
    choices=["trained", "row_major", "default"],
    default="trained",
    help="of the state: as in the trainer, or what the compiler prefers",
  )
  add("--programs", nargs="+", choices=PROGRAMS, default=["step"])
  add("--output", type=pathlib.Path, help="results.jsonl to update")
  return parser.parse_args(argv)


def make_head(path: str, args: argparse.Namespace) -> Any:
  """The head of a path, with as many negatives as it shares, and trees as accelerators
  prefer them."""
  fields = {
    "optimizer": OPTIMIZERS[args.optimizer](),
    "dtype": args.dtype,
    "sampler": {"rates": "accelerator"},
  }
  head = config.head(path, num_samples=args.shared, **fields)
  sampler = getattr(head, "sampler", None)
  if not getattr(sampler, "per_example", not getattr(sampler, "distinct", False)):
    return head
  return config.head(path, num_samples=args.own, **fields)


def setting(
  args: argparse.Namespace, path: str, program: str, num_classes: int, whole: bool
) -> str:
  """What is compiled, in words: all of it, or only what is not the default."""
  default = parse([])
  parts = [
    (f"{args.device}: {path}", True),
    (program, whole or program not in default.programs),
    (f"V={num_classes:,}", True),
    (f"D={args.dim}", whole or args.dim != default.dim),
    (args.optimizer, whole or args.optimizer != default.optimizer),
    (args.dtype, whole or args.dtype != default.dtype),
    (f"{args.layout} layout", args.layout != default.layout),
  ]
  return ", ".join(text for text, is_told in parts if is_told)


def main(argv: list[str] | None = None) -> int:
  args = parse(argv)
  here = place(args.device)
  rows, about = [], about_this_run() | {"device": f"{args.device}, compiled only"}
  of = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=here)
  for path in args.heads:
    for num_classes in args.classes:
      counts, N = zipf_counts(num_classes), args.examples
      head = make_head(path, args)
      make = lambda key: head.init(key, counts, args.dim)  # noqa: B023
      state = abstract(make(jax.random.key(0)), here)
      y = Targets(of((N, 1), jnp.int32), of((N, 1), jnp.float32), of((N,), jnp.int32))
      batch = of((N, args.dim), jnp.float32), y, abstract(jax.random.key(0), here)
      todo = programs(head, state, batch, args.layout)
      for name in args.programs:
        row: Record = {
          "run": setting(args, path, name, num_classes, True),
          "name": setting(args, path, name, num_classes, False),
          "config": "",
          "overrides": {},
        }
        row |= compiled(todo[name], num_classes)
        if name == "step" and hasattr(head, "optimizer"):
          row["floor_mb"] = round(floor(head, state, batch) / _MB, 3)
        rows.append(
          row | {"head": path, "program": name, "num_classes": num_classes, **about}
        )
        print(json.dumps(rows[-1]), flush=True)
  if args.output:
    records.merge(args.output, rows)
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("compile_report", main))
