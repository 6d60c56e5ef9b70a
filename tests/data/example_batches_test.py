import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.data.example_batches import HeldOutExamples, ShuffledExamples
from largevocab.data.items.next_item import ItemRows
from largevocab.errors import UserError


def examples(n):
  """Identifiable rows: (10 n, 10 n + 1, 10 n + 2; n)."""
  n_N = np.arange(n, dtype=np.int32)
  return ItemRows(np.stack([10 * n_N, 10 * n_N + 1, 10 * n_N + 2, n_N], axis=1))


def epoch(batches, number):
  steps = range(batches.steps_per_epoch)
  first = number * batches.steps_per_epoch
  return [batches.batch(first + step) for step in steps]


def ids_of(read):
  return np.concatenate([batch.y.ids_NP[:, 0] for batch in read])


def test_epoch_reads_no_example_twice_and_omits_few():
  batches = ShuffledExamples(examples(23), batch_size=5, seed=0)
  orders = [ids_of(epoch(batches, number)) for number in range(4)]
  for order in orders:
    assert len(order) == len(set(order)) == 20
  assert len({tuple(order) for order in orders}) == 4
  assert set(np.concatenate(orders)) == set(
    range(23)
  )  # each epoch omits other examples


def test_rows_hold_the_previous_items_and_the_next_item():
  for batch in epoch(ShuffledExamples(examples(12), batch_size=4, seed=1), 2):
    id_B = batch.y.ids_NP[:, 0]
    np.testing.assert_array_equal(batch.x, examples(12).rows[id_B, :3])
    np.testing.assert_array_equal(batch.y.context_N, 10 * id_B + 2)
    np.testing.assert_array_equal(batch.y.w_NP, np.ones((4, 1)))


def test_batch_is_a_pure_function_of_seed_and_step():
  one, other = (ShuffledExamples(examples(40), 4, seed) for seed in (0, 1))
  expected = {step: one.batch(step).x for step in range(25)}
  assert not np.array_equal(expected[0], other.batch(0).x)
  again = ShuffledExamples(examples(40), 4, seed=0)
  for step in (24, 3, 11, 0):
    np.testing.assert_array_equal(again.batch(step).x, expected[step])


def test_batches_have_the_right_types_and_shapes(tmp_path):
  np.save(tmp_path / "rows.npy", examples(9).rows)
  rows = ItemRows(np.load(tmp_path / "rows.npy", mmap_mode="r"))
  for batch in (ShuffledExamples(rows, 4, 0).batch(1), *HeldOutExamples(rows, 4)):
    assert type(batch.x) is type(batch.y.ids_NP) is np.ndarray
    assert batch.x.dtype == batch.y.ids_NP.dtype == batch.y.context_N.dtype == np.int32
    assert batch.y.w_NP.dtype == np.float32
    assert batch.x.shape == (4, 3)
    assert batch.y.ids_NP.shape == batch.y.w_NP.shape == (4, 1)
    assert batch.y.context_N.shape == (4,)
    assert isinstance(batch.start, np.bool_)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9))
def test_evaluation_reads_every_example_once_in_order(n, b):
  batches = HeldOutExamples(examples(n), b)
  read = list(batches)
  assert len(read) == len(batches)
  weight = np.concatenate([batch.y.w_NP[:, 0] for batch in read])
  assert ids_of(read)[weight > 0].tolist() == list(range(n))
  assert weight.sum() == n


def test_too_few_examples_are_refused_with_the_remedy():
  with pytest.raises(UserError, match=r"are 4 training examples.*takes 5: reduce"):
    ShuffledExamples(examples(4), 5, 0)
  for make in (lambda: ShuffledExamples(examples(4), 0, 0),
               lambda: HeldOutExamples(examples(4), 0)):  # fmt: skip
    with pytest.raises(UserError, match="at least 1"):
      make()
