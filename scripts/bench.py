"""Speed and memory, as ratios measured side by side.

  python scripts/bench.py                                    # all rows
  python scripts/bench.py --only chunked_full_softmax --output results.jsonl

Prints one JSON object a line: a case, the median times of what is compared, and their
ratios. The answers are compared first. Times drift on a shared machine, so the
functions take turns, and a ratio is the median of those within a turn; quote no time
without its ratio. On CPU, fresh large arrays cost page faults: to see what is left
without them, set GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:\
glibc.malloc.trim_threshold=8589934592.
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import largevocab
from largevocab.ops.full_softmax import softmax_loss, softmax_loss_naive
from largevocab.ops.softmax_plan import plan

Row = Callable[[], Iterator[dict[str, Any]]]
ROWS: dict[str, Row] = {}


def row(measure: Row) -> Row:
  """Registers a benchmark: a generator of one dictionary a case."""
  ROWS[measure.__name__] = measure
  return measure


def compare(
  functions: dict[str, Callable[..., Any]],
  *args: Any,
  seconds: float = 20.0,
  min_turns: int = 5,
) -> dict[str, Any]:
  """Times functions in turns; the first is what the others are compared with.

  Args:
    functions: compiled, and called once already.
    *args: what each is called with.
    seconds: how long to go on.
    min_turns: how many turns to take at least.

  Returns:
    `NAME_ms`, the median time of each; `NAME_ratio`, the median over the turns of its
    time over that of the first; `NAME_cpu_ratio`, the same of the processor time of
    all threads, which other programs on the machine disturb less.
  """
  walls: dict[str, list[float]] = {name: [] for name in functions}
  cpus: dict[str, list[float]] = {name: [] for name in functions}
  first, *others = functions
  end = time.perf_counter() + seconds
  while time.perf_counter() < end or len(walls[first]) < min_turns:
    for name, function in functions.items():
      wall, cpu = time.perf_counter(), time.process_time()
      jax.block_until_ready(function(*args))
      walls[name].append(time.perf_counter() - wall)
      cpus[name].append(time.process_time() - cpu)

  def ratio(times: dict[str, list[float]], name: str) -> float:
    return statistics.median(
      t / t0 for t, t0 in zip(times[name], times[first], strict=True)
    )

  result: dict[str, Any] = {"turns": len(walls[first])}
  for name in functions:
    result[f"{name}_ms"] = 1e3 * statistics.median(walls[name])
  for name in others:
    result[f"{name}_ratio"] = ratio(walls, name)
    result[f"{name}_cpu_ratio"] = ratio(cpus, name)
  return result


def temp_bytes(compiled: jax.stages.Compiled) -> int:
  """Temporary memory of a compiled function, without arguments and results."""
  analysis = compiled.memory_analysis()
  assert analysis is not None, "this device does not tell the memory of a program"
  return analysis.temp_size_in_bytes


def largest_error(got: Any, want: Any) -> float:
  """Largest difference in a leaf, relative to the leaf's largest absolute value."""
  errors = jax.tree.map(
    lambda a, b: float(jnp.abs(a - b).max() / jnp.abs(b).max()), got, want
  )
  return max(jax.tree.leaves(errors))


def about_this_run() -> dict[str, Any]:
  """What the times depend on."""
  return {
    "device": jax.devices()[0].device_kind,
    "machine": platform.machine(),
    "cpus": len(os.sched_getaffinity(0)),
    "page_faults": "glibc.malloc" not in os.environ.get("GLIBC_TUNABLES", ""),
    "jax": jax.__version__,
    "largevocab": largevocab.__version__,
  }


@row
def chunked_full_softmax(V: int = 100_000) -> Iterator[dict[str, Any]]:
  """Loss and gradients of the exact softmax: planned chunks against all logits at once.

  The budget is 1/8 of the temporary memory of the reference.
  """
  for N in (512, 1024):
    for D in (128, 512):
      rng = np.random.default_rng(0)
      h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
      w_VD = jnp.asarray(0.05 * rng.standard_normal((V, D)), jnp.float32)
      ids_NP = jnp.asarray(rng.integers(0, V, (N, 1)), jnp.int32)
      args = h_ND, w_VD, ids_NP, jnp.full((N, 1), 1 / N)

      gradients = lambda loss: jax.jit(jax.value_and_grad(loss, (0, 1)))
      naive = gradients(softmax_loss_naive).lower(*args).compile()
      naive_bytes = temp_bytes(naive)
      want = naive(*args)
      how = plan(N, V, D, naive_bytes // 8)
      chunked = gradients(functools.partial(softmax_loss, how=how))
      chunked = chunked.lower(*args).compile()
      error = largest_error(chunked(*args), want)
      assert error < 1e-5, f"{how}: relative error {error}"
      yield {
        "N": N,
        "V": V,
        "D": D,
        "plan": str(how),
        "error": error,
        "naive_MB": naive_bytes / 1e6,
        "chunked_MB": temp_bytes(chunked) / 1e6,
        "memory_ratio": temp_bytes(chunked) / naive_bytes,
        **compare({"naive": naive, "chunked": chunked}, *args),
      }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--only", choices=ROWS, help="one row instead of all")
  parser.add_argument("--output", type=pathlib.Path, help="a file to append to")
  args = parser.parse_args()
  about = about_this_run()
  for name in [args.only] if args.only else ROWS:
    for case in ROWS[name]():
      line = json.dumps({"row": name, **case, **about})
      print(line, flush=True)
      if args.output:
        with args.output.open("a") as file:
          file.write(line + "\n")


if __name__ == "__main__":
  main()
