"""Reports the noise of sampled gradients of a trained model, next to that of batches.

  python -m largevocab.tools.gradient_report --workdir=runs/ptb --output=found.jsonl \\
    unigram:num_samples=20:per_example=true pps:num_samples=512 \\
    importance/unigram:num_samples=20:per_example=true

Each argument is a sampler, or a loss and a sampler, with fields of the sampler or of
the head. G is the gradient of a batch's mean loss under the exact softmax, and G~ is
the gradient under the head with one draw. Both are with respect to the class rows, and
to the parameters of the network. Squares are summed over components:

  noise  Var(G~) over draws, mean over batches, relative to Var(G) over batches: at 1, a
         step has twice the variance of an exact step
  bias   |E G~ - G|^2 over draws, mean over batches, relative to the same Var(G)
  sign   share of the non-zero components of G~ that have the same sign as in G

`noise_rows`, `bias_rows` and `sign_rows` are for the class rows; `noise_network` and
the like are for the network. Batches are those of evaluation on the validation data.
Statistics are rebuilt from the class table, as after several refreshes.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from largevocab.data.batches import Batch
from largevocab.errors import UserError
from largevocab.heads import Full, Sampled
from largevocab.heads.full import FullState
from largevocab.rows import Table
from largevocab.tools import entry
from largevocab.tools.reports.head_report import (
  DRAWS,
  LOSSES_TOO,
  parse,
  report,
)
from largevocab.tools.reports.specs import sampled_head
from largevocab.tools.reports.trained import Trained, fresh_state
from largevocab.tools.sweeps.records import Record
from largevocab.training.activations import activations
from largevocab.training.input_rows import look_up

PARTS = ("rows", "network")
COLUMNS = [f"{what}_{part}" for part in PARTS for what in ("noise", "bias", "sign")]
KEY = jax.random.key(0)


class Gradient(NamedTuple):
  """The gradient of the mean loss of a batch.

  Attributes:
    rows: f32[V, D], with respect to the class rows.
    network: f32[P], with respect to all parameters of the network.
  """

  rows: jax.Array
  network: jax.Array


class Exact(NamedTuple):
  """A batch, the recurrent state before it, and the gradient of the exact softmax."""

  batch: Batch
  carry: Any
  gradient: Gradient


class Given(NamedTuple):
  """A trained model, batches, and the variance of the exact gradient over batches.

  The variance is summed over components.
  """

  model: Trained
  batches: list[Exact]
  variance: dict[str, float]


def gradients(model: Trained, head: Any, state: Any) -> Callable[..., Gradient]:
  """Compiles the gradient of a batch, given the recurrent state before it and a key."""
  exp, now = model.exp, model.state

  @jax.jit
  def gradient(batch, carry, key):
    rows_BTE = look_up(exp, now.inputs, now.head, batch.x)
    network = lambda params: activations(exp, params, rows_BTE, carry, batch)[0]
    h_ND, pull_back = jax.vjp(network, now.params)
    step = head.backward(state, h_ND, batch.y, key)
    rows_VD = step.grads
    if isinstance(head, Sampled):
      few = step.grads.rows
      rows_VD = jnp.zeros(model.w_VD.shape, few.rows_RD.dtype)
      rows_VD = rows_VD.at[few.ids_R].add(few.rows_RD, mode="drop")
    return Gradient(rows_VD, ravel_pytree(pull_back(step.dh_ND))[0])

  return gradient


def read(model: Trained, args: argparse.Namespace) -> Given:
  """Reads args.batches batches spread over the validation data, or all if fewer."""
  exp, now, like = model.exp, model.state, model.head
  full = Full(bias=like.bias, absolute=like.absolute, dtype=like.dtype)
  exact = gradients(model, full, FullState(Table(model.w_VD, {}, jnp.int32(0))))

  @jax.jit
  def after(carry, batch):
    rows_BTE = look_up(exp, now.inputs, now.head, batch.x)
    return activations(exp, now.params, rows_BTE, carry, batch)[1]

  batches = model.batches()
  if (num := min(args.batches, len(batches))) < 2:
    raise UserError(
      f"{args.workdir} evaluates a single batch, which has no variance: choose "
      "a run with a smaller eval.batch_size"
    )
  wanted = set(np.linspace(0, len(batches) - 1, num).astype(int).tolist())
  carry, found = exp.model.initial_carry(batches.batch_size), []
  for number, batch in enumerate(batches):
    if number in wanted:
      found.append(Exact(batch, carry, exact(batch, carry, KEY)))
    carry = after(carry, batch)
  of_part = lambda part: [getattr(each.gradient, part) for each in found]
  return Given(model, found, {part: variance(of_part(part)) for part in PARTS})


def variance(arrays: list[jax.Array]) -> float:
  """The variance over arrays of the same shape, summed over components.

  >>> variance([jnp.array([1.0, 0.0]), jnp.array([3.0, 2.0])])
  4.0
  """
  mean = sum(arrays) / len(arrays)
  squares = sum(float(jnp.sum((array - mean) ** 2)) for array in arrays)
  return squares / (len(arrays) - 1)


def figures(head: Sampled, given: Given, draws: int) -> Record:
  """The measurements of one head; see the module docstring."""
  state = fresh_state(head, given.model.data.counts, given.model.w_VD)
  drawn = gradients(given.model, head, state)
  parts = [part for part in PARTS if given.variance[part] > 0]  # those with parameters
  found: dict[str, list[float]] = {}
  for number, (batch, carry, exact) in enumerate(given.batches):
    keys = jax.random.split(jax.random.fold_in(KEY, number), draws)
    got = [drawn(batch, carry, key) for key in keys]
    for part in parts:
      arrays, true = [getattr(each, part) for each in got], getattr(exact, part)
      noise, mean = variance(arrays), sum(arrays) / draws
      # |mean - true|^2 also contains the variance of a mean over few draws.
      bias = float(jnp.sum((mean - true) ** 2)) - noise / draws
      scale = given.variance[part]
      signs = [agreement(array, true) for array in arrays]
      of_part = {"noise": noise / scale, "bias": bias / scale}
      of_part["sign"] = sum(signs) / draws
      for name, value in of_part.items():
        found.setdefault(f"{name}_{part}", []).append(value)
  means = {name: float(np.mean(values)) for name, values in found.items()}
  return {**means, "batches": len(given.batches)}


def agreement(got: jax.Array, true: jax.Array) -> float:
  """Share of the non-zero components that have the true sign.

  >>> agreement(jnp.array([1.0, -2.0, 0.0, 3.0]), jnp.array([0.1, 2.0, -1.0, 1.0]))
  0.6666666865348816
  """
  return float(jnp.mean(jnp.sign(got) == jnp.sign(true), where=got != 0))


def main(argv: list[str] | None = None) -> int:
  numbers = {"batches": (32, "number of batches"), "draws": (8, DRAWS)}
  args = parse("gradient_report", __doc__, argv, LOSSES_TOO, **numbers)
  entry.check_counts(args, *numbers, least=2)  # one has no variance
  measured = lambda head, given: figures(head, given, args.draws)
  report(args, sampled_head, read, measured, COLUMNS)
  return 0


def cli() -> int:
  return entry.run("gradient_report", main)


if __name__ == "__main__":
  sys.exit(cli())
