import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.labels import Counts
from largevocab.samplers import LogUniform, Unigram
from largevocab.samplers.static import count_weights

W_VD = np.zeros((4, 2), np.float32)


def test_log_uniform_equals_tensorflows_law_if_ids_are_sorted_by_count():
  stats = LogUniform().init(Counts(np.array([9, 5, 5, 1])), W_VD, 1)
  # What tf.random.log_uniform_candidate_sampler documents, for range_max = 4.
  q_V = [(np.log(c + 2) - np.log(c + 1)) / np.log(5) for c in range(4)]
  np.testing.assert_allclose(np.exp(stats.strata.log_expected_V) / 1024, q_V, rtol=1e-5)


def test_smoothing_decides_whether_classes_without_counts_are_drawn():
  counts = Counts(np.array([6, 0, 2, 0]))
  never = np.isinf(Unigram(smoothing=0.0).init(counts, W_VD, 1).strata.log_expected_V)
  assert never.tolist() == [False, True, False, True]
  q_V = np.exp(Unigram().init(counts, W_VD, 1).strata.log_expected_V) / 1024
  np.testing.assert_allclose(q_V, np.array([7, 1, 3, 1]) / 12, rtol=1e-6)


def test_weights_neither_revive_nor_lose_a_class():
  assert count_weights(np.array([3, 0]), 0.0, 0.0).tolist() == [1, 0]
  assert (count_weights(np.array([10**9, 1, 0]), 100.0, 1.0) > 0).all()


@pytest.mark.parametrize("field", ["power", "smoothing"])
def test_negative_fields_are_refused(field):
  with pytest.raises(UserError, match=rf"^Unigram\.{field} is -1; it must"):
    Unigram(**{field: -1})
