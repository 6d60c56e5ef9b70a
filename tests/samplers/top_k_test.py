"""The hardest negatives, and that an estimate from them alone is biased."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, single_targets
from largevocab.samplers import TopK
from largevocab.samplers.base import Size

KEY = jax.random.key(0)


def problem(num_classes=40, n=5, dim=6):
  rng = np.random.default_rng(0)
  w_VD = jnp.asarray(rng.normal(size=(num_classes, dim)), jnp.float32)
  h_ND = jnp.asarray(rng.normal(size=(n, dim)), jnp.float32)
  y = single_targets(rng.integers(0, num_classes, n))
  return Counts(np.ones(num_classes, int)), w_VD, h_ND, y


sample = jax.jit(TopK.sample, static_argnums=0)


@pytest.mark.parametrize(
  ("m", "absolute"), [(1, True), (7, False), (40, True), (45, False)]
)
def test_largest_logits_come_once_each_and_best_first(m, absolute):
  _, w_VD, h_ND, y = problem()
  draw = sample(TopK(absolute=absolute), Size(m), w_VD, KEY, h_ND, y)
  o_NV = np.asarray(h_ND @ w_VD.T)
  want_NV = np.argsort(-(np.abs(o_NV) if absolute else o_NV), axis=1)
  size = min(m, 40)
  assert draw.ids.shape == draw.mask.shape == (5, m)
  np.testing.assert_array_equal(draw.ids[:, :size], want_NV[:, :size])
  np.testing.assert_array_equal(draw.mask, np.tile(np.arange(m) < size, (5, 1)))
  assert not draw.log_expected.any()


def test_chosen_classes_are_certain_and_others_are_left_out():
  _, w_VD, h_ND, y = problem()
  sampler = TopK()
  first, second = (
    sample(sampler, Size(9), w_VD, key, h_ND, y) for key in jax.random.split(KEY)
  )
  np.testing.assert_array_equal(first.ids, second.ids)
  law_NV = sampler.log_expected(Size(9), w_VD, h_ND, y, jnp.arange(40))
  for law_V, ids_M in zip(law_NV, first.ids, strict=True):
    assert set(np.flatnonzero(law_V == 0)) == set(ids_M.tolist())
    assert np.isneginf(np.delete(law_V, ids_M)).all()


def test_loss_is_too_small_unless_all_classes_are_taken():
  counts, w_VD, h_ND, y = problem()
  o_NV = np.float64(h_ND @ w_VD.T)
  o_N = np.take_along_axis(o_NV, np.asarray(y.ids_NP), 1)[:, 0]
  nll = np.mean(logsumexp(o_NV, axis=1) - o_N)
  for m, exact in [(5, False), (40, True)]:
    head = Sampled(sampler=TopK(), num_samples=m, bias=False)
    state = head.init(KEY, counts, 6)
    state = state._replace(table=state.table._replace(w_VD=w_VD))
    loss = jax.jit(lambda state, head=head: head.backward(state, h_ND, y, KEY).loss)(
      state
    )
    if exact:
      np.testing.assert_allclose(loss, nll, rtol=1e-5)
    else:
      assert loss < nll - 0.05


def test_head_with_other_logits_is_refused():
  with pytest.raises(UserError, match=r"head\.absolute"):
    Sampled(sampler=TopK(absolute=True), num_samples=3)
