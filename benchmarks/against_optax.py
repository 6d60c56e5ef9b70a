"""Benchmarks against optax with dense gradients of our losses by `jax.grad`.

As in `against_peers.py`, both sides have the same arguments, results are compared
first, and the peer is left of the `/`. No other package is needed.
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
from benchmarks.case import Case
from benchmarks.rows import dense_step
from largevocab.heads import Full
from largevocab.heads.full import FullState
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.plan import Plan, plan
from largevocab.rows import SGD
from largevocab.tools.reports.measure import Stepper, row_step

BUDGET_MIB = 64  # temporary memory for the chunks of both sides


class DenseStep:
  """A step with state (head state, optax state) and the interface of a peer."""

  def __init__(self, step: Callable[..., Any], state: Any, opt: Any, h_ND, ids_N):
    self._step = Stepper(step, (state, opt), *batch_of(h_ND, ids_N))

  def __call__(self) -> Any:
    return self._step()

  def results(self) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(self._step.state[0].table.w_VD), np.asarray(self._step.output)


def peers_optax(
  V: int = 800_000, D: int = 200, Ns: Sequence[int] = (512, 2560)
) -> Iterator[Case]:
  """The step of `peers_sampled`: dense gradient and optax / ours.

  The peer uses `jax.grad` with a dense gradient of the table, and optax, which updates
  all rows. The update is that of `optax.sgd` or `optax.adam`: a direction times the
  learning rate. Both sides donate their state. Every step has the same batch and
  touches the same rows, so lazy Adam equals dense Adam.

  Goals: optax takes 40 times as long with SGD, 50 times with Adam, and 15 times with
  Adam on five times as many examples.
  """
  for N in Ns:
    batch = rows_and_batch(V, D, N)
    for name, lr in RATES.items():
      head = sampled(name)
      # optax has its own moments: use a table for SGD, which has none.
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
  """A step of the exact softmax: a gradient in chunks, then a dense optax update."""

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

  Each side is one program that donates the table and holds a gradient of its size, as
  the head does not fuse its update with the chunks. Goal: not slower than optax.
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
