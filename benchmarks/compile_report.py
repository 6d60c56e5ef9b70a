"""Compiles programs of heads for an accelerator on a machine that has none.

  scripts/install compile  # for TPU; for h100: the plug-in of the extra `cuda12`
  python -m benchmarks.compile_report --device v5e --heads sampled/pps full \
    --classes 65536 1048576 --output experiments/compiled/results.jsonl

Prints one JSON object per line, for each head, number of classes and program. Programs
are the step with its update, evaluation, top k, refresh and monitor. No program is run,
so there are no times; memory and traffic are as the compiler states them. With --mesh,
classes are sharded over several chips (`largevocab.heads.ShardedHead`), and all numbers
are for one chip.

Fields:
  compile_cpu_seconds: processor time of the compilation, all threads.
  state_mb: the head's state, as the device lays it out.
  aliased_mb: donated state that the program updates in place.
  temporary_mb: memory besides arguments and results.
  accessed_mb: bytes read and written, if the compiler counts them.
  floor_mb: what a step must read and write: activations, the touched rows and their
    optimiser state; for dense heads, the whole state.
  copies, copied_mb: copies and transposes of arrays with V rows.
  loops, sorts: number of loops and sorts in the program.
  arguments_mb: with a mesh, all that a chip holds when the program begins.
  sent_mb: with a mesh, what a chip sends, also by collective (see
    `benchmarks.collectives`).
  formula_mb: what a chip sends by the formula in docs/devices.md.
  error: why the program does not compile.
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
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.absent_devices import DEVICES, chips, place
from benchmarks.collectives import COST, sent_bytes
from largevocab import config
from largevocab.heads import ShardedHead, class_mesh
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
  """The shapes of a pytree's arrays, with a given sharding."""
  of = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here)
  return jax.tree.map(of, tree)


def counts_with_pairs(num_classes: int) -> Counts:
  """Counts proportional to 1 / rank, and the shortest stream that has pairs."""
  counts_V = (1e9 / np.arange(1, num_classes + 1)).astype(np.int64) + 1
  tokens = np.arange(4 * num_classes, dtype=np.int32) % num_classes
  return Counts(counts_V, tokens)


def programs(
  head: Any, state: PyTree, batch: tuple[Any, ...], layout: str
) -> dict[str, Any]:
  """Functions that compile each program, by its name."""
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


def formula(program: str, N: int, P: int, dim: int, C: int) -> float | None:
  """Bytes that each of C devices sends, by docs/devices.md; None: it gives none."""
  labels, sums = N * 2 * P, 2 * N * (2 + P)
  numbers = {
    "step": N * dim + labels + sums + N * dim,
    "evaluate": N * dim + labels + sums,
    "top_k": N * dim + 2 * C * N * K + 4 * N,
  }
  return 4 * numbers[program] * (C - 1) / C if program in numbers else None


def compiled(compile: Callable[[], Any], num_rows: int, num_devices: int = 1) -> Record:
  """What the compiler reports about one program, for tables of `num_rows` rows."""
  began = time.process_time()
  try:
    program = compile()
  except Exception as error:  # any error of a compiler is the result
    return {"error": " ".join(str(error).split())[:300]}
  seconds = time.process_time() - began
  memory, text = program.memory_analysis(), program.as_text()
  cost = program.cost_analysis() or {}
  copied = [
    math.prod(map(int, shape.split(","))) * _BYTES.get(dtype, 4)
    for dtype, shape in _COPY.findall(text)
    if str(num_rows) in shape.split(",")
  ]
  of = {
    "compile_cpu_seconds": seconds,
    "aliased_mb": memory.alias_size_in_bytes / _MB,
    "temporary_mb": memory.temp_size_in_bytes / _MB,
    "copies": len(copied),
    "copied_mb": sum(copied) / _MB,
    "loops": len(re.findall(r" while\(", text)),
    "sorts": len(re.findall(r" sort\(", text)),
  }
  if "bytes accessed" in cost:
    of["accessed_mb"] = cost["bytes accessed"] / _MB
  if num_devices > 1:
    sent = sent_bytes(text, num_devices)
    of["arguments_mb"] = memory.argument_size_in_bytes / _MB
    of["sent_mb"] = sum(sent.values()) / _MB
    of |= {f"{kind}_mb": sent.get(kind, 0) / _MB for kind in COST}
  return {key: round(value, 3) for key, value in of.items()}


def parse(argv: list[str] | None) -> argparse.Namespace:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add("--device", choices=DEVICES, default="v5e")
  add("--heads", nargs="+", default=config.head_paths(), metavar="HEAD[/SAMPLER]")
  add("--classes", nargs="+", type=int, default=[65_536, 1_048_576])
  add("--dim", type=int, default=128, help="columns of activations, D")
  add("--examples", type=int, default=1024, help="examples of a batch, N")
  add("--shared", type=int, default=1024, help="negatives that a batch shares")
  add("--own", type=int, default=64, help="negatives of each example of its own")
  add("--optimizer", choices=OPTIMIZERS, default="sgd")
  add("--dtype", choices=["float32", "bfloat16"], default="float32")
  add(
    "--layout",
    choices=["trained", "row_major", "default"],
    default="trained",
    help="layout of the state: as in the trainer, or what the compiler prefers",
  )
  add("--mesh", metavar="4x4", help="chips that divide the classes; default: one chip")
  add("--blocks", type=int, help="blocks of classes; default: as many as chips")
  add("--programs", nargs="+", choices=PROGRAMS, default=["step"])
  add("--output", type=pathlib.Path, help="results.jsonl to update")
  return parser.parse_args(argv)


def make_head(path: str, args: argparse.Namespace) -> Any:
  """The head of a path, with shared or own negatives and trees for accelerators."""
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
  """A description of what is compiled: in full, or only what is not the default."""
  default = parse([])
  parts = [
    (f"{' '.join(filter(None, (args.device, args.mesh)))}: {path}", True),
    (program, whole or program not in default.programs),
    (f"V={num_classes:,}", True),
    (f"N={args.examples:,}", args.examples != default.examples),
    (f"M={args.shared:,}", args.shared != default.shared),
    (f"D={args.dim}", whole or args.dim != default.dim),
    (args.optimizer, whole or args.optimizer != default.optimizer),
    (args.dtype, whole or args.dtype != default.dtype),
    (f"{args.blocks} blocks", args.blocks is not None),
    (f"{args.layout} layout", args.layout != default.layout),
  ]
  return ", ".join(text for text, is_told in parts if is_told)


def place_of(args: argparse.Namespace) -> NamedSharding:
  """The sharding of undivided arrays: on one chip, or on every chip of a mesh."""
  if not args.mesh:
    return place(args.device)
  return NamedSharding(class_mesh(chips(args.device, args.mesh)), PartitionSpec())


def abstract_batch(args: argparse.Namespace, here: NamedSharding) -> tuple[Any, ...]:
  """Activations and labels, divided equally among the chips, and a key."""
  split = here.update(spec=PartitionSpec(*here.mesh.axis_names))
  of = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=split)
  N = args.examples
  y = Targets(of((N, 1), jnp.int32), of((N, 1), jnp.float32), of((N,), jnp.int32))
  return of((N, args.dim), jnp.float32), y, abstract(jax.random.key(0), here)


def head_and_state(
  args: argparse.Namespace, path: str, num_classes: int, here: NamedSharding
) -> tuple[Any, PyTree]:
  """A head, sharded over a mesh if there is one, and the shapes of its state."""
  head = make_head(path, args)
  if not args.mesh:
    counts = counts_with_pairs(num_classes)
    return head, abstract(head.init(jax.random.key(0), counts, args.dim), here)
  head = ShardedHead(head, here.mesh, args.blocks or here.mesh.size)
  # All counts are equal, so memory holds a single one; no shape depends on them.
  counts = Counts(np.broadcast_to(1, num_classes))
  return head, head.abstract_state(counts, args.dim)


def main(argv: list[str] | None = None) -> int:
  args = parse(argv)
  here = place_of(args)
  C = here.mesh.size
  entry.check_output(args.output)
  about = about_this_run() | {"device": f"{args.device}, compiled only"}
  batch = abstract_batch(args, here)
  for path in args.heads:
    for num_classes in args.classes:
      head, state = head_and_state(args, path, num_classes, here)
      num_rows = state.blocks.num_rows // C if args.mesh else num_classes
      todo = programs(head, state, batch, args.layout)
      for name in args.programs:
        row = records.report_row(
          setting(args, path, name, num_classes, False),
          {"run": setting(args, path, name, num_classes, True)},
          compiled(todo[name], num_rows, C),
        )
        if name == "step" and hasattr(head, "optimizer"):
          row["floor_mb"] = round(floor(head, state, batch) / _MB, 3)
        if C > 1 and (sent := formula(name, args.examples, 1, args.dim, C)):
          row["formula_mb"] = round(sent / _MB, 3)
        row |= {"head": path, "program": name, "num_classes": num_classes}
        row |= about | {"num_devices": C}
        print(json.dumps(row), flush=True)
        if args.output:
          records.merge(args.output, [row])
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("compile_report", main))
