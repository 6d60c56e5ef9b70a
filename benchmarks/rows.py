"""Benchmarks of row-sparse steps."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.case import Case, check_close
from benchmarks.zipf import zipf_batch, zipf_counts, zipf_ids
from largevocab.heads import Sampled
from largevocab.rows import SGD, Adagrad, Adam, RowOptimizer, Table, row_grads
from largevocab.tools.reports.measure import LR, Stepper, compare, row_step


def dense_step(head: Sampled, lr: float = LR) -> Callable[..., Any]:
  """A step by autodiff, with a dense gradient of the table and a dense update."""
  tx = head.optimizer.transformation()

  def step(carry, h_ND, y, key):
    state, opt = carry

    def loss(w_VD, h_ND):
      moved = state._replace(table=state.table._replace(w_VD=w_VD))
      return head.backward(moved, h_ND, y, key).loss

    w_VD = state.table.w_VD
    dw_VD, dh_ND = jax.grad(loss, (0, 1))(w_VD, h_ND)
    direction, opt = tx.update(dw_VD, opt)
    w_VD = w_VD - lr * jnp.asarray(direction)
    return (state._replace(table=state.table._replace(w_VD=w_VD)), opt), dh_ND

  return step


def sampled_step(D: int = 64, N: int = 256, M: int = 1024) -> Iterator[Case]:
  """A `pps` step with row-sparse Adagrad: dense / row-sparse, and V = 1 M / 10 k.

  Goals: at V = 1 M at least 50 times as fast as the dense step, and at most 1.3 times
  as long as at V = 10 k.
  """
  head = Sampled(num_samples=M, optimizer=Adagrad())
  sizes = {"D": D, "N": N, "M": M}
  steppers = {}
  for V in (10_000, 1_000_000):
    counts = zipf_counts(V)
    state = head.init(jax.random.key(0), counts, D)
    rows = steppers[V] = Stepper(row_step(head), state, *zipf_batch(N, V, D))
    state = head.init(jax.random.key(0), counts, D)
    opt = head.optimizer.transformation().init(state.table.w_VD)
    dense = Stepper(dense_step(head), (state, opt), *zipf_batch(N, V, D))
    errors = [
      check_close(rows().table.w_VD, dense()[0].table.w_VD, 1e-4) for _ in range(3)
    ]
    goal = {"at_least": 50} if V == 1_000_000 else {}
    yield Case(
      f"sampled step, dense autodiff / rows, V={V:,}",
      {**sizes, "error": max(errors)},
      {**compare(dense, rows), **goal},
    )
    del dense, state, opt
  figures = compare(steppers[1_000_000], steppers[10_000])
  yield Case("sampled step, V=1,000,000 / V=10,000", sizes, {**figures, "at_most": 1.3})


def row_update(V: int = 800_000, D: int = 200, R: int = 1512) -> Iterator[Case]:
  """The update alone: dense optax / R touched rows. Goal: a ratio of at least 40."""
  ids_R = zipf_ids(R, V)
  rows_RD = jax.random.normal(jax.random.key(0), (R, D))
  optimizers: dict[str, RowOptimizer] = {
    "sgd": SGD(),
    "adagrad": Adagrad(),
    "adam": Adam(),
  }
  for name, optimizer in optimizers.items():
    tx = optimizer.transformation()

    def sparse(table: Table, ids_R, rows_RD, optimizer=optimizer):
      grads = row_grads(ids_R, rows_RD, V)
      return optimizer.update(table, grads, LR, 1.0), None

    def dense(carry, ids_R, rows_RD, tx=tx):
      w_VD, opt = carry
      g_VD = jnp.zeros_like(w_VD).at[ids_R].add(rows_RD)
      direction, opt = tx.update(g_VD, opt)
      return (w_VD - LR * jnp.asarray(direction), opt), None

    rows = Stepper(sparse, optimizer.init(jnp.ones((V, D))), ids_R, rows_RD)
    w_VD = jnp.ones((V, D))
    whole = Stepper(dense, (w_VD, tx.init(w_VD)), ids_R, rows_RD)
    del w_VD
    errors = [check_close(rows().w_VD, whole()[0], 1e-4) for _ in range(3)]
    yield Case(
      f"{name} update, dense optax / {R:,} rows, V={V:,} D={D}",
      {"R": R, "error": max(errors)},
      {**compare(whole, rows), "at_least": 40},
    )
    del rows, whole


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "sampled_step": sampled_step,
  "row_update": row_update,
}
