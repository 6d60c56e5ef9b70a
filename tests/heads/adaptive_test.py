"""Tests specific to the adaptive head; tests of all heads are in contract_test."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config, single_targets
from largevocab.errors import UserError
from largevocab.heads import Adaptive
from largevocab.ops.softmax.plan import plan
from largevocab.rows import SGD, Adagrad, Adam, lazy_average
from tests.heads.compiled import backward, evaluate, update
from tests.long import others_long

N, V, D = 40, 203, 200  # no multiple of anything
KEY = jax.random.key(0)


def counts(seed=0):
  """Counts of a Zipf law, in random order."""
  return np.random.default_rng(seed).permutation(np.int64(5000 / np.arange(1, V + 1)))


def batch(seed=1, classes=V):
  h_ND = jax.random.normal(jax.random.key(seed), (N, D))
  ids_N = np.random.default_rng(seed).integers(0, classes, N)
  return h_ND, single_targets(ids_N)


def test_five_clusters_of_narrow_rows():
  """200 / 4^4 rounds to zero columns: such a tail still learns."""
  head = Adaptive(cutoffs=(20, 50, 90, 140), align=1)
  state = head.init(KEY, counts(), D)
  assert state.clusters.widths == (200, 50, 12, 3, 1)
  rarest_N = state.class_V[140:180]
  out = backward(head, state, batch()[0], single_targets(rarest_N), KEY)
  assert out.grads.reached_J.tolist() == [0, 0, 0, N]
  assert jnp.any(out.grads.downs[3] != 0)
  nll_N = evaluate(head, state, batch()[0], single_targets(rarest_N))["nll"]
  np.testing.assert_allclose(out.loss, nll_N.mean(), rtol=1e-5)


def test_the_order_of_ids_does_not_matter():
  """A head trained on shuffled ids equals one trained on sorted ids."""
  head, shuffled = Adaptive(cutoffs=(20, 90)), counts()
  order = np.argsort(-shuffled, kind="stable")
  states = [head.init(KEY, c, D) for c in (shuffled[order], shuffled)]
  h_ND, y = batch()
  theirs = y._replace(ids_NP=jnp.asarray(order, jnp.int32)[y.ids_NP])
  # Within a part classes ascend, so rows are in another order, but none is elsewhere.
  place_V = states[1].place_V[order]
  ends = np.array([20, 90])
  np.testing.assert_array_equal(
    np.searchsorted(ends, place_V, "right"), np.searchsorted(ends, range(V), "right")
  )
  moved = states[1].tails[0].w_VD.at[place_V[20:90] - 20].set(states[0].tails[0].w_VD)
  last = states[1].tails[1].w_VD.at[place_V[90:] - 90].set(states[0].tails[1].w_VD)
  first = states[1].head.w_VD.at[place_V[:20]].set(states[0].head.w_VD[:20])
  tails = [
    t._replace(w_VD=w) for t, w in zip(states[1].tails, (moved, last), strict=True)
  ]
  head_table = states[1].head._replace(w_VD=first)
  same = dataclasses.replace(states[1], head=head_table, tails=tuple(tails))
  a = evaluate(head, states[0], h_ND, y)["nll"]
  b = evaluate(head, same, h_ND, theirs)["nll"]
  np.testing.assert_allclose(a, b, rtol=2e-5)


def tables_after_three_steps(optimizer, lazy):
  """Tables after three steps; the second step has no classes of the last tail."""
  head = Adaptive(cutoffs=(20, 90), lazy=lazy, optimizer=optimizer)
  state = head.init(KEY, counts(), D)
  for seed in range(3):
    h_ND, _ = batch(seed)
    parts = state.class_V[:90] if seed == 1 else state.class_V
    y = single_targets(parts[batch(seed, len(parts))[1].ids_NP[:, 0]])
    out = backward(head, state, h_ND, y, KEY)
    state = update(head, state, out.grads, 0.1, 1.0)
  return (state.head, *state.tails)


@pytest.mark.parametrize(
  "optimizer",
  others_long(
    [
      *(SGD(), Adagrad(), Adam()),
      *(SGD(weight_decay=0.1), SGD(decoupled_decay=0.1), Adagrad(average=0.5)),
    ],
    [Adam(), SGD(decoupled_decay=0.1)],
  ),
)
def test_lazy_updates_equal_dense_ones_except_for_adam(optimizer):
  """A tail that no class of the batch is in: sgd and adagrad would not move it, and
  decay and averages are made up for."""
  tables = [tables_after_three_steps(optimizer, lazy) for lazy in (True, False)]
  rows = []
  for each in tables:
    each = [lazy_average.settled(table, optimizer.average) for table in each]
    if optimizer.average:
      each = [lazy_average.swapped(table) for table in each]
    rows.append([optimizer.settled(table).w_VD for table in each])
  # The forward pass of a later step reads rows before that decay.
  rtol, atol = (1e-3, 1e-4) if optimizer.decoupled_decay else (1e-5, 1e-8)
  same = [
    bool(jnp.allclose(a, b, rtol=rtol, atol=atol)) for a, b in zip(*rows, strict=True)
  ]
  assert same == [True, True, not isinstance(optimizer, Adam)]


def test_decay_of_an_absent_tail_is_that_of_the_missed_steps():
  norms = []
  for mu in (0.1, 0.0):
    optimizer = SGD(decoupled_decay=mu)
    last = tables_after_three_steps(optimizer, lazy=True)[2]
    norms.append(jnp.linalg.norm(optimizer.settled(last).w_VD))
  assert norms[0] / norms[1] == pytest.approx(0.99**3, rel=2e-3)


def test_tied_tails_share_a_projection():
  head = Adaptive(cutoffs=(20, 90), tied=True)
  state = head.init(KEY, counts(), D)
  assert [down.w_VD.shape for down in state.downs] == [(56, D)]
  first, second = state.model.tails
  np.testing.assert_array_equal(second.down_ED, first.down_ED[: len(second.down_ED)])


def test_bfloat16_products_are_close_to_float32():
  h_ND, y = batch()
  losses = []
  for dtype in ("float32", "bfloat16"):
    head = Adaptive(cutoffs=(20, 90), dtype=dtype)
    out = backward(head, head.init(KEY, counts(), D), h_ND, y, KEY)
    assert out.loss.dtype == out.grads.head_VD.dtype == jnp.float32
    losses.append(out.loss)
  np.testing.assert_allclose(*losses, rtol=1e-2)
  assert losses[0] != losses[1]


def test_budget_changes_the_work_but_not_the_result():
  num, dim, classes = 600, 8, 1500  # 3 MiB of logits
  h_ND = jax.random.normal(KEY, (num, dim))
  y = single_targets(np.random.default_rng(0).integers(0, classes, num))
  outs = []
  for method in ("reference", "classes", "examples"):
    head = Adaptive(cutoffs=(1300,), method=method, budget_mib=1)
    how = plan(num, 1301, 2 * dim, 2**20, method=method)
    assert how.num_chunks > 1 or method == "reference"
    state = head.init(KEY, np.ones(classes, int), dim)
    outs.append(backward(head, state, h_ND, y, KEY))
  for out in outs[1:]:
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), outs[0], out
    )


@pytest.mark.parametrize(
  ("field", "message"),
  [
    ({"dtype": "float16"}, r"^Adaptive\.dtype is 'float16'; it must be one of"),
    ({"method": "rows"}, r"^Adaptive\.method is 'rows'; it must be one of"),
    ({"budget_mib": -1}, r"^Adaptive\.budget_mib is -1; it must"),
    ({"cutoffs": (20, 300)}, r"head\.cutoffs is .* V = 203"),
  ],
)
def test_invalid_fields_are_refused(field, message):
  with pytest.raises(UserError, match=message):
    config.part("head", "adaptive", **field).init(KEY, counts(), D)


def test_log_probabilities_equal_those_of_torch():
  """Compares with torch.nn.AdaptiveLogSoftmaxWithLoss with the same parameters."""
  torch = pytest.importorskip("torch")
  cutoffs = [20, 90]
  theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(D, V, cutoffs, div_value=4.0)
  array = lambda parameter: jnp.asarray(parameter.detach().numpy())
  head = Adaptive(
    cutoffs=tuple(cutoffs), align=1, **{"bias": False, "tail_bias": False}
  )
  state = head.init(KEY, np.arange(V, 0, -1), D)
  as_tables = lambda tables, rows: tuple(
    t._replace(w_VD=w) for t, w in zip(tables, rows, strict=True)
  )
  state = dataclasses.replace(
    state,
    head=state.head._replace(w_VD=array(theirs.head.weight)),
    tails=as_tables(state.tails, [array(rows.weight) for _, rows in theirs.tail]),
    downs=as_tables(state.downs, [array(down.weight) for down, _ in theirs.tail]),
  )
  h_ND, y = batch()
  h = torch.tensor(np.asarray(h_ND), requires_grad=True)
  wanted = theirs(h, torch.tensor(np.asarray(y.ids_NP[:, 0]), dtype=torch.long))
  wanted.loss.backward()
  nll_N = evaluate(head, state, h_ND, y)["nll"]
  np.testing.assert_allclose(-nll_N, wanted.output.detach(), atol=1e-5)
  out = backward(head, state, h_ND, y, KEY)
  np.testing.assert_allclose(out.loss, wanted.loss.item(), atol=1e-5)
  np.testing.assert_allclose(out.dh_ND, h.grad, atol=1e-6)
  log_p_NV = theirs.log_prob(h).detach().numpy()
  ids_NK, best_NK = head.top_k(state, h_ND, 7)
  np.testing.assert_array_equal(ids_NK, np.argsort(-log_p_NV, axis=1)[:, :7])
  np.testing.assert_allclose(best_NK, -np.sort(-log_p_NV, axis=1)[:, :7], atol=1e-5)
