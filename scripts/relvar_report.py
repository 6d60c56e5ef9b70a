"""How far off is the estimated normaliser of a trained model, at how many classes read?

  python scripts/relvar_report.py --workdir=runs/ptb --output=results.jsonl \\
    unigram:num_samples=512 unigram:exact_frequent=256:num_samples=256 \\
    bernoulli:inclusion=power:num_samples=512 pps/shuffled:num_samples=512

Each argument is a sampler with fields of it or of the head `sampled`. For each, Z~ is
estimated --draws times at positions spread over the validation data, which make one
batch, and compared with the exact Z of the model:

  relvar      Var(Z~) / Z^2, about its true mean: E Z~ = Z
  log_z_bias  E log(Z~ / Z), nats: the bias of a sampled softmax loss
  classes     distinct classes besides the true one that a draw reads, on average over
              draws: of the whole batch if it shares them, else of an example

Means over positions, and medians of relvar. `/shuffled` numbers the classes at random:
by count they make systematic draws stratified. Statistics are built anew from the
table, as after several refreshes.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import records
import tabulate
from positions import Positions, positions_of
from records import Record
from specs import with_field

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads.candidates import candidates
from largevocab.heads.sampled import Sampled
from largevocab.heads.softmax import SoftmaxHead
from largevocab.labels import Counts, Targets
from largevocab.rows import Table
from largevocab.state import restore
from largevocab.workdir import describe_machine

COLUMNS = ["classes", "relvar", "relvar_median", "log_z_bias"]
REFRESHES = 5  # an index is refined by each
SHUFFLED = "shuffled"
KEY = jax.random.key(0)


def head_of(text: str, like: SoftmaxHead) -> tuple[Sampled, bool]:
  """The head `sampled` that an argument describes, and whether classes are shuffled.

  >>> head, _ = head_of("pps:power=0.5:num_samples=64", Sampled())
  >>> head.sampler.power, head.num_samples
  (0.5, 64)
  """
  name, *settings = text.split(":")
  name, _, order = name.partition("/")
  if order not in ("", SHUFFLED):
    raise UserError(f"{text}: after '/' stands {SHUFFLED!r} or nothing")
  sampler = config.part("sampler", name)
  if hasattr(sampler, "absolute"):
    sampler = dataclasses.replace(sampler, absolute=like.absolute)
  head = Sampled(
    bias=like.bias, absolute=like.absolute, dtype=like.dtype, sampler=sampler
  )
  for setting in settings:
    key, _, value = setting.partition("=")
    if hasattr(sampler, key):
      sampler = with_field(text, sampler, key, value)
      head = dataclasses.replace(head, sampler=sampler)
    else:
      head = with_field(text, head, key, value)
  return head, bool(order)


def shuffled(
  counts: Counts, w_VD: jax.Array, positions: Positions
) -> tuple[Counts, jax.Array, Positions]:
  """The same with classes numbered at random."""
  new_V = np.random.default_rng(0).permutation(len(w_VD))  # class c becomes new_V[c]
  old_V = np.argsort(new_V)
  rename = lambda ids: jnp.asarray(new_V, jnp.int32)[ids]
  y = positions.y._replace(ids_NP=rename(positions.y.ids_NP))
  tokens = None if counts.tokens is None else new_V[counts.tokens]
  return (
    Counts(counts.unigram_V[old_V], tokens),
    w_VD[old_V],
    Positions(positions.x_ND, y),
  )


def classes(
  head: Sampled, state: Any, h_ND: jax.Array, y: Targets, key: jax.Array
) -> jax.Array:
  """How many distinct classes besides the true ones a draw reads."""
  w_VD = state.table.w_VD
  draw = head.sampler.sample(
    state.stats, w_VD, key, head.features(h_ND), y, head.num_samples
  )
  got = candidates(draw, head.exact_sets(state, y), y, len(w_VD))
  shared_NT = jnp.broadcast_to(got.shared_T, (len(h_ND), len(got.shared_T)))
  ids = jnp.concatenate([got.own_NS, shared_NT], axis=1)
  ids = jnp.where(got.mask, ids, len(w_VD))
  read_NV = jnp.zeros((len(h_ND), len(w_VD)), bool)
  read_NV = read_NV.at[jnp.arange(len(h_ND))[:, None], ids].set(True, mode="drop")
  own = read_NV.sum(axis=1).mean()
  return own if got.own_NS.size else read_NV.any(axis=0).sum()


def figures(
  head: Sampled, counts: Counts, w_VD: jax.Array, positions: Positions, draws: int
) -> Record:
  """What is measured of one head; see the top of this file."""
  state = head.init_state(Table(w_VD, {}, jnp.int32(0)), counts)
  if head.refreshes(1):
    refresh = jax.jit(head.refresh)
    for key in jax.random.split(KEY, REFRESHES):
      state = refresh(state, key)
  h_ND, y = positions
  at_N = np.arange(len(h_ND))
  log_ratios = functools.partial(head.log_normalizer_ratios, at_N=at_N, draws=draws)
  log_ratio_RN = np.asarray(jax.jit(log_ratios)(state, h_ND, y, KEY), np.float64)

  read = jax.jit(functools.partial(classes, head))
  keys = jax.random.split(KEY, 8)
  relvar_N = np.square(np.expm1(log_ratio_RN)).mean(axis=0)
  return {
    "classes": float(np.mean([read(state, h_ND, y, key) for key in keys])),
    "relvar": float(relvar_N.mean()),
    "relvar_median": float(np.median(relvar_N)),
    "log_z_bias": float(log_ratio_RN.mean()),
    "mean_ratio": float(np.exp(log_ratio_RN).mean()),
  }


def report(args: argparse.Namespace) -> list[Record]:
  """A record for each head.

  Raises:
    UserError: the run's head has no row for each class, or a head cannot be.
  """
  exp = config.build(config.of_workdir(args.workdir))
  if not isinstance(exp.head, SoftmaxHead):
    raise UserError(f"{args.workdir} has a head without one row for each class")
  heads = {text: head_of(text, exp.head) for text in args.heads}
  data, state = restore(exp, args.workdir, args.checkpoint)
  batches = data.evaluation_batches("valid", exp.eval.batch_size, exp.eval.unroll)
  positions = positions_of(exp, state, batches, args.positions)
  of_model = data.counts, state.head.table.w_VD, positions
  about = {"checkpoint_step": int(state.step), "positions": len(positions.x_ND)}
  about |= {"draws": args.draws, "num_classes": len(state.head.table.w_VD)}
  rows = []
  for text, (head, is_shuffled) in heads.items():
    given = shuffled(*of_model) if is_shuffled else of_model
    row = {"run": text, "name": text, "config": "", "overrides": {}}
    row |= figures(head, *given, args.draws)
    rows.append({**row, **about, **records.measured_with(describe_machine())})
    print(text, *(f"{key} {row[key]:.4g}" for key in COLUMNS), sep="  ")
  return rows


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("heads", nargs="+", metavar="SAMPLER[:FIELD=VALUE...]")
  add("--workdir", required=True, help="of a run of largevocab.main")
  add("--checkpoint", choices=["latest", "best"], default="latest")
  add("--positions", type=int, default=256, help="how many")
  add("--draws", type=int, default=200, help="how many, of each")
  add("--output", type=pathlib.Path, help="default: WORKDIR/relvar_report.jsonl")
  args = parser.parse_args(argv)
  for key in ("positions", "draws"):
    if getattr(args, key) < 1:
      raise UserError(f"--{key}={getattr(args, key)}: must be positive")
  return args


def main(argv: list[str] | None = None) -> int:
  args = parse_args(argv)
  rows = report(args)
  print(tabulate.table(rows, COLUMNS))
  output = args.output or pathlib.Path(args.workdir, "relvar_report.jsonl")
  output.parent.mkdir(parents=True, exist_ok=True)
  output.write_text("".join(json.dumps(row) + "\n" for row in rows))
  return 0


if __name__ == "__main__":
  try:
    sys.exit(main())
  except UserError as error:
    sys.exit(f"relvar_report: {error}")
