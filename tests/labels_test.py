"""Labels as users pass them, and as heads read them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import check_targets, multi_targets, single_targets
from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, as_counts, batch_classes
from largevocab.losses import softmax_cross_entropy


@pytest.mark.parametrize(
  ("ids", "message"),
  [
    ([1, 2**31 + 5], r"label 2147483653 at \[1\] is not a class id"),
    (np.array([2**32 + 3]), r"label 4294967299 at \[0\] is not a class id"),
    ([0.5, 1.0], r"label 0.5 at \[0\] is not a class id"),
    ([0.0, np.nan], r"label nan at \[1\] is not a class id"),
    ([4, 3, 5], r"label 5 at ids_NP\[2, 0\] has a weight, but there are 5 classes"),
    ([4, -1], r"label -1 at ids_NP\[1, 0\] has a weight, but there are 5 classes"),
    (jnp.array([1.9]), "labels are float32: pass class ids as integers"),
    (np.array([True, False]), "labels are of type bool: pass an array of numbers"),
    ([2**70], "labels are of type object: pass an array of numbers"),
    (["a"], "labels are of type <U1: pass an array of numbers"),
    ([None], "labels are of type object: pass an array of numbers"),
    (jnp.array([9]), r"label 9 at ids_NP\[0, 0\] .* pass ids from 0 to 4"),
  ],
)
def test_invalid_label_is_named(ids, message):
  with pytest.raises(UserError, match=message):
    single_targets(ids, num_classes=5)


@pytest.mark.parametrize(
  ("ids", "says"),
  [
    ([[2**40]], r"label 1099511627776 at \[0, 0\] is not a class id"),
    ([[2**70]], "labels are of type object: pass an array of numbers"),
    ([["a"]], "labels are of type <U1"),
    ([[1, 2], [3]], "labels have rows of different lengths: .* -1 as padding"),
    ([[3, 3, 5]], r"label 3 occurs twice in ids_NP\[0\], and would count twice"),
    ([[3, -3]], r"label -3 at ids_NP\[0, 1\] has a weight"),
    (jnp.array([[3, -3]]), r"label -3 at ids_NP\[0, 1\] has a weight"),
    (3, r"ids_NP has shape \(\); it must have the axes \[N, P\]"),
  ],
)
def test_invalid_label_among_several_is_named(ids, says):
  with pytest.raises(ValueError, match=says):
    multi_targets(ids, num_classes=6)


@pytest.mark.parametrize("weight", [[np.nan, 1], jnp.array([jnp.nan, 1])])
def test_weight_that_is_not_finite_is_named(weight):
  with pytest.raises(UserError, match=r"weight nan at \[0(, 0)?\] is not finite"):
    single_targets([1, 2], weight, num_classes=3)
  with pytest.raises(UserError, match="weights are of type <U1"):
    single_targets([1], ["a"])
  assert single_targets([1, 2], [True, False]).w_NP.tolist() == [[1], [0]]


@pytest.mark.parametrize("num_classes", [0, -5, 2.5])
def test_invalid_number_of_classes_is_named(num_classes):
  with pytest.raises(UserError, match=f"num_classes is {num_classes}; it must be"):
    check_targets(single_targets([1]), num_classes)


@pytest.mark.parametrize(
  ("counts", "says"),
  [
    ([], r"counts have shape \(0,\): pass a vector"),
    ([[1, 2]], r"counts have shape \(1, 2\): pass a vector"),
    ([1, -1], "counts must be finite numbers of at least 0"),
    ([1, np.nan], "counts must be finite numbers of at least 0"),
    ([1, np.inf], "counts must be finite numbers of at least 0"),
    (["a"], "counts are of type <U1: pass an array of numbers"),
    ([[1, 2], [3]], "counts have rows of different lengths: pass an array of numbers"),
    ([0.5, 1], "counts must be whole numbers"),
    ([1e19, 1], r"counts add up to 1e\+19, .* must be less than 2\^53: divide all"),
    (np.array([2**63, 1], np.uint64), r"counts add up to 9.22e\+18, .* must be less"),
    ([2**52] * 2, r"counts add up to 9.01e\+15, .* must be less"),
    ([2**62] * 4, r"counts add up to 1.84e\+19, .* must be less"),
  ],
)
@pytest.mark.parametrize("make", [as_counts, Counts])
def test_invalid_counts_are_named(make, counts, says):
  with pytest.raises(UserError, match=says):
    make(counts)


@pytest.mark.parametrize(
  ("fields", "says"),
  [
    ({"tokens": [0.0, 1.0]}, r"tokens are float64\[2\]: pass a vector"),
    ({"tokens": np.array([0.0, 1.0])}, r"tokens are float64\[2\]: pass a vector"),
    ({"tokens": np.array([[0, 1]])}, r"tokens are int64\[1, 2\]: pass a vector"),
    ({"examples": -1}, "Counts.examples is -1; it must be at least 0"),
    ({"examples": 2.5}, "Counts.examples is 2.5; it must be of type int"),
  ],
)
def test_other_fields_of_counts_are_checked(fields, says):
  with pytest.raises(UserError, match=says):
    Counts(np.array([3, 1]), **fields)


def test_counts_are_not_copied():
  assert Counts([1, 2], tokens=[1, 0, 1]).tokens.tolist() == [1, 0, 1]
  count_V = np.array([2**53 - 2, 1])
  assert Counts(count_V).unigram_V is count_V
  assert Counts(np.float32([3, 1])).unigram_V.dtype == np.int64


def test_shares_are_refused_as_counts():
  with pytest.raises(ValueError, match="counts must be whole numbers: multiply"):
    as_counts([0.1, 0.2, 0.7])
  assert as_counts(np.array([2.0, 1.0])).unigram_V.tolist() == [2, 1]


def test_whole_numbers_of_any_type_and_padding_are_valid_labels():
  for ids in ([3, 0], np.array([3.0, 0.0]), np.uint8([3, 0]), jnp.array([3, 0])):
    assert single_targets(ids, num_classes=4).ids_NP.tolist() == [[3], [0]]
  padded = multi_targets([[3, 4, 4], [1, 2, 4]], num_classes=4)
  assert padded.w_NP.tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
  padded = single_targets([3, 4, -1], [1.0, 0.0, 0.0], num_classes=4)
  assert padded.w_NP.tolist() == [[1.0], [0.0], [0.0]]
  assert single_targets([]).ids_NP.shape == (0, 1)
  assert jax.jit(single_targets)(jnp.arange(3)).ids_NP.dtype == jnp.int32


def test_labels_of_a_sequence_must_be_flat():
  with pytest.raises(ValueError, match=r"ids_N has shape .2, 3.*as reshape.-1. does"):
    single_targets(np.zeros((2, 3), int))
  with pytest.raises(ValueError, match=r"weight_N has shape \(2,\), but N = 3"):
    single_targets([1, 2, 3], [1.0, 1.0])


def test_contexts_are_kept_as_given():
  assert single_targets([1, 2], context_N=[5, 6]).context_N.tolist() == [5, 6]
  assert multi_targets([[1], [2]], context_N=jnp.arange(2)).context_N.tolist() == [0, 1]
  assert single_targets([1, 2]).context_N.tolist() == [-1, -1]
  with pytest.raises(ValueError, match=r"context_N has shape \(1,\), but N = 2"):
    single_targets([1, 2], context_N=[5])
  with pytest.raises(UserError, match=r"^context 0\.5 at"):
    single_targets([1, 2], context_N=[0.5, 1])


def test_weights_of_several_labels_sum_to_one_without_padding():
  y = multi_targets([[3, 1, -1], [0, -1, -1], [-1, -1, -1]], num_classes=4)
  assert y.w_NP.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
  assert multi_targets([[3, 1]], [[0.2, 0.7]]).w_NP.dtype == jnp.float32
  with pytest.raises(UserError, match=r"label 5 at ids_NP\[0, 1\]"):
    multi_targets([[3, 5]], num_classes=4)
  with pytest.raises(ValueError, match=r"ids_NP has shape \(2,\)"):
    multi_targets([3, 1], [1.0, 1.0])


def test_labels_beyond_32_bits_do_not_become_another_class():
  with jax.enable_x64(True):
    ids_N = jnp.array([2**32 + 3, 3])
    with pytest.raises(UserError, match=r"label -1 at ids_NP\[0, 0\]"):
      single_targets(ids_N, num_classes=5)
    assert jax.jit(single_targets)(ids_N).ids_NP.tolist() == [[-1], [3]]
    y = multi_targets(ids_N[None])
    assert (y.ids_NP.tolist(), y.w_NP.tolist()) == (
      [[-1, 3]],
      [[0.5, 0.5]],
    )  # so that the loss is NaN


def test_loss_does_not_depend_on_the_weights_of_padding():
  ids_NP, h_ND, w_VD = np.array([[0, 9], [1, -1]]), np.ones((2, 3)), np.ones((5, 3))
  loss = lambda w_NP: softmax_cross_entropy(h_ND, w_VD, ids_NP, w_NP)
  g_NP = jax.grad(loss)(jnp.array([[1.0, 0.0], [0.5, 0.0]]))
  np.testing.assert_allclose(g_NP, np.log(5) * np.eye(2)[[0, 0]], rtol=1e-6)


def test_targets_are_checked_where_they_have_weight():
  ids_NP, w_NP = np.array([[0, 3], [2**32, 3]]), np.array([[1, 0], [0, 0.5]])
  y = Targets(ids_NP, w_NP, np.zeros(2, int))
  check_targets(y, 4)
  with pytest.raises(UserError, match=r"label 3 at ids_NP\[1, 1\]"):
    check_targets(y, 3)
  heavy = y._replace(w_NP=np.ones((2, 2)))
  with pytest.raises(UserError, match=r"label 4294967296 at ids_NP\[1, 0\]"):
    check_targets(heavy, 4)


@pytest.mark.parametrize("shape", [(0, 1), (1, 1), (5, 3)])
def test_batch_classes_are_the_distinct_classes_of_examples_with_weight(shape):
  rng = np.random.default_rng(0)
  for _ in range(5):
    ids_NP = rng.integers(-2, 9, shape).astype(np.int32)  # 7 classes
    w_NP = rng.choice([0.0, 0.5], shape)
    got_T = jax.jit(batch_classes, static_argnums=1)(Targets(ids_NP, w_NP, 0), 7)
    some_NP = ids_NP[w_NP.any(axis=1)]
    want = np.unique(some_NP[(some_NP >= 0) & (some_NP < 7)])
    assert got_T.dtype == jnp.int32
    assert got_T.tolist() == [*want, *(ids_NP.size - len(want)) * [7]]
