"""The benchmark of hash tables, at a tiny size."""

import jax
import pytest

from benchmarks import lsh
from largevocab.samplers import LSHEmbedding, LSHLabel
from tests.long import others_long


@pytest.mark.parametrize(
  "sampler", others_long([LSHEmbedding(), LSHLabel()], [LSHEmbedding()])
)
def test_timed_function_draws(sampler):
  draw = lsh._draws(sampler, V=2000, D=16, m=8)()
  assert draw.ids.shape == (lsh.N, 8)
  assert (jax.numpy.bincount(draw.ids.ravel(), length=2000) > 0).sum() > 100


def test_timed_step_moves_rows_and_brings_them_back():
  step, back = lsh._rehash(V=2000, D=16, R=64)
  assert int(step.state.updates) == 2
  assert back > 0.95  # rows that passed through took a few of their slots
