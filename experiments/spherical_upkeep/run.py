"""Vincent et al. 2015, section 5.2: how many singular values of U leave a safe range?

  python experiments/spherical_upkeep/run.py --set ptb:data.path=DIR \\
    --set xmlc:data.path=DIR

Trains the runs named `spherical` of two sweeps, for their first steps. At regular
checks the singular values of U are computed in float64, and those outside [1 / 2, 2]
are set to 1, as in the paper. Nothing else stabilises U.

  checks         number of checks
  none           share of the checks at which all values are inside
  one, several   share of the checks at which one value, or several, are outside
  most           largest number of values outside at one check
  small          share of the values below 1 / 2 among all values outside
  inverse_error  largest component of |U U^-1 - 1| at a check. Steps update the inverse,
                 and compute it anew if fewer than two thirds of its digits are right

Results replace those of the same data and seed in results.jsonl.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largevocab import config
from largevocab.errors import UserError
from largevocab.ops.factored.stabilizers import fix_singular_values
from largevocab.ops.factored.table import Factored
from largevocab.tools import entry
from largevocab.tools.reports.measure import about_this_run
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.launch import PathSetting, settings_of
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training.settings import Experiment
from largevocab.training.state import init_state
from largevocab.training.step import compiled_steps

HERE = pathlib.Path(__file__).resolve().parent
# By data: the sweep, and the learning rate that its search chose.
SWEEPS = {"Penn Treebank": ("ptb_at_the_end", 20.0), "tags": ("spherical_longer", 0.2)}
METHOD = "spherical"
LIMIT = 2.0
WIDE = 1e6  # so wide that no step corrects a singular value


def run_of(sweep: str, lr: float, seed: int) -> Run:
  """The sweep's run of METHOD with this learning rate and seed."""
  runs = sweepfile.load(HERE.parent / sweep / "sweep.py").runs
  run = next(r for r in runs if r.name == METHOD)
  return dataclasses.replace(
    run, overrides={**run.overrides, "train.seed": seed, "train.lr": lr}
  )


def checks_of(
  exp: Experiment, steps: int, every: int
) -> Iterator[tuple[np.ndarray, float]]:
  """Yields at each check the singular values of U, f64[D], and the inverse's error.

  Raises:
    UserError: Training diverged.
  """
  spherical: Any = exp.head
  head = dataclasses.replace(spherical, limit=WIDE, stabilize_every=0)
  exp = dataclasses.replace(exp, head=head)
  data = exp.data.load()
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  state, step, _ = compiled_steps(exp, init_state(exp, data))
  fix = jax.jit(fix_singular_values, static_argnames="limit", donate_argnums=0)
  key = jax.random.key(exp.train.seed)
  rate = exp.train.rates(exp.train.steps_per_epoch(batches.steps_per_epoch))
  for number in range(steps):
    batch = jax.tree.map(jnp.asarray, batches.batch(number))
    state = step(state, batch, rate(number))
    if (number + 1) % every == 0:
      if not bool(jnp.all(jnp.isfinite(state.head.u_DD))):
        raise UserError(f"training diverges before step {number + 1}")
      yield measured(state.head)
      now = jax.random.fold_in(key, number)
      state = state._replace(head=fix(state.head, now, limit=LIMIT))


def measured(f: Factored) -> tuple[np.ndarray, float]:
  u_DD, u_inv_DD = (np.asarray(x, np.float64) for x in (f.u_DD, f.u_inv_DD))
  error_DD = u_DD @ u_inv_DD - np.eye(len(u_DD))
  return np.linalg.svd(u_DD, compute_uv=False), float(np.abs(error_DD).max())


def summary(values_CD: np.ndarray) -> Record:
  """The metrics of a record from the singular values at C checks.

  >>> summary(np.array([[1.0, 0.4], [1.0, 1.0], [2.5, 0.1], [1.0, 0.3]]))["one"]
  0.5
  """
  is_small_CD, is_large_CD = values_CD * LIMIT < 1, values_CD > LIMIT
  outside_C = np.sum(is_small_CD | is_large_CD, axis=1)
  share = lambda is_so: float(np.mean(is_so))
  total = int(outside_C.sum())
  return {
    "checks": len(values_CD),
    "none": share(outside_C == 0),
    "one": share(outside_C == 1),
    "several": share(outside_C > 1),
    "most": int(outside_C.max()),
    **({"small": float(is_small_CD.sum() / total)} if total else {}),
  }


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("--set", action="append", default=[], metavar="CONFIG:KEY=PATH")
  parser.add_argument("--steps", type=int, default=2000)
  parser.add_argument("--every", type=int, default=10, help="steps between checks")
  parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
  args = parser.parse_args(argv)
  entry.check_counts(args, "steps", "every", "seeds")
  if args.steps < args.every:
    raise UserError(f"--steps={args.steps}: no check, as --every is {args.every}")
  settings = [PathSetting.parse(text) for text in args.set]
  for data, (sweep, lr) in SWEEPS.items():
    for seed in range(args.seeds):
      run = run_of(sweep, lr, seed)
      exp = config.build(settings_of(run, settings))
      values, errors = zip(*checks_of(exp, args.steps, args.every), strict=True)
      record = {
        **{"run": f"{data}, seed={seed}", "name": data, "config": run.config},
        "overrides": run.overrides,
        "steps": args.steps,
        **summary(np.array(values)),
        "inverse_error": max(errors),
        **about_this_run(),
      }
      records.merge(HERE / "results.jsonl", [record])
      print(f"{record['run']} is done", flush=True)
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("spherical_upkeep", main))
