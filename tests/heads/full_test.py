import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads.full import Full
from largevocab.labels import Targets, single_targets
from largevocab.rows import Adagrad
from tests.long import others_long

N, V, D = 6, 13, 5
METHODS = ["reference", "tiles", "examples", "classes"]
KEY = jax.random.key(0)
backward = jax.jit(Full.backward, static_argnums=0)
update = jax.jit(Full.update, static_argnums=0)


def batch(seed=0):
  rng = np.random.default_rng(seed)
  h_ND = rng.standard_normal((N, D)).astype(np.float32)
  y = single_targets(rng.integers(0, V, N), rng.uniform(0.1, 1, N).astype(np.float32))
  return jnp.asarray(h_ND), y


def started(head, h_ND, y):
  """State after one step, so that biases are not 0."""
  state = head.init(KEY, np.ones(V, int), D)
  return update(head, state, backward(head, state, h_ND, y, KEY).grads, 1.0, 1.0)


def dense_log_p(head, w_VD, h_ND):
  o_NV = h_ND @ w_VD[:, :D].T
  if head.bias:
    o_NV += w_VD[:, D][None, :]
  return jax.nn.log_softmax(jnp.abs(o_NV) if head.absolute else o_NV)


@pytest.mark.parametrize(
  ("method", "bias", "absolute"),
  others_long(
    [(method, bias, not bias) for method in METHODS for bias in (True, False)],
    [(method, True, False) for method in METHODS],
  ),
)
def test_backward_is_the_gradient_of_the_mean_loss(method, bias, absolute):
  head = Full(bias=bias, absolute=absolute, method=method)
  h_ND, y = batch()
  state = started(head, h_ND, y)

  def mean_loss(h_ND, w_VD):
    log_p_NV = dense_log_p(head, w_VD, h_ND)
    w_N = y.w_NP[:, 0]
    return -(w_N * log_p_NV[jnp.arange(N), y.ids_NP[:, 0]]).sum() / w_N.sum()

  w_VD = state.table.w_VD
  loss, (dh_ND, dw_VD) = jax.jit(jax.value_and_grad(mean_loss, (0, 1)))(h_ND, w_VD)
  step = backward(head, state, h_ND, y, KEY)
  np.testing.assert_allclose(step.loss, loss, rtol=1e-5)
  np.testing.assert_allclose(step.dh_ND, dh_ND, atol=1e-5)
  np.testing.assert_allclose(step.grads, dw_VD, atol=1e-5)
  np.testing.assert_allclose(step.sq_norm, (dw_VD**2).sum(), rtol=1e-5)


@pytest.mark.parametrize(("bias", "absolute"), [(True, False), (False, True)])
def test_evaluate_and_top_k_equal_dense_log_probabilities(bias, absolute):
  head = Full(bias=bias, absolute=absolute)
  h_ND, y = batch()
  state = started(head, h_ND, y)
  log_p_NV = dense_log_p(head, state.table.w_VD, h_ND)
  nll_N = head.evaluate(state, h_ND, y)["nll"]
  np.testing.assert_allclose(
    nll_N, -log_p_NV[jnp.arange(N), y.ids_NP[:, 0]], rtol=1e-5, atol=1e-6
  )
  ids_NK, score_NK = head.top_k(state, h_ND, 4)
  want_NK, want_ids_NK = jax.lax.top_k(log_p_NV, 4)
  np.testing.assert_array_equal(ids_NK, want_ids_NK)
  np.testing.assert_allclose(score_NK, want_NK, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [Full().optimizer, Adagrad()])
def test_training_learns_and_keeps_padding_columns_at_0(optimizer):
  head = Full(optimizer=optimizer)
  h_ND, y = batch()
  state = head.init(KEY, np.ones(V, int), D)
  before = head.evaluate(state, h_ND, y)["nll"].mean()
  update = jax.jit(head.update)
  for _ in range(30):
    state = update(state, backward(head, state, h_ND, y, KEY).grads, 0.5, 1.0)
  assert head.evaluate(state, h_ND, y)["nll"].mean() < 0.5 * before
  assert state.table.w_VD[:, D].any()
  assert not state.table.w_VD[:, D + 1 :].any()


def test_lr_0_keeps_the_table_and_scale_multiplies_the_gradient():
  head = Full()
  h_ND, y = batch()
  state = head.init(KEY, np.ones(V, int), D)
  g_VD = head.backward(state, h_ND, y, KEY).grads
  w_VD = state.table.w_VD
  np.testing.assert_array_equal(head.update(state, g_VD, 0.0, 1.0).table.w_VD, w_VD)
  moved_VD = head.update(state, g_VD, 0.5, 0.25).table.w_VD
  np.testing.assert_allclose(moved_VD, w_VD - 0.125 * g_VD, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_batch_without_weight_makes_no_step(method):
  head = Full(method=method)
  h_ND, y = batch()
  state = started(head, h_ND, y)
  y = Targets(y.ids_NP, jnp.zeros_like(y.w_NP), y.context_N)
  step = backward(head, state, h_ND, y, KEY)
  assert step.loss == step.sq_norm == 0
  assert not step.dh_ND.any()
  assert not step.grads.any()
  assert not head.evaluate(state, h_ND, y)["nll"].any()


def test_rows_start_uniform_and_biases_at_0():
  w_VD = Full(init_scale=0.1).init(KEY, np.ones(1000, int), 8).table.w_VD
  assert 0.099 < jnp.abs(w_VD[:, :8]).max() <= 0.1
  assert abs(w_VD[:, :8].mean()) < 0.005
  assert not w_VD[:, 8:].any()


def test_plan_is_logged(caplog):
  h_ND, y = batch()
  head = Full()
  with caplog.at_level(logging.INFO, "largevocab"):
    head.backward(head.init(KEY, np.ones(V, int), D), h_ND, y, KEY)
  assert "exact softmax by tiles: 6 x 13 logits at a time, once" in caplog.text


@pytest.mark.parametrize(
  ("field", "value"), [("method", "fast"), ("dtype", "float16"), ("budget_mib", -1)]
)
def test_bad_fields_are_named(field, value):
  with pytest.raises(UserError, match=rf"^Full\.{field} is {value!r}; it must"):
    Full(**{field: value})
