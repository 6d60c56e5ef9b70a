"""The bytes that a step must at least read and write, as reports show them."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.compile_report import floor
from largevocab.heads import Full, Sampled
from largevocab.labels import Targets
from largevocab.rows import SGD, Adagrad, Adam, RowwiseAdagrad

N, P, V, D, M = 4, 1, 50, 8, 3
FLOAT = 4  # bytes
TABLES = {SGD: 1, RowwiseAdagrad: 1, Adagrad: 2, Adam: 3}  # of the width of the rows


def floor_of(head):
  state = head.init(jax.random.key(0), jnp.ones(V, int), D)
  y = Targets(jnp.zeros((N, P), int), jnp.ones((N, P)), jnp.zeros(N, int))
  return floor(head, state, (jnp.zeros((N, D)), y, jax.random.key(0)))


@pytest.mark.parametrize("optimizer", TABLES)
def test_floor_reads_and_writes_rows_of_every_table_once(optimizer):
  head = Sampled(num_samples=M, bias=False, optimizer=optimizer())
  rows = (2 * TABLES[optimizer] + 1) * (N * P + M) * D  # and their gradient is written
  assert floor_of(head) == FLOAT * (2 * N * D + rows)


def test_floor_also_reads_a_dense_gradient():
  head = Full(bias=False)
  assert floor_of(head) == FLOAT * (2 * N * D + 3 * V * D)
