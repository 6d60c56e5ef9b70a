"""Layouts of the training state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

from largevocab import config
from largevocab.placement import placed, row_major
from largevocab.training.state import init_state
from largevocab.training.step import compiled_steps
from tests.long import others_long

BY_COLUMNS = Layout(major_to_minor=(1, 0))


def test_only_matrices_get_a_format():
  tree = {"w": jnp.ones((3, 2)), "b": jnp.ones(3), "t": jnp.ones((2, 2, 2))}
  how = row_major(tree)
  assert how["w"].layout.major_to_minor == (0, 1)
  assert how["b"] is how["t"] is None


def experiment(head):
  return config.build(
    config.experiment(
      runlocal=True,
      data=config.part("data", "zipf"),
      model=config.part("model", "lstm"),
      head=config.head(head),
      optimizer=config.part("optimizer", "adagrad"),
    )
  )


def test_arrays_of_numpy_are_placed():
  assert isinstance(placed({"a": np.zeros(3)}, {"a": None})["a"], jax.Array)


@pytest.mark.parametrize(
  "head",
  others_long(["sampled/quadratic_prior", "huffman", "full"], ["huffman"]),
)
def test_the_second_step_compiles_nothing(head):
  """The first state is committed to a device, as are the results of programs."""
  exp = experiment(head)
  data = exp.data.load()
  state, step, refresh = compiled_steps(exp, init_state(exp, data))
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  for number in range(3):
    state = step(state, batches.batch(number), 0.1)
    state = state._replace(head=refresh(state.head, jax.random.key(0)))
  assert step._cache_size() == refresh._cache_size() == 1


@pytest.mark.parametrize(
  ("head", "is_sparse"),
  others_long(
    [("sampled/pps", True), ("huffman", True), ("full", False)],
    [("sampled/pps", True), ("full", False)],
  ),
)
def test_steps_make_sparse_tables_row_major_and_leave_dense_ones(head, is_sparse):
  """Starts from column-major states, as on a TPU by default; numbers do not change."""
  exp = experiment(head)
  data = exp.data.load()
  batch = data.training_batches(exp.train.batch_size, exp.train.unroll).batch(0)
  results = []
  for layout in (None, BY_COLUMNS):
    state = init_state(exp, data)
    if layout is not None:
      by_columns = lambda x: (
        jax.device_put(x, Format(layout, x.sharding)) if x.ndim == 2 else x  # noqa: B023
      )
      state = state._replace(head=jax.tree.map(by_columns, state.head))
    state, step, refresh = compiled_steps(exp, state)
    state = step(state, batch, 0.1)
    head_state = refresh(state.head, jax.random.key(0))
    results.append(jax.tree.map(np.asarray, jax.tree.leaves(head_state)))
    if is_sparse:
      matrices = [x for x in jax.tree.leaves(head_state) if x.ndim == 2]
      assert {x.format.layout.major_to_minor for x in matrices} == {(0, 1)}
  for a, b in zip(*results, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
