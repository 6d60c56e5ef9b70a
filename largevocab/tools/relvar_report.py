"""Reports the error of samplers' partition-function estimates for a trained model.

  python -m largevocab.tools.relvar_report --workdir=runs/ptb --output=results.jsonl \\
    unigram:num_samples=512 unigram:exact_frequent=256:num_samples=256 \\
    bernoulli:inclusion=power:num_samples=512 pps/shuffled:num_samples=512

Each argument is a sampler, with fields of the sampler or of the head `sampled`. For
each, the partition function is estimated --draws times, at positions spread over the
validation data that form one batch. The estimate Z~ is compared with the exact Z:

  relvar      Var(Z~) / Z^2, around the true mean Z
  log_z_bias  E log(Z~ / Z), in nats: the bias of a sampled softmax loss
  classes     mean number of distinct classes in a draw, without the true ones: for the
              whole batch if negatives are shared, or else per example

These are means over positions, and for relvar also medians. `/shuffled` renumbers the
classes at random, since numbering by count makes systematic sampling stratified.
Statistics are rebuilt from the class table, as after several refreshes.
"""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.heads import Full, Sampled
from largevocab.heads.diagnostics import log_normalizer_ratios
from largevocab.labels import Counts, Targets
from largevocab.tools import entry
from largevocab.tools.reports.drawn import drawn_classes
from largevocab.tools.reports.head_report import (
  DRAWS,
  POSITIONS,
  Model,
  examples,
  parse,
  report,
)
from largevocab.tools.reports.positions import Positions
from largevocab.tools.reports.specs import sampled_head
from largevocab.tools.reports.trained import fresh_state
from largevocab.tools.sweeps.records import Record

COLUMNS = ["classes", "relvar", "relvar_median", "log_z_bias"]
SHUFFLED = "shuffled"
KEY = jax.random.key(0)


def head_of(text: str, like: Full | Sampled) -> tuple[Sampled, bool]:
  """The head `sampled` that an argument describes, and whether classes are shuffled."""
  name, colon, settings = text.partition(":")
  name, _, order = name.partition("/")
  if order not in ("", SHUFFLED):
    raise UserError(f"{text}: only {SHUFFLED!r} can follow '/'")
  return sampled_head(name + colon + settings, like), bool(order)


def shuffled(
  counts: Counts, w_VD: jax.Array, positions: Positions
) -> tuple[Counts, jax.Array, Positions]:
  """Renumbers the classes of the data at random."""
  new_V = np.random.default_rng(0).permutation(len(w_VD))  # class c becomes new_V[c]
  old_V = np.argsort(new_V)
  # Ids of padding stay as they are.
  rename = lambda ids: jnp.asarray(np.append(new_V, len(w_VD)), jnp.int32)[ids]
  y = positions.y._replace(ids_NP=rename(positions.y.ids_NP))
  tokens = None
  if counts.tokens is not None:  # contexts are classes
    tokens = new_V[counts.tokens]
    y = y._replace(context_N=rename(y.context_N))
  return (
    Counts(counts.unigram_V[old_V], tokens),
    w_VD[old_V],
    Positions(positions.x_ND, y),
  )


def classes(
  head: Sampled, state: Any, h_ND: jax.Array, y: Targets, key: jax.Array
) -> jax.Array:
  """Number of distinct classes in a draw, without the true ones."""
  drawn = drawn_classes(head, state, h_ND, y, key)
  read_V = jnp.any(drawn.is_drawn_NV, axis=0)
  own_N = jnp.sum(drawn.is_drawn_NV, axis=1)
  return jnp.mean(own_N) if drawn.is_own else jnp.sum(read_V)


def figures(
  head: Sampled, counts: Counts, w_VD: jax.Array, positions: Positions, draws: int
) -> Record:
  """The measurements of one head; see the module docstring."""
  state = fresh_state(head, counts, w_VD)
  h_ND, y = positions
  at_N = np.arange(len(h_ND))
  log_ratios = functools.partial(log_normalizer_ratios, head, at_N=at_N, draws=draws)
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
    "positions": len(h_ND),
  }


def figures_of(draws: int, head: tuple[Sampled, bool], model: Model) -> Record:
  """`figures`, with shuffled classes if requested."""
  given = shuffled(*model) if head[1] else model
  return figures(head[0], *given, draws)


def main(argv: list[str] | None = None) -> int:
  args = parse("relvar_report", __doc__, argv, positions=POSITIONS, draws=(200, DRAWS))
  measured = functools.partial(figures_of, args.draws)
  report(args, head_of, examples, measured, COLUMNS)
  return 0


def cli() -> int:
  return entry.run("relvar_report", main)


if __name__ == "__main__":
  sys.exit(cli())
