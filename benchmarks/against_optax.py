"""Benchmarks against dense gradients and optax: our losses by `jax.grad`, no rows.

As in `against_peers.py`: same arguments, answers compared, the peer above the `/`.
No peer has to be installed.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.against_peers import (
  RATES,
  M,
  batch_of,
  check_first_step,
  our_step,
  rows_and_batch,
  sampled,
  state_of,
  timed,
)
from benchmarks.rows import dense_step
from largevocab.heads import Full
from largevocab.heads.full import FullState
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.plan import Plan, plan
from largevocab.rows import SGD
from largevocab.tools.reports.measure import Case, Stepper, row_step

BUDGET_MIB = 64  # of temporary memory, for the chunks of both


class DenseStep:
  """A step whose state is (that of a head, that of optax), as peers have it."""

  def __init__(self, step: Callable[..., Any], state: Any, opt: Any, h_ND, ids_N):
    self._step = Stepper(step, (state, opt), *batch_of(h_ND, ids_N))

  def __call__(self) -> Any:
    return self._step()

  def results(self) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(self._step.state[0].table.w_VD), np.asarray(self._step.output)


def peers_optax(
  V: int = 800_000, D: int = 200, Ns: Sequence[int] = (512, 2560)
) -> Iterator[Case]:
  """The step of `peers_sampled`. Theirs: `jax.grad` through rows that are looked up
  gives a gradient of the table's size, and optax updates all rows.

  The update is that of `optax.sgd` or `optax.adam`: a direction times the rate. Both
  sides donate their state. The batch is always the same, so that lazy Adam is dense
  Adam: rows that a step names are named by every step.

  Goals: 40 times as slow with SGD, 50 with Adam, 15 where examples are five times as
  many.
  """
  for N in Ns:
    batch = rows_and_batch(V, D, N)
    for name, lr in RATES.items():
      head = sampled(name)
      # optax has moments of its own: a table for SGD has no others.
      state = state_of(dataclasses.replace(head, optimizer=SGD()), batch[0])
      opt = head.optimizer.transformation().init(state.table.w_VD)
      theirs = DenseStep(dense_step(head, lr), state, opt, *batch[1:])
      del state, opt
      ours = our_step(head, lr, *batch)
      error = check_first_step(theirs, ours, batch[0])
      goal = {"sgd": 40.0, "adam": 50.0 if N <= 512 else 15.0}[name]
      what = f"sampled step, {name}: jax + optax / rows"
      yield timed(what, theirs, ours, goal, V=V, D=D, N=N, M=M, error=error)
      del ours, theirs


def gradient_then_optax(how: Plan, tx: optax.GradientTransformation):
  """A step of the exact softmax: the gradient in chunks, and a dense optax update."""

  def step(carry, h_ND, y, key):
    state, opt = carry
    w_VD = state.table.w_VD
    gradients = jax.grad(softmax_loss, (0, 1))
    dh_ND, dw_VD = gradients(h_ND, w_VD, y.ids_NP, y.w_NP / len(h_ND), how)
    updates_VD, opt = tx.update(dw_VD, opt)
    table = state.table._replace(w_VD=optax.apply_updates(w_VD, updates_VD))
    return (state._replace(table=table), opt), dh_ND

  return step


def peers_exact_step(V: int = 100_000, D: int = 512, N: int = 512) -> Iterator[Case]:
  """A step of the exact softmax with SGD: forward, backward, update.

  Each side is one program that donates the table, and both hold a gradient of its
  size: the head does not fuse its update with the chunks. Goal: not slower than optax.
  """
  lr = RATES["sgd"]
  head = Full(bias=False, budget_mib=BUDGET_MIB, optimizer=SGD())
  w_VD, h_ND, ids_N = rows_and_batch(V, D, N)
  start = lambda: FullState(head.optimizer.init(jnp.asarray(w_VD)))
  ours = Stepper(row_step(head, lr), start(), *batch_of(h_ND, ids_N))
  tx = optax.sgd(lr)
  step = gradient_then_optax(plan(N, V, D, BUDGET_MIB * 2**20), tx)
  theirs = DenseStep(step, start(), tx.init(jnp.asarray(w_VD)), h_ND, ids_N)
  error = check_first_step(theirs, ours, w_VD)
  name = "exact step, sgd: chunks + optax / full head"
  yield timed(name, theirs, ours, 1.0, V=V, D=D, N=N, error=error)


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "peers_optax": peers_optax,
  "peers_exact_step": peers_exact_step,
}
