"""Tests specific to the differentiated softmax."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads.d_softmax import DSoftmax
from largevocab.labels import single_targets
from tests.long import others_long

KEY = jax.random.key(0)
V, D, CUTOFFS = 37, 200, (3, 9, 17, 26)
COUNTS = np.random.default_rng(0).permutation(np.arange(1, V + 1))
both = pytest.mark.parametrize("projected", [False, True])
backward = jax.jit(DSoftmax.backward, static_argnums=0)


def batch(num, num_classes=V, dim=D):
  rng = np.random.default_rng(1)
  h_ND = jnp.asarray(rng.standard_normal((num, dim)), jnp.float32)
  return h_ND, single_targets(rng.integers(0, num_classes, num))


@both
def test_rare_classes_have_narrower_rows(projected):
  head = DSoftmax(cutoffs=CUTOFFS, projected=projected)
  state = head.init(KEY, COUNTS, D)
  widths = state.widths
  assert [len(table.w_VD) for table in state.rows] == [3, 6, 8, 9, 11]
  assert all(a >= b >= 1 for a, b in itertools.pairwise(widths))
  assert (widths[0] == D) if projected else (sum(widths) == D)
  assert [table.w_VD.shape for table in state.downs] == (
    [(width, D) for width in widths[1:]] if projected else []
  )
  part_V = np.searchsorted(CUTOFFS, state.place_V, side="right")
  rank_V = np.argsort(np.argsort(-COUNTS))
  np.testing.assert_array_equal(part_V, np.searchsorted(CUTOFFS, rank_V, side="right"))


@pytest.mark.parametrize(
  ("projected", "bias"),
  others_long([(False, True), (True, False)], [(True, False)]),
)
def test_class_rows_have_the_logits_and_probabilities_sum_to_one(projected, bias):
  head = DSoftmax(cutoffs=CUTOFFS, projected=projected, bias=bias, init_scale=0.3)
  state = head.init(KEY, COUNTS, D)
  state = head.update(state, backward(head, state, *batch(8), KEY).grads, 1.0, 1.0)
  h_ND = jnp.repeat(batch(1)[0], V, axis=0)
  rows_RD = jax.jit(head.class_rows)(state, jnp.arange(V))
  log_p_V = jax.nn.log_softmax(rows_RD @ head.features(h_ND)[0])
  nll_N = jax.jit(head.evaluate)(state, h_ND, single_targets(np.arange(V)))["nll"]
  np.testing.assert_allclose(jnp.exp(-nll_N).sum(), 1, rtol=1e-5)
  np.testing.assert_allclose(-nll_N, log_p_V, atol=2e-5)
  assert rows_RD.shape == (V, 208 if bias else D)


def test_chunks_change_nothing_and_never_hold_all_logits():
  N, V, D = 64, 20_000, 8
  counts = np.arange(V) % 1000
  h_ND, y = batch(N, V, D)
  steps, temp_bytes = [], []
  for mib in (64, 1):
    head = DSoftmax(cutoffs=(1000, 5001), projected=True, budget_mib=mib)
    state = head.init(KEY, counts, D)
    program = backward.lower(head, state, h_ND, y, KEY).compile()
    steps.append(program(state, h_ND, y, KEY))
    temp_bytes.append(program.memory_analysis().temp_size_in_bytes)
  for a, b in zip(*map(jax.tree.leaves, steps), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
  assert temp_bytes[1] < 4 * N * V / 2 < temp_bytes[0]


@pytest.mark.parametrize(
  "method", others_long(["classes", "examples", "tiles"], ["classes"])
)
def test_methods_agree(method):
  h_ND, y = batch(8)
  steps = []
  for each in ("reference", method):
    head = DSoftmax(cutoffs=CUTOFFS, projected=True, method=each)
    steps.append(backward(head, head.init(KEY, COUNTS, D), h_ND, y, KEY))
  for a, b in zip(*map(jax.tree.leaves, steps), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


def test_smaller_ids_come_first_among_equal_classes():
  head = DSoftmax(cutoffs=CUTOFFS, init_scale=0.0)
  state = head.init(KEY, COUNTS, D)
  top_k = jax.jit(head.top_k, static_argnums=2)
  ids_NK, log_p_NK = top_k(state, batch(2)[0], 20)
  np.testing.assert_array_equal(ids_NK, np.tile(np.arange(20), (2, 1)))
  np.testing.assert_allclose(log_p_NK, -np.log(V), rtol=1e-6)


def test_fewer_columns_than_parts_are_refused():
  message = r"head\.cutoffs: 5 parts cannot share the 4 columns"
  with pytest.raises(UserError, match=message):
    DSoftmax(cutoffs=CUTOFFS).init(KEY, COUNTS, 4)
  DSoftmax(cutoffs=CUTOFFS, projected=True).init(KEY, COUNTS, 4)


@pytest.mark.parametrize(("field", "value"), [("dtype", "float16"), ("budget_mib", -1)])
def test_bad_fields_are_named(field, value):
  with pytest.raises(UserError, match=rf"^DSoftmax\.{field} is {value!r}; it must"):
    DSoftmax(**{field: value})
