import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from largevocab.data.batches import EvaluationBatches, TokenBatches
from largevocab.errors import UserError


def test_streams_are_contiguous_and_inputs_are_the_previous_tokens():
  tokens = np.arange(100, 123, dtype=np.int32)
  batches = TokenBatches(tokens, batch_size=3, unroll=2, first=7)
  assert batches.steps_per_epoch == 3
  steps = [batches.batch(step) for step in range(3)]
  y = np.concatenate([b.y.ids_NP.reshape(3, 2) for b in steps], axis=1)
  x = np.concatenate([b.x for b in steps], axis=1)
  np.testing.assert_array_equal(y, tokens[:21].reshape(3, 7)[:, :6])
  np.testing.assert_array_equal(x, np.append(7, tokens)[:21].reshape(3, 7)[:, :6])


def test_batch_is_a_pure_function_of_the_global_step():
  batches = TokenBatches(np.arange(40, dtype=np.int32), 2, 4, first=0)
  assert batches.steps_per_epoch == 5
  for step in (7, 2, 12):
    batch = batches.batch(step)
    np.testing.assert_array_equal(batch.x, batches.batch(step % 5).x)
    assert not batch.start
  assert batches.batch(0).start
  assert batches.batch(5).start
  assert batches.batch(10).start


def test_batches_have_the_right_types_and_shapes():
  batch = TokenBatches(np.arange(40, dtype=np.int32), 2, 4, first=0).batch(3)
  assert batch.x.shape == (2, 4)
  assert batch.x.dtype == batch.y.ids_NP.dtype == batch.y.context_N.dtype == np.int32
  assert batch.y.w_NP.dtype == np.float32
  assert batch.y.ids_NP.shape == batch.y.w_NP.shape == (8, 1)
  assert isinstance(batch.start, np.bool_)
  np.testing.assert_array_equal(batch.y.context_N, batch.x.ravel())


def test_memory_mapped_tokens_give_plain_arrays(tmp_path):
  np.save(tmp_path / "tokens.npy", np.arange(40, dtype=np.int32))
  tokens = np.load(tmp_path / "tokens.npy", mmap_mode="r")
  for batch in (
    TokenBatches(tokens, 2, 4, first=0).batch(1),
    next(iter(EvaluationBatches(tokens, 2, 4, first=0))),
  ):
    assert type(batch.x) is np.ndarray
    assert type(batch.y.ids_NP) is np.ndarray
    assert batch.x.flags.owndata or batch.x.base is not tokens


def test_too_short_text_is_refused_with_the_remedy():
  with pytest.raises(UserError, match=r"19 tokens.*5 \* 4: reduce"):
    TokenBatches(np.arange(19), 5, 4, first=0)
  TokenBatches(np.arange(20), 5, 4, first=0)


@pytest.mark.parametrize(("batch_size", "unroll"), [(0, 3), (3, 0)])
def test_batch_shape_must_be_positive(batch_size, unroll):
  with pytest.raises(UserError, match="at least 1"):
    TokenBatches(np.arange(9), batch_size, unroll, first=0)
  with pytest.raises(UserError, match="at least 1"):
    EvaluationBatches(np.arange(9), batch_size, unroll, first=0)


def test_empty_text_is_refused_for_evaluation():
  with pytest.raises(UserError, match="no tokens"):
    EvaluationBatches(np.arange(0), 1, 1, first=0)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 9))
def test_evaluation_reads_every_token_once_with_its_predecessor(length, b, t):
  tokens = np.arange(1000, 1000 + length, dtype=np.int32)
  batches = EvaluationBatches(tokens, b, t, first=5)
  read = list(batches)
  assert len(read) == len(batches)
  seen = {}
  for number, batch in enumerate(read):
    assert batch.x.shape == (b, t)
    assert batch.start == (number == 0)
    assert set(np.unique(batch.y.w_NP)) <= {0.0, 1.0}
    for y, w, x in zip(*(a.ravel() for a in batch.y), strict=True):
      if w:
        assert y not in seen
        seen[y] = x
      else:
        assert (x, y) == (5, 5)
  assert sorted(seen) == tokens.tolist()
  assert seen.pop(1000) == 5
  assert all(x == y - 1 for y, x in seen.items())


def test_evaluation_streams_continue_across_batches():
  batches = EvaluationBatches(np.arange(12, dtype=np.int32), 2, 3, first=5)
  rows = np.concatenate([b.y.ids_NP.reshape(2, 3) for b in batches], axis=1)
  np.testing.assert_array_equal(rows, np.arange(12).reshape(2, 6))
